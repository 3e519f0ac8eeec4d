//! Notices that nobody reads the standard output any more: the relay then ends quietly.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_core::{
    Failure, Message,
    port::{Target, Transport, TransportCapabilities},
};
use tokio_util::sync::CancellationToken;

use crate::registry::STDOUT_CLOSED;

/// The target, which cancels `closed` once its reader is gone.
pub fn watched(target: Target, closed: CancellationToken) -> Target {
    Target { transport: Arc::new(Watched { transport: target.transport, closed }), ..target }
}

struct Watched {
    transport: Arc<dyn Transport>,
    closed: CancellationToken,
}

#[async_trait]
impl Transport for Watched {
    fn capabilities(&self) -> TransportCapabilities {
        self.transport.capabilities()
    }

    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>> {
        let answers = self.transport.publish(batch, deadline).await;
        let is_closed = |answer: &Result<(), Failure>| answer.as_ref().is_err_and(|why| why.detail == STDOUT_CLOSED);
        if answers.iter().any(is_closed) {
            self.closed.cancel();
        }
        answers
    }

    async fn probe(&self, deadline: Duration) -> Result<(), Failure> {
        self.transport.probe(deadline).await
    }

    async fn close(&self) {
        self.transport.close().await;
    }
}
