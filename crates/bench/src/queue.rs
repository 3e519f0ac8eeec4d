//! A queue of the bench's own.

use futures_util::StreamExt as _;
use lapin::{
    Channel, Connection, ConnectionProperties, Consumer,
    options::{BasicConsumeOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use posthaste_core::{options::Options, port::Target};

use crate::Result;

pub(crate) struct Queue {
    pub(crate) name: String,
    url: String,
    channel: Channel,
    _connection: Connection,
}

impl Queue {
    /// A durable one, as a service has it.
    pub(crate) async fn create(url: &str) -> Result<Queue> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let name = format!("posthaste-bench-{}", uuid::Uuid::now_v7());
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name.as_str().into(), options, FieldTable::default()).await?;
        Ok(Queue { name, url: url.to_owned(), channel, _connection: connection })
    }

    pub(crate) fn target(&self) -> Result<Target> {
        target(&self.url, &self.name)
    }

    /// What arrives, without acknowledgements.
    pub(crate) async fn consume(&self) -> Result<Consumer> {
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let consumer =
            self.channel.basic_consume(self.name.as_str().into(), "bench".into(), options, FieldTable::default());
        Ok(consumer.await?)
    }

    pub(crate) async fn delete(self) -> Result<()> {
        self.channel.queue_delete(self.name.as_str().into(), QueueDeleteOptions::default()).await?;
        Ok(())
    }
}

/// The queue as a target.
pub(crate) fn target(url: &str, queue: &str) -> Result<Target> {
    let mut options = Options::default();
    options.add("routing_key", queue);
    Ok(posthaste_transport_amqp::parse(url, options)?)
}

/// The body of the next message.
pub(crate) async fn next_body(consumer: &mut Consumer) -> Result<Vec<u8>> {
    Ok(consumer.next().await.ok_or("the consumer has ended")??.data.to_vec())
}
