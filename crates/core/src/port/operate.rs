//! Repairing an outbox: retry, discard, prune.

use std::time::Duration;

use async_trait::async_trait;

use super::Filter;
use crate::{Result, RowId, Status};

/// Changes that an operator asks for.
#[async_trait]
pub trait Operate: Send + Sync {
    /// Makes undelivered and `invalid` rows due now, with no attempts counted.
    ///
    /// # Contract
    /// - O1 At most `limit` rows a call; answers how many match in all and how many changed.
    /// - O2 Never touches a row that is `processing` or `published`.
    /// - O3 Who and why is recorded in the same transaction.
    /// - O4 An `invalid` row takes a new place at the end of its outbox; others keep theirs.
    async fn retry(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport>;

    /// Deletes undelivered or `invalid` rows for good; O1 to O3 hold.
    async fn discard(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport>;

    /// How many rows `retry` or `discard` would change.
    async fn count(&self, selection: &Selection) -> Result<u64>;

    /// Deletes at most `limit` old rows, in the order of `seq`, in one short transaction, skipping
    /// rows that are locked. Answers how many; fewer than `limit` means that none are left.
    ///
    /// # Contract
    /// - P1 Never deletes an undelivered row.
    /// - P2 Never deletes the row with the highest `seq`, where the store would use it again.
    async fn prune(&self, request: &PruneRequest, limit: u32) -> Result<u64>;

    /// How many rows `prune` would delete.
    async fn count_prunable(&self, request: &PruneRequest) -> Result<u64>;
}

/// Which rows to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// These.
    Ids(Vec<RowId>),
    /// All that match.
    Matching(Filter),
}

/// Who changes rows, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct By {
    /// The operator.
    pub who: String,
    /// The reason given.
    pub why: String,
}

/// What was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperateReport {
    /// Rows that matched and could be changed.
    pub matched: u64,
    /// Rows changed by this call.
    pub changed: u64,
}

/// Which rows are old.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PruneRequest {
    /// `published` (by `published_at`) or `invalid` (by `created_at`).
    pub status: Status,
    /// Older than this by the database's clock.
    pub older_than: Duration,
}
