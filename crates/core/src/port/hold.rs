//! Holding an outbox: `solo` ownership, by a lock that the database frees when the process dies.

use async_trait::async_trait;

use crate::Result;

/// Grants one process at a time the right to pump an outbox.
#[async_trait]
pub trait Hold: Send + Sync {
    /// Takes the outbox for the relay called `name`, if nobody holds it. Does not wait.
    ///
    /// # Contract
    /// - H1 At most one live `Held` an outbox, over all processes.
    /// - H2 Freed when the holder's process dies, without any waiting time.
    ///
    /// # Cancellation
    /// Nothing stays held.
    async fn try_hold(&self, name: &str) -> Result<Option<Box<dyn Held>>>;
}

/// The right to pump, until it is lost, released or dropped.
#[async_trait]
pub trait Held: Send + Sync {
    /// Ends when the right is lost or can no longer be proved (the connection that holds the lock
    /// is gone or silent); says why.
    ///
    /// # Cancellation
    /// Loses nothing.
    async fn lost(&mut self) -> String;

    /// Gives the right back. Ends quickly even if the database does not answer.
    async fn release(self: Box<Self>);
}
