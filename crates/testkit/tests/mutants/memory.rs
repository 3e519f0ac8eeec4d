//! The weakest legal transport: messages end in memory.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    AddressTemplate, Class, Failure, Message, Row, cloudevents,
    port::{Target, Transport, TransportCapabilities},
};
use posthaste_testkit::suite::transport::{Destination, Facts, Received, TransportHarness};

const REFUSED: &str = "refused";
const MAX_BODY: usize = 6_000_000;

pub struct Memory;

#[async_trait]
impl TransportHarness for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn facts(&self) -> Facts {
        Facts { network: false, refuses: true, deduplicates: false }
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(Shelf::default())
    }

    fn unreachable(&self) -> Target {
        target(None)
    }

    fn at(&self, _address: SocketAddr) -> Option<Target> {
        None
    }
}

type Messages = Arc<Mutex<Vec<Message>>>;

#[derive(Default)]
struct Shelf(Messages);

fn target(messages: Option<Messages>) -> Target {
    let transport = Arc::new(Keeper { messages });
    Target { label: "memory:".to_owned(), address: AddressTemplate::default(), transport }
}

#[async_trait]
impl Destination for Shelf {
    fn open(&self) -> Target {
        target(Some(Arc::clone(&self.0)))
    }

    async fn received(&self, _count: usize) -> Vec<Received> {
        // What was confirmed is here: there is nothing to wait for.
        let messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages.iter().map(decode).collect()
    }

    fn refused(&self, message: Message) -> Message {
        let row = Row { event_type: REFUSED.to_owned(), ..(*message.row).clone() };
        Message { row: row.into(), ..message }
    }

    async fn teardown(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn leftovers(&self) -> Vec<String> {
        Vec::new()
    }
}

fn decode(message: &Message) -> Received {
    let mut attributes: BTreeMap<String, String> =
        cloudevents::attributes(message).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Received {
        id: attributes.remove("id").unwrap(),
        event_type: message.row.event_type.clone(),
        key: message.row.key.clone(),
        tenant: message.row.tenant.clone(),
        headers: message.row.headers.clone(),
        content_type: message.content_type().to_owned(),
        body: message.body().cloned(),
        attributes,
    }
}

/// Keeps messages, or has nowhere to keep them.
struct Keeper {
    messages: Option<Messages>,
}

impl Keeper {
    fn take(&self, message: Message) -> Result<(), Failure> {
        let Some(messages) = &self.messages else { return Err(Failure::new(Class::Transient, "nothing is there")) };
        if message.row.event_type == REFUSED {
            return Err(Failure::new(Class::Permanent, "refused"));
        }
        if message.body().is_some_and(|body| body.len() > MAX_BODY) {
            return Err(Failure::new(Class::Permanent, "too large"));
        }
        messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        Ok(())
    }
}

#[async_trait]
impl Transport for Keeper {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { max_batch: 50, concurrency: 4, max_body: Some(MAX_BODY) }
    }

    async fn publish(&self, batch: Vec<Message>, _deadline: Duration) -> Vec<Result<(), Failure>> {
        batch.into_iter().map(|message| self.take(message)).collect()
    }

    async fn probe(&self, _deadline: Duration) -> Result<(), Failure> {
        self.messages.as_ref().map(|_| ()).ok_or_else(|| Failure::new(Class::Transient, "nothing is there"))
    }

    async fn close(&self) {}
}
