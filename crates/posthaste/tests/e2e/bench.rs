//! An outbox and a queue of a test's own, and the relays between them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use lapin::{
    Channel, Connection, ConnectionProperties,
    message::Delivery,
    options::{BasicConsumeOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use posthaste::{
    Event, OutboxName, Relay, RelayHandle, RouteKey, Settings,
    options::Options,
    port::{Inspect as _, OutboxStatus, Produce as _, Schema as _, Store, Target},
    route::{Route, Routes, TargetKey},
};
use posthaste_store_postgres::{PostgresStore, Settings as StoreSettings};
use posthaste_testkit::{service, wait::eventually};
use tokio_postgres::{Client, NoTls};

/// Longest wait for anything: a loaded machine takes its time.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Bench {
    pub outbox: OutboxName,
    pub store: Arc<PostgresStore>,
    pub postgres: String,
    pub client: Client,
    pub queue: String,
    pub amqp: String,
    channel: Channel,
    _connection: Connection,
}

impl Bench {
    /// On the shared servers, or nothing where one is missing.
    pub async fn new() -> Option<Bench> {
        let (postgres, amqp) = (service::postgres()?, service::rabbitmq()?);
        Some(Bench::on(&postgres, &amqp).await)
    }

    /// On these servers.
    pub async fn on(postgres: &str, amqp: &str) -> Bench {
        let outbox = service::outbox_name();
        let store = Arc::new(PostgresStore::new(postgres, outbox.clone(), StoreSettings::default()).unwrap());
        store.migrate().await.unwrap();
        let (client, driver) = tokio_postgres::connect(postgres, NoTls).await.unwrap();
        tokio::spawn(driver);
        let connection = Connection::connect(amqp, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let queue = format!("posthaste-e2e-{}", uuid::Uuid::now_v7());
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await.unwrap();
        let (postgres, amqp) = (postgres.to_owned(), amqp.to_owned());
        Bench { outbox, store, postgres, client, queue, amqp, channel, _connection: connection }
    }

    /// The queue as a target of its own.
    pub fn target(&self) -> Target {
        self.target_at(&self.amqp)
    }

    /// The queue through another address of the broker.
    pub fn target_at(&self, amqp: &str) -> Target {
        let mut options = Options::default();
        options.add("routing_key", &self.queue);
        posthaste_transport_amqp::parse(amqp, options).unwrap()
    }

    /// A relay from the outbox to the queue.
    pub fn relay(&self, settings: Settings) -> RelayHandle {
        self.relay_to(settings, vec![("default", self.target())])
    }

    /// A relay with one route to each target.
    pub fn relay_to(&self, settings: Settings, targets: Vec<(&str, Target)>) -> RelayHandle {
        let routes = targets.iter().map(|(name, target)| Route {
            key: RouteKey::from(*name),
            pattern: "*".parse().unwrap(),
            when: None,
            payload: None,
            target: TargetKey::from(*name),
            address: target.address.clone(),
        });
        let routes = Routes::new(routes.collect(), Vec::new(), "/posthaste/e2e".into(), settings.max_body).unwrap();
        let mut builder = Relay::builder("e2e");
        for (name, target) in targets {
            builder = builder.target(TargetKey::from(name), target);
        }
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        builder.outbox(self.outbox.clone(), store, Arc::new(routes), settings).build().unwrap().start()
    }

    /// Enqueues events in one transaction.
    pub async fn enqueue(&self, events: &[Event]) {
        self.store.produce(events).await.unwrap();
    }

    /// Takes `count` messages out of the queue.
    pub async fn receive(&self, count: usize) -> Vec<Delivery> {
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let tag = uuid::Uuid::now_v7().to_string();
        let consumer =
            self.channel.basic_consume(self.queue.as_str().into(), tag.as_str().into(), options, FieldTable::default());
        let mut consumer = consumer.await.unwrap();
        let mut received = Vec::new();
        while received.len() < count {
            let next = tokio::time::timeout(PATIENCE, consumer.next()).await;
            let next = next.unwrap_or_else(|_| panic!("only {} of {count} messages came", received.len()));
            received.push(next.unwrap().unwrap());
        }
        self.channel.basic_cancel(tag.as_str().into(), Default::default()).await.unwrap();
        received
    }

    /// How many messages are in the queue now.
    pub async fn queued(&self) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.channel.queue_declare(self.queue.as_str().into(), options, FieldTable::default());
        queue.await.unwrap().message_count()
    }

    pub async fn status(&self) -> OutboxStatus {
        self.store.status().await.unwrap()
    }

    /// Waits until the status is as wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(&OutboxStatus) -> bool) {
        eventually(PATIENCE, what, || async { wanted(&self.status().await) }).await;
    }

    pub async fn until_published(&self, count: u64) {
        self.until(&format!("{count} rows are published"), |status| status.published >= count && status.pending == 0)
            .await;
    }

    /// Removes what the test made.
    pub async fn tear_down(self) {
        let _ = self.channel.queue_delete(self.queue.as_str().into(), QueueDeleteOptions::default()).await;
        let table = self.outbox.table();
        let _ = self.client.batch_execute(&format!("DROP TABLE IF EXISTS \"{table}\", \"{table}_log\" CASCADE")).await;
    }
}

/// An event with a number for its body.
pub fn event(number: usize) -> Event {
    Event::json("order.placed", &serde_json::json!({ "n": number })).unwrap()
}

/// The number in a message.
pub fn number(delivery: &Delivery) -> usize {
    let body: serde_json::Value = serde_json::from_slice(&delivery.data).unwrap();
    usize::try_from(body["n"].as_u64().unwrap()).unwrap()
}

/// How many copies of each message id came.
pub fn copies(deliveries: &[Delivery]) -> HashMap<String, usize> {
    let mut copies = HashMap::new();
    for delivery in deliveries {
        let id = delivery.properties.message_id().as_ref().unwrap().to_string();
        *copies.entry(id).or_insert(0) += 1;
    }
    copies
}
