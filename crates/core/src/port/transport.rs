//! A transport: the code that speaks a broker's protocol to one target.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{AddressTemplate, Failure, Message};

/// Publishes messages to one target. Making one does no I/O: it connects when it is first used,
/// and again whenever its connection is gone.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Facts that the relay acts on.
    fn capabilities(&self) -> TransportCapabilities;

    /// Publishes a batch and waits for every answer.
    ///
    /// # Contract
    /// - P1 One answer a message, in the same order.
    /// - P2 `Ok` only once the broker has it durably and has routed it.
    /// - P3 No retries. A failure carries its class and whether the message may have been taken.
    /// - P4 Never more than one message of an ordering key in one batch: the relay sees to it.
    /// - P6 A message over a limit is a permanent failure, never cut.
    /// - P7 Id, type, key, tenant, headers, content type and the exact bytes survive the trip.
    /// - P8 Concurrent calls are allowed, up to `concurrency`.
    /// - P9 Answers within `deadline`, whatever the target does; what has no answer by then is
    ///   [`Failure::no_answer`], and the connection it hung on is not used again.
    ///
    /// # Cancellation
    /// P5 Any subset may have been delivered.
    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>>;

    /// Whether the target can be reached and would take messages now.
    ///
    /// # Contract
    /// - H1 No side effects, no right that `publish` does not need.
    async fn probe(&self, deadline: Duration) -> Result<(), Failure>;

    /// Ends the connection. Idempotent; ends quickly even while a publication hangs.
    async fn close(&self);
}

/// Facts about a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportCapabilities {
    /// Most messages in one batch.
    pub max_batch: usize,
    /// Batches in flight at once.
    pub concurrency: usize,
    /// Largest body in bytes, where the target has a limit of its own.
    pub max_body: Option<usize>,
}

/// A target as its URL and options describe it: pure configuration until the transport is used.
pub struct Target {
    /// The URL without secrets.
    pub label: String,
    /// Every address part that the transport knows, with its default.
    pub address: AddressTemplate,
    /// The transport.
    pub transport: Arc<dyn Transport>,
}
