//! The store as a relay that owns lanes sees it: read, mark, settle, wake.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::Wakeups;
use crate::{Lane, LaneSet, Proof, Result, RouteKey, Row, RowId, RowRef, Seq, Timestamp};

/// Reads and settles the rows of lanes that the caller owns. No row is written to be claimed.
#[async_trait]
pub trait Lanes: Send + Sync {
    /// Reads undelivered rows, lane by lane in the order of `seq`.
    ///
    /// # Contract
    /// - L1 Only committed rows with an undelivered status, `seq` greater than the lane's cursor,
    ///   in lanes that were asked for. Rows that are not due are returned too: only the caller
    ///   knows whether they hold back their key.
    /// - L2 Of each lane a prefix: no undelivered row between the cursor and the last row returned
    ///   is left out. Rows of one lane come in ascending `seq`.
    /// - L3 At most `per_lane` rows a lane and `max_bytes` of bodies in all; the first row comes
    ///   even if it alone is over `max_bytes`. A body over `max_body` is not read.
    /// - L4 `more` holds every lane that has rows after those returned.
    /// - L5 `proof` is that of this read: a row with `seq` at or below one that was returned can
    ///   appear later only as [`Proof`] says.
    /// - L6 Bounded work: no sort or scan over the backlog.
    ///
    /// # Cancellation
    /// Has no effect on the store.
    async fn read(&self, request: ReadRequest) -> Result<Page>;

    /// Marks rows as published, or deletes them where `retention` is zero: one statement.
    ///
    /// # Contract
    /// - M1 A row that is published already keeps its `published_at`; repeating is harmless.
    /// - M2 `published_at` is the database's clock. `outstanding` and `last_error` become absent.
    /// - M3 Only a row that has both the id and the `seq`: one that was discarded and enqueued again
    ///   under its id meanwhile is not marked.
    ///
    /// # Cancellation
    /// May or may not have happened.
    async fn mark(&self, rows: &[RowRef]) -> Result<Marked>;

    /// Records outcomes other than "published", each on its own.
    ///
    /// # Contract
    /// - S1 One answer each, in order. A row that is published, or gone, is not changed and
    ///   answers `Stale`.
    /// - S2 `due_in` counts from the database's clock at this moment.
    /// - S3 `Invalid` keeps body, headers and history.
    ///
    /// # Cancellation
    /// May or may not have happened, each on its own.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>>;

    /// Hints that rows may have been written. Opening it does no I/O; see [`Wakeups`].
    fn wakeups(&self) -> Arc<dyn Wakeups>;
}

/// What to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// Each lane with its cursor: rows with a greater `seq` are read. 0 reads from the start.
    pub from: Vec<(Lane, Seq)>,
    /// Most rows of one lane.
    pub per_lane: u32,
    /// Most rows in all.
    pub max_rows: u32,
    /// Most bytes of bodies in all.
    pub max_bytes: u64,
    /// Bodies larger than this many bytes are not read.
    pub max_body: u64,
}

/// What was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Rows; those of one lane in ascending `seq`, the lanes in any order.
    pub rows: Vec<Row>,
    /// Lanes that have more.
    pub more: LaneSet,
    /// The database's clock at this read.
    pub now: Timestamp,
    /// What shows that nothing appeared behind the cursors unnoticed.
    pub proof: Proof,
}

/// What marking did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marked {
    /// How many rows changed.
    pub changed: u64,
    /// The transaction that marked, where the store has snapshots: one that can't insert rows.
    pub transaction: Option<u64>,
}

/// An outcome to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Settlement {
    /// Some routes confirmed; these are left. The status stays.
    Progress {
        /// The row.
        id: RowId,
        /// Routes still to be confirmed.
        outstanding: Vec<RouteKey>,
    },
    /// To be tried again: status `failed`.
    Retry {
        /// The row.
        id: RowId,
        /// Due this long from now.
        due_in: Duration,
        /// Whether `attempts` grows by one.
        counted: bool,
        /// The reason; cut to 512 bytes by the caller.
        error: String,
        /// Routes still to be confirmed, if that changed.
        outstanding: Option<Vec<RouteKey>>,
    },
    /// Never again: status `invalid`.
    Invalid {
        /// The row.
        id: RowId,
        /// Whether `attempts` grows by one.
        counted: bool,
        /// The reason; cut to 512 bytes by the caller.
        error: String,
        /// Routes that did not confirm, if some did.
        outstanding: Option<Vec<RouteKey>>,
    },
    /// Left alone, with a note in `last_error` that says why.
    Note {
        /// The row.
        id: RowId,
        /// The reason; cut to 512 bytes by the caller.
        error: String,
    },
}

impl Settlement {
    /// The row.
    #[must_use]
    pub fn id(&self) -> RowId {
        match self {
            Settlement::Progress { id, .. }
            | Settlement::Retry { id, .. }
            | Settlement::Invalid { id, .. }
            | Settlement::Note { id, .. } => *id,
        }
    }
}

/// What became of a settlement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// Recorded.
    Done,
    /// The row is published or gone: nothing was changed.
    Stale,
}
