//! Wake-ups: hints that rows may have been written. The pump's interval is the guarantee.

use async_trait::async_trait;

use crate::{LaneSet, Result};

/// A source of wake-ups.
///
/// # Contract
/// - W1 Hints may be lost, merged and spurious; correctness never depends on them.
/// - W2 While armed, every transaction that commits an insert wakes, unless W3 is signalled.
/// - W3 When the source breaks, `next` answers once with `healthy: false`, and `arm` is needed again.
#[async_trait]
pub trait Wakeups: Send + Sync {
    /// Says that the relay is about to wait. After `Armed::Yes` the caller reads once more, then waits.
    ///
    /// # Cancellation
    /// May or may not be armed.
    async fn arm(&self) -> Result<Armed>;

    /// Says that the relay is busy and reads anyway, so that writers need not wake it.
    ///
    /// # Cancellation
    /// May or may not be armed.
    async fn disarm(&self) -> Result<()>;

    /// The next hint.
    ///
    /// # Cancellation
    /// Loses nothing.
    async fn next(&self) -> Wake;
}

/// Whether later commits wake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Armed {
    /// Every later commit wakes.
    Yes,
    /// A writer is under way that saw the relay busy and will not wake it: read on.
    WriterUnderWay,
}

/// A hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// Lanes that may have new rows.
    pub lanes: LaneSet,
    /// Rows behind the cursors may have changed too (an operator's retry): read from the start.
    pub rewind: bool,
    /// Whether the source still works.
    pub healthy: bool,
}

/// Wakes a relay of this process.
pub trait Waker: Send + Sync {
    /// Rows may have been committed in these lanes. Never blocks.
    fn wake(&self, lanes: LaneSet);
}
