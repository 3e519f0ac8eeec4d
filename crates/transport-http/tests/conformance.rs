//! Runs the transport suite over a receiver of webhooks.
#![allow(clippy::unwrap_used, reason = "these are tests")]

#[allow(dead_code, reason = "each test program uses its own part of it")]
mod support;

use std::{collections::BTreeMap, net::SocketAddr, process::ExitCode, sync::Arc};

use async_trait::async_trait;
use percent_encoding::percent_decode_str;
use posthaste_core::{Message, Row, port::Target};
use posthaste_testkit::suite::transport::{self, Destination, Facts, Received, TransportHarness};
use tokio::sync::Mutex;

use support::{Answer, OK, Server, target};

const REFUSED: &str = "refused";

fn main() -> ExitCode {
    transport::main(Webhook)
}

struct Webhook;

fn to(address: SocketAddr) -> Target {
    target(&format!("http://{address}/hook?a=b"), &[("allow", "127.0.0.0/8")])
}

#[async_trait]
impl TransportHarness for Webhook {
    fn name(&self) -> &'static str {
        "http"
    }

    fn facts(&self) -> Facts {
        Facts { network: true, refuses: true, deduplicates: false }
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        let server = Server::start(|request| match request.headers["ce-type"].as_str() {
            REFUSED => Answer::Status("410 Gone", "no more of these"),
            _ => OK,
        });
        let server = server.await;
        let address = server.address;
        Arc::new(Receiver { address, server: Mutex::new(Some(server)), received: Mutex::default() })
    }

    fn unreachable(&self) -> Target {
        // Nobody listens on the port that means "nothing".
        to(SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    fn at(&self, address: SocketAddr) -> Option<Target> {
        Some(to(address))
    }
}

struct Receiver {
    address: SocketAddr,
    server: Mutex<Option<Server>>,
    received: Mutex<Vec<Received>>,
}

#[async_trait]
impl Destination for Receiver {
    fn open(&self) -> Target {
        to(self.address)
    }

    async fn received(&self, count: usize) -> Vec<Received> {
        let mut server = self.server.lock().await;
        let server = server.as_mut().unwrap();
        let mut received = self.received.lock().await;
        while let Ok(request) = server.requests.try_recv() {
            received.extend(decode(request));
        }
        while received.len() < count {
            received.extend(decode(server.received().await));
        }
        received.clone()
    }

    fn refused(&self, message: Message) -> Message {
        let row = Row { event_type: REFUSED.to_owned(), ..(*message.row).clone() };
        Message { row: row.into(), ..message }
    }

    async fn teardown(&self) {
        drop(self.server.lock().await.take());
    }

    async fn leftovers(&self) -> Vec<String> {
        let server = self.server.lock().await;
        server.iter().map(|server| server.address.to_string()).collect()
    }
}

/// The message of a request that was accepted.
fn decode(request: support::Received) -> Option<Received> {
    let (mut attributes, mut headers) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in request.headers {
        match name.strip_prefix("posthaste-header-") {
            Some(renamed) => _ = headers.insert(renamed.to_owned(), decoded(&value)),
            None if is_users(&name) => _ = headers.insert(name, value),
            // A signature says when it was made.
            None if matches!(name.as_str(), "webhook-timestamp" | "webhook-signature") => {}
            None => _ = attributes.insert(name, value),
        }
    }
    let attribute = |name: &str| attributes.get(name).map(|value| decoded(value));
    if attribute("ce-type").unwrap() == REFUSED {
        return None;
    }
    assert_eq!(attribute("ce-id"), attribute("webhook-id"));
    Some(Received {
        id: attribute("ce-id").unwrap(),
        event_type: attribute("ce-type").unwrap(),
        key: attribute("ce-subject"),
        tenant: attribute("ce-tenant"),
        headers,
        content_type: attributes["content-type"].clone(),
        body: attribute("ce-nullbody").is_none().then_some(request.body.into()),
        attributes,
    })
}

fn is_users(name: &str) -> bool {
    name.starts_with("x-") || matches!(name, "traceparent" | "tracestate")
}

fn decoded(value: &str) -> String {
    percent_decode_str(value).decode_utf8().unwrap().into_owned()
}
