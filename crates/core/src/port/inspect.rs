//! Looking at an outbox: counts, lists, one row.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Result, Row, RowId, Seq, Status};

/// Reads for people and for metrics. Never changes anything, never loads a body except in `get`.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// Counts by status and the age of the oldest row that is still to be delivered.
    ///
    /// # Contract
    /// - I1 Bounded work: a count that would have to scan a large history is an estimate and says so.
    async fn status(&self) -> Result<OutboxStatus>;

    /// Rows that match, oldest first, bodies left out (`Body::Null`).
    ///
    /// # Contract
    /// - I2 Rows come in ascending `seq`; the last row's `seq` is the cursor of the next page.
    async fn list(&self, filter: &Filter, after: Seq, limit: u32) -> Result<Vec<Row>>;

    /// One row with its body.
    async fn get(&self, id: RowId) -> Result<Option<Row>>;

    /// The first undelivered row that comes before `row` in its ordering key, body left out.
    async fn predecessor(&self, row: &Row) -> Result<Option<Row>>;

    /// What the database is, and what it does not allow here.
    async fn access(&self) -> Result<Access>;
}

/// What a database is, and what it allows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// The product and its version.
    pub server: String,
    /// What writers and relays need and this user may not do; empty when all is well.
    pub lacking: Vec<String>,
}

/// Which rows; every member that is set must match.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// The status.
    pub status: Option<Status>,
    /// The type, `*` standing for any characters.
    pub event_type: Option<String>,
    /// The ordering key.
    pub key: Option<String>,
    /// The tenant.
    pub tenant: Option<String>,
}

/// An outbox at a glance.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OutboxStatus {
    /// Rows to be delivered.
    pub pending: u64,
    /// Rows claimed.
    pub processing: u64,
    /// Rows to be delivered again.
    pub failed: u64,
    /// Rows delivered and still kept.
    pub published: u64,
    /// Dead letters.
    pub invalid: u64,
    /// Whether `published` is an estimate.
    pub published_is_estimate: bool,
    /// Age of the oldest row still to be delivered.
    pub oldest_pending: Option<Duration>,
    /// Types of rows that a relay has left alone because no route of its matches them.
    pub deferred_types: Vec<String>,
    /// Who pumps it.
    pub relays: Vec<RelayInfo>,
}

/// A relay that holds lanes.
#[derive(Clone, PartialEq, Debug)]
pub struct RelayInfo {
    /// Its name.
    pub name: String,
    /// How many lanes it owns.
    pub lanes: u32,
    /// When its lease ends unless renewed; `None` for a lock that ends with its process.
    pub expires_in: Option<Duration>,
}
