//! A queue of a test's own in RabbitMQ.

use std::collections::{HashMap, HashSet};

use futures_util::StreamExt as _;
use lapin::{
    Channel, Connection, ConnectionProperties,
    message::Delivery,
    options::{BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use posthaste::{options::Options, port::Target};
use posthaste_testkit::service;

use crate::bench::PATIENCE;

pub struct Queue {
    pub name: String,
    pub amqp: String,
    pub channel: Channel,
    _connection: Connection,
}

impl Queue {
    /// On the shared broker, or nothing where it is missing.
    pub async fn new() -> Option<Queue> {
        Some(Queue::on(&service::rabbitmq()?).await)
    }

    /// On this broker.
    pub async fn on(amqp: &str) -> Queue {
        Queue::open(amqp, format!("posthaste-e2e-{}", uuid::Uuid::now_v7())).await
    }

    async fn open(amqp: &str, name: String) -> Queue {
        let connection = Connection::connect(amqp, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name.as_str().into(), options, FieldTable::default()).await.unwrap();
        Queue { name, amqp: amqp.to_owned(), channel, _connection: connection }
    }

    /// The same queue, after the broker was away.
    pub async fn again(&self) -> Queue {
        Queue::open(&self.amqp, self.name.clone()).await
    }

    /// The queue as a target, by the default exchange.
    pub fn target(&self) -> Target {
        self.target_at(&self.amqp)
    }

    /// The queue through another address of the broker.
    pub fn target_at(&self, amqp: &str) -> Target {
        target(amqp, &[("routing_key", &self.name)])
    }

    pub async fn bind(&self, exchange: &str, routing_key: &str) {
        let bound = self.channel.queue_bind(
            self.name.as_str().into(),
            exchange.into(),
            routing_key.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        bound.await.unwrap();
    }

    /// Takes `count` messages out of the queue.
    pub async fn receive(&self, count: usize) -> Vec<Delivery> {
        self.receive_until(|received| received.len() >= count, &format!("{count} messages")).await
    }

    /// Takes messages out of the queue until these many different ones have come.
    pub async fn receive_distinct(&self, count: usize) -> Vec<Delivery> {
        let mut seen = HashSet::new();
        let enough = move |received: &[Delivery]| {
            seen.extend(received.last().map(id));
            seen.len() >= count
        };
        self.receive_until(enough, &format!("{count} different messages")).await
    }

    async fn receive_until(&self, mut enough: impl FnMut(&[Delivery]) -> bool, what: &str) -> Vec<Delivery> {
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let tag = uuid::Uuid::now_v7().to_string();
        let consumer =
            self.channel.basic_consume(self.name.as_str().into(), tag.as_str().into(), options, FieldTable::default());
        let mut consumer = consumer.await.unwrap();
        let mut received = Vec::new();
        while !enough(&received) {
            let next = tokio::time::timeout(PATIENCE, consumer.next()).await;
            let next = next.unwrap_or_else(|_| panic!("{} messages came instead of {what}", received.len()));
            received.push(next.unwrap().unwrap());
        }
        self.channel.basic_cancel(tag.as_str().into(), Default::default()).await.unwrap();
        // What came between the last one wanted and the cancellation was taken out as well.
        while let Some(Ok(late)) = consumer.next().await {
            received.push(late);
        }
        received
    }

    /// How many messages are in the queue now.
    pub async fn queued(&self) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.channel.queue_declare(self.name.as_str().into(), options, FieldTable::default());
        queue.await.unwrap().message_count()
    }

    pub async fn delete(&self) {
        let _ = self.channel.queue_delete(self.name.as_str().into(), QueueDeleteOptions::default()).await;
    }
}

/// A target with these options.
pub fn target(amqp: &str, options: &[(&str, &str)]) -> Target {
    let mut all = Options::default();
    for (name, value) in options {
        all.add(*name, *value);
    }
    posthaste_transport_amqp::parse(amqp, all).unwrap()
}

/// The message id.
pub fn id(delivery: &Delivery) -> String {
    delivery.properties.message_id().as_ref().unwrap().to_string()
}

/// The number in a message.
pub fn number(delivery: &Delivery) -> usize {
    let body: serde_json::Value = serde_json::from_slice(&delivery.data).unwrap();
    usize::try_from(body["n"].as_u64().unwrap()).unwrap()
}

/// The numbers in messages, in the order in which they came.
pub fn numbers(deliveries: &[Delivery]) -> Vec<usize> {
    deliveries.iter().map(number).collect()
}

/// How many copies of each message id came.
pub fn copies(deliveries: &[Delivery]) -> HashMap<String, usize> {
    let mut copies = HashMap::new();
    for delivery in deliveries {
        *copies.entry(id(delivery)).or_insert(0) += 1;
    }
    copies
}
