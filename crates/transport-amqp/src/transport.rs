//! The transport port over AMQP 0-9-1.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::{
    Failure, Message,
    port::{Transport, TransportCapabilities},
};
use tokio::time::Instant;

use crate::{
    channels::{CHANNELS, Channels},
    publish,
    target::Settings,
};

/// Publishes to RabbitMQ: persistent, mandatory, confirmed.
///
/// Must be used inside a tokio runtime. Dropping it cuts its connection.
pub struct AmqpTransport {
    channels: Channels,
}

impl AmqpTransport {
    pub(crate) fn new(settings: Settings) -> AmqpTransport {
        AmqpTransport { channels: Channels::new(settings) }
    }
}

impl AmqpTransport {
    /// What is wrong with these exchanges, each of which messages may be sent to: one sentence for each that is
    /// not there. Declares nothing, and needs no right that a publication does not need. Where the target is
    /// to declare its exchanges none is missing.
    ///
    /// # Errors
    /// The broker can't be asked.
    pub async fn missing_exchanges(&self, names: &[&str], deadline: Duration) -> Result<Vec<String>, Failure> {
        self.channels.missing_exchanges(names, Instant::now() + deadline).await
    }
}

#[async_trait]
impl Transport for AmqpTransport {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { max_batch: 250, concurrency: CHANNELS, max_body: None }
    }

    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>> {
        publish::publish(&self.channels, &batch, deadline).await
    }

    async fn probe(&self, deadline: Duration) -> Result<(), Failure> {
        self.channels.probe(Instant::now() + deadline).await
    }

    async fn close(&self) {
        self.channels.close().await;
    }
}
