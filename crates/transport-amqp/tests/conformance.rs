//! Runs the transport suite over a RabbitMQ broker.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::{collections::BTreeMap, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use lapin::{
    ExchangeKind,
    message::BasicGetMessage,
    options::{QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use posthaste_core::{Address, Message, port::Target};
use posthaste_testkit::{
    service,
    suite::transport::{self, Destination, Facts, Received, TransportHarness},
};
use tokio::sync::Mutex;

use support::{Broker, target};

fn main() -> ExitCode {
    transport::main_or_skip(service::rabbitmq().map(|url| Amqp { url }), "RabbitMQ is missing")
}

struct Amqp {
    url: String,
}

#[async_trait]
impl TransportHarness for Amqp {
    fn name(&self) -> &'static str {
        "amqp"
    }

    fn facts(&self) -> Facts {
        Facts { network: true, refuses: true, deduplicates: false }
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        let broker = Broker::at(self.url.clone()).await;
        broker.exchange(ExchangeKind::Direct).await;
        broker.queue(FieldTable::default()).await;
        broker.bind("suite").await;
        Arc::new(Queue { broker, received: Mutex::default() })
    }

    fn unreachable(&self) -> Target {
        // Nobody listens on the port that means "nothing".
        target("amqp://127.0.0.1:1", &[])
    }

    fn at(&self, address: SocketAddr) -> Option<Target> {
        Some(target(&format!("amqp://{address}"), &[]))
    }
}

/// A queue bound to an exchange, both of the case's own.
struct Queue {
    broker: Broker,
    received: Mutex<Vec<Received>>,
}

#[async_trait]
impl Destination for Queue {
    fn open(&self) -> Target {
        target(&self.broker.url, &[("exchange", &self.broker.name), ("routing_key", "suite")])
    }

    async fn received(&self, count: usize) -> Vec<Received> {
        loop {
            let mut received = self.received.lock().await;
            received.extend(self.broker.drain().await.iter().map(decode));
            if received.len() >= count {
                return received.clone();
            }
            drop(received);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn refused(&self, message: Message) -> Message {
        let parts = [("exchange", self.broker.name.clone()), ("routing_key", "nobody".to_owned())];
        Message { address: Address::from_iter(parts), ..message }
    }

    async fn teardown(&self) {
        let name = self.broker.name.as_str();
        self.broker.channel.queue_delete(name.into(), QueueDeleteOptions::default()).await.unwrap();
        self.broker.delete_exchange().await;
    }

    async fn leftovers(&self) -> Vec<String> {
        let name = self.broker.name.as_str();
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.broker.channel.queue_declare(name.into(), options, FieldTable::default()).await;
        queue.map(|_| name.to_owned()).into_iter().collect()
    }
}

fn decode(message: &BasicGetMessage) -> Received {
    let properties = &message.properties;
    let table = properties.headers().clone().unwrap_or_default();
    let texts = table.inner().iter().map(|(name, value)| (name.as_str(), text(value)));
    let (own, mut headers): (BTreeMap<String, String>, BTreeMap<String, String>) =
        texts.map(|(name, value)| (name.to_owned(), value)).partition(|(name, _)| name.starts_with("cloudEvents:"));
    let attribute = |name: &str| own.get(&format!("cloudEvents:{name}")).cloned();
    for name in ["traceparent", "tracestate"] {
        headers.extend(attribute(name).map(|value| (name.to_owned(), value)));
    }
    let body = message.data.clone().into();
    Received {
        id: properties.message_id().as_ref().unwrap().to_string(),
        event_type: properties.kind().as_ref().unwrap().to_string(),
        key: attribute("subject"),
        tenant: attribute("tenant"),
        headers,
        content_type: properties.content_type().as_ref().unwrap().to_string(),
        body: attribute("nullbody").is_none().then_some(body),
        attributes: attributes(message, own),
    }
}

fn attributes(message: &BasicGetMessage, mut own: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let properties = &message.properties;
    own.insert("timestamp".to_owned(), format!("{:?}", properties.timestamp()));
    own.insert("delivery mode".to_owned(), format!("{:?}", properties.delivery_mode()));
    own.insert("address".to_owned(), format!("{} {}", message.exchange, message.routing_key));
    own
}

fn text(value: &AMQPValue) -> String {
    let AMQPValue::LongString(text) = value else { panic!("a header that is no text: {value:?}") };
    String::from_utf8(text.as_bytes().to_vec()).unwrap()
}
