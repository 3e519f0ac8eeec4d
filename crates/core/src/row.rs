//! A row: one event in an outbox, with its delivery state.

use std::{collections::BTreeMap, fmt, str::FromStr};

use bytes::Bytes;

use crate::{Lane, RouteKey, RowId, Timestamp};

/// The order in which the database took the rows of an outbox.
pub type Seq = i64;

/// A row as the relay speaks of it to its store: the id together with the place, since a row that an
/// operator discards may come again under its id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowRef {
    /// Its place in the outbox.
    pub seq: Seq,
    /// Its lane.
    pub lane: Lane,
    /// Its id.
    pub id: RowId,
}

/// The delivery state of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Status {
    /// To be delivered.
    Pending,
    /// Claimed by a relay; occurs only under the claims strategy.
    Processing,
    /// Confirmed by every route.
    Published,
    /// To be delivered again after a counted failure.
    Failed,
    /// A dead letter: kept with its reason, never delivered again unless an operator says so.
    Invalid,
}

impl Status {
    /// All of them, in the order of a row's life.
    pub const ALL: [Status; 5] =
        [Status::Pending, Status::Processing, Status::Failed, Status::Published, Status::Invalid];

    /// The word in the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Processing => "processing",
            Status::Published => "published",
            Status::Failed => "failed",
            Status::Invalid => "invalid",
        }
    }

    /// Whether the row is still to be delivered.
    #[must_use]
    pub const fn is_undelivered(self) -> bool {
        matches!(self, Status::Pending | Status::Processing | Status::Failed)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Status, String> {
        Status::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no status: pending, processing, failed, published or invalid"))
    }
}

/// The body of a row as a relay reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// SQL NULL: a tombstone where the target knows one, else an empty body that says so.
    Null,
    /// The exact bytes.
    Bytes(Bytes),
    /// Larger than the relay's `max_body`; left unread. The size in bytes.
    TooLarge(u64),
}

impl Body {
    /// The bytes held in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Null | Body::TooLarge(_) => 0,
        }
    }

    /// Whether no byte is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One event in an outbox, as a relay reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Identifies the event.
    pub id: RowId,
    /// Its place in the outbox.
    pub seq: Seq,
    /// Which replica pumps it.
    pub lane: Lane,
    /// `order.placed`.
    pub event_type: String,
    /// Equal keys are delivered in order.
    pub key: Option<String>,
    /// The tenant it belongs to.
    pub tenant: Option<String>,
    /// Used by the claims strategy only.
    pub priority: i32,
    /// The user's headers, and the trace context (`traceparent`, `tracestate`).
    pub headers: BTreeMap<String, String>,
    /// The media type of the body.
    pub content_type: String,
    /// The body.
    pub body: Body,
    /// Not delivered before this instant of the database's clock.
    pub due_at: Timestamp,
    /// Its delivery state.
    pub status: Status,
    /// Counted failures so far.
    pub attempts: u32,
    /// The reason of the last failure.
    pub last_error: Option<String>,
    /// Routes still to be confirmed; `None` means all that match when it is published.
    pub outstanding: Option<Vec<RouteKey>>,
    /// When the database took it.
    pub created_at: Timestamp,
    /// When its last route confirmed it.
    pub published_at: Option<Timestamp>,
    /// Why the row can't be delivered as it stands (a plain INSERT may hold anything), if so.
    pub defect: Option<String>,
}

impl Row {
    /// What the store is told to speak of it.
    #[must_use]
    pub fn reference(&self) -> RowRef {
        RowRef { seq: self.seq, lane: self.lane, id: self.id }
    }

    /// What the row costs a memory budget: its body and an allowance for the rest.
    #[must_use]
    pub fn weight(&self) -> usize {
        const OVERHEAD: usize = 512;
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        OVERHEAD + headers + self.body.len()
    }
}
