//! Enqueueing: its results, and the form that runs a transaction of its own.

use async_trait::async_trait;

use crate::{Error, Event, EventError, Lane, LaneSet, RowId};

/// Enqueues in a transaction of its own, for the command line and for tests. An application
/// enqueues in its own transaction instead: see `Outbox::enqueue` of each store.
///
/// # Contract (both forms)
/// - E1 A row is visible if and only if the transaction commits.
/// - E2 Answers come in the order of the events.
/// - E3 In a key: the order of the calls inside a transaction; if B began after A committed, A precedes B.
/// - E4 A row that commits late is never skipped by a relay.
/// - E5 An id that is present with equal content is a no-op that says `existing`; with other
///   content it is [`EnqueueError::Conflict`]. A call that fails has written nothing of its events,
///   and the transaction stays usable either way.
/// - E6 Never commits, never opens a connection (the form in the caller's transaction).
#[async_trait]
pub trait Produce: Send + Sync {
    /// Enqueues all of `events`, or none.
    ///
    /// # Cancellation
    /// All or none may have been written.
    async fn produce(&self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError>;
}

/// What became of one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enqueued {
    /// The row's id.
    pub id: RowId,
    /// The row's lane.
    pub lane: Lane,
    /// Whether it was there already, with equal content.
    pub existing: bool,
}

/// Why events were not enqueued.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// An event breaks a rule. Nothing was sent to the database.
    #[error("event {}: {error}", index + 1)]
    Event {
        /// Its place in the call, from 0.
        index: usize,
        /// The rule.
        #[source]
        error: EventError,
    },
    /// The id is taken by an event with other content.
    #[error("event {}: id {id} is taken by an event with other content", index + 1)]
    Conflict {
        /// Its place in the call, from 0.
        index: usize,
        /// The id.
        id: RowId,
    },
    /// The database refused or did not answer.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Says what was enqueued in a transaction whose end is not known yet. Handed over after the
/// commit it starts the immediate path; dropped, the rows are left to the pump. It is trusted with
/// nothing: only rows that are there are published.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Receipt {
    rows: Vec<Enqueued>,
}

impl Receipt {
    /// The receipt of these rows.
    pub fn new(rows: Vec<Enqueued>) -> Receipt {
        Receipt { rows }
    }

    /// The rows in the order of the events.
    #[must_use]
    pub fn rows(&self) -> &[Enqueued] {
        &self.rows
    }

    /// The ids in the order of the events.
    pub fn ids(&self) -> impl Iterator<Item = RowId> {
        self.rows.iter().map(|row| row.id)
    }

    /// The lanes that have new rows.
    #[must_use]
    pub fn lanes(&self) -> LaneSet {
        self.rows.iter().map(|row| row.lane).collect()
    }
}
