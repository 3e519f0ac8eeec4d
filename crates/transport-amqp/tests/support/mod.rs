//! Messages to publish, and a second connection that looks at what arrived.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses a part of it, and all of it is for tests")]

pub mod fake;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use lapin::{
    Channel, Connection, ConnectionProperties, ExchangeKind,
    message::BasicGetMessage,
    options::{
        BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
        QueueDeleteOptions,
    },
    types::FieldTable,
};
use posthaste_core::{
    Body, Failure, Lane, Message, RouteKey, Row, RowId, Status, Timestamp, options::Options, port::Target,
};

pub const SOON: Duration = Duration::from_secs(20);

pub fn target(url: &str, options: &[(&str, &str)]) -> Target {
    let mut all = Options::default();
    options.iter().for_each(|(name, value)| all.add(*name, *value));
    posthaste_transport_amqp::parse(url, all).expect("a good target")
}

/// A message of `target` with this type, key and body.
pub fn message(target: &Target, event_type: &str, body: Body) -> Message {
    altered(target, event_type, |row| row.body = body)
}

pub fn text(target: &Target, event_type: &str, body: &str) -> Message {
    message(target, event_type, Body::Bytes(Bytes::copy_from_slice(body.as_bytes())))
}

pub fn altered(target: &Target, event_type: &str, change: impl FnOnce(&mut Row)) -> Message {
    let id = RowId::generate();
    let route = RouteKey::single();
    let mut row = Row {
        id,
        seq: 1,
        lane: Lane::of_id(id),
        event_type: event_type.to_owned(),
        key: None,
        tenant: None,
        priority: 0,
        headers: Default::default(),
        content_type: "application/octet-stream".to_owned(),
        body: Body::Bytes(Bytes::from_static(b"x")),
        due_at: Timestamp::from_micros(0),
        status: Status::Pending,
        attempts: 0,
        last_error: None,
        outstanding: None,
        created_at: Timestamp::from_micros(1_767_323_045_678_000),
        published_at: None,
        defect: None,
    };
    change(&mut row);
    let address = target.address.fill(&row);
    Message {
        id: id.message_id(&route),
        route,
        source: "/posthaste/t".into(),
        address,
        payload: None,
        row: Arc::new(row),
    }
}

pub async fn publish_one(target: &Target, message: Message) -> Result<(), Failure> {
    target.transport.publish(vec![message], SOON).await.pop().expect("one answer a message")
}

/// A broker seen from a second connection; what it made is deleted by [`Broker::clean`].
pub struct Broker {
    pub url: String,
    pub name: String,
    connection: Connection,
    pub channel: Channel,
}

impl Broker {
    /// The shared broker; `None` if the test is to be skipped.
    pub async fn shared() -> Option<Broker> {
        let url = posthaste_testkit::service::rabbitmq()?;
        Some(Broker::at(url).await)
    }

    pub async fn at(url: String) -> Broker {
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.expect("the broker is up");
        let channel = connection.create_channel().await.expect("a channel");
        let name = posthaste_testkit::service::outbox_name().as_str().to_owned();
        Broker { url, name, connection, channel }
    }

    /// The same after a restart.
    pub async fn again(self) -> Broker {
        Broker { name: self.name, ..Broker::at(self.url).await }
    }

    /// A durable exchange under this broker's random name.
    pub async fn exchange(&self, kind: ExchangeKind) {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        self.channel
            .exchange_declare(self.name.as_str().into(), kind, options, FieldTable::default())
            .await
            .expect("declare");
    }

    /// A queue under the random name, with these arguments.
    pub async fn queue(&self, arguments: FieldTable) {
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(self.name.as_str().into(), options, arguments).await.expect("declare");
    }

    pub async fn bind(&self, key: &str) {
        let (queue, exchange) = (self.name.as_str().into(), self.name.as_str().into());
        let options = QueueBindOptions::default();
        self.channel.queue_bind(queue, exchange, key.into(), options, FieldTable::default()).await.expect("bind");
    }

    pub async fn get(&self) -> Option<BasicGetMessage> {
        let options = BasicGetOptions { no_ack: true };
        self.channel.basic_get(self.name.as_str().into(), options).await.expect("get")
    }

    /// Everything in the queue.
    pub async fn drain(&self) -> Vec<BasicGetMessage> {
        let mut all = Vec::new();
        while let Some(message) = self.get().await {
            all.push(message);
        }
        all
    }

    pub async fn delete_exchange(&self) {
        self.channel
            .exchange_delete(self.name.as_str().into(), ExchangeDeleteOptions::default())
            .await
            .expect("delete");
    }

    /// Deletes queue and exchange, and says goodbye.
    pub async fn clean(self) {
        self.channel.queue_delete(self.name.as_str().into(), QueueDeleteOptions::default()).await.expect("delete");
        self.delete_exchange().await;
        self.connection.close(200, "OK".into()).await.expect("close");
    }
}
