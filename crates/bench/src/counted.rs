//! A store that counts the statements that a pump asks of it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use async_trait::async_trait;
use posthaste_core::{
    Event, Result, Row, RowId, RowRef, Seq,
    port::{
        Access, Armed, By, EnqueueError, Enqueued, Filter, Held, Hold, Inspect, Lanes, Marked, Operate, OperateReport,
        OutboxStatus, Page, Produce, PruneRequest, ReadRequest, Schema, SchemaState, Selection, Settled, Settlement,
        Store, Wake, Wakeups,
    },
};

/// How often each was asked for.
#[derive(Default)]
pub(crate) struct Statements {
    pub(crate) reads: AtomicU64,
    pub(crate) marks: AtomicU64,
    pub(crate) settlements: AtomicU64,
    /// Wake-ups asked for, or called off.
    pub(crate) wakeups: AtomicU64,
}

impl Statements {
    pub(crate) fn all(&self) -> u64 {
        [&self.reads, &self.marks, &self.settlements, &self.wakeups].into_iter().map(|count| count.load(Relaxed)).sum()
    }
}

/// A store, counted.
pub(crate) struct Counted {
    inner: Arc<dyn Store>,
    statements: Arc<Statements>,
}

impl Counted {
    pub(crate) fn around(inner: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Statements>) {
        let statements = Arc::<Statements>::default();
        (Arc::new(Counted { inner, statements: statements.clone() }), statements)
    }
}

struct CountedWakeups {
    inner: Arc<dyn Wakeups>,
    statements: Arc<Statements>,
}

#[async_trait]
impl Wakeups for CountedWakeups {
    async fn arm(&self) -> Result<Armed> {
        self.statements.wakeups.fetch_add(1, Relaxed);
        self.inner.arm().await
    }

    async fn disarm(&self) -> Result<()> {
        self.statements.wakeups.fetch_add(1, Relaxed);
        self.inner.disarm().await
    }

    async fn next(&self) -> Wake {
        self.inner.next().await
    }
}

#[async_trait]
impl Lanes for Counted {
    async fn read(&self, request: ReadRequest) -> Result<Page> {
        self.statements.reads.fetch_add(1, Relaxed);
        self.inner.read(request).await
    }

    async fn mark(&self, rows: &[RowRef]) -> Result<Marked> {
        self.statements.marks.fetch_add(1, Relaxed);
        self.inner.mark(rows).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.statements.settlements.fetch_add(1, Relaxed);
        self.inner.settle(settlements).await
    }

    fn wakeups(&self) -> Arc<dyn Wakeups> {
        Arc::new(CountedWakeups { inner: self.inner.wakeups(), statements: self.statements.clone() })
    }
}

#[async_trait]
impl Hold for Counted {
    async fn try_hold(&self, name: &str) -> Result<Option<Box<dyn Held>>> {
        self.inner.try_hold(name).await
    }
}

#[async_trait]
impl Inspect for Counted {
    async fn status(&self) -> Result<OutboxStatus> {
        self.inner.status().await
    }

    async fn list(&self, filter: &Filter, after: Seq, limit: u32) -> Result<Vec<Row>> {
        self.inner.list(filter, after, limit).await
    }

    async fn get(&self, id: RowId) -> Result<Option<Row>> {
        self.inner.get(id).await
    }

    async fn predecessor(&self, row: &Row) -> Result<Option<Row>> {
        self.inner.predecessor(row).await
    }

    async fn access(&self) -> Result<Access> {
        self.inner.access().await
    }
}

#[async_trait]
impl Operate for Counted {
    async fn retry(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport> {
        self.inner.retry(selection, by, limit).await
    }

    async fn discard(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport> {
        self.inner.discard(selection, by, limit).await
    }

    async fn count(&self, selection: &Selection) -> Result<u64> {
        self.inner.count(selection).await
    }

    async fn prune(&self, request: &PruneRequest, limit: u32) -> Result<u64> {
        self.inner.prune(request, limit).await
    }

    async fn count_prunable(&self, request: &PruneRequest) -> Result<u64> {
        self.inner.count_prunable(request).await
    }
}

#[async_trait]
impl Schema for Counted {
    async fn schema(&self) -> Result<SchemaState> {
        self.inner.schema().await
    }

    async fn migrate(&self) -> Result<()> {
        self.inner.migrate().await
    }

    fn sql(&self) -> String {
        self.inner.sql()
    }
}

#[async_trait]
impl Produce for Counted {
    async fn produce(&self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        self.inner.produce(events).await
    }
}
