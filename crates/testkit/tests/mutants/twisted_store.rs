//! A store that is right but for one twist.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_core::{
    Event, OutboxName, Result, Row, RowId, RowRef, Seq,
    port::{
        Access, Armed, By, EnqueueError, Enqueued, Filter, Held, Hold, Inspect, Lanes, Marked, Operate, OperateReport,
        OutboxStatus, Page, Produce, PruneRequest, ReadRequest, Receipt, Schema, SchemaState, Selection, Settled,
        Settlement, Store, Wake, Wakeups,
    },
};
use posthaste_testkit::suite::store::{Facts, Place, StoreHarness, WriterTx};

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Mark,
    Settle,
    Retry,
    Discard,
    Prune,
    Migrate,
}

pub type Written = Result<Vec<Enqueued>, EnqueueError>;
pub type MaybeHeld = Option<Box<dyn Held>>;

/// What is wrong with the store; nothing by default.
#[derive(Clone, Copy)]
pub struct Twist {
    pub request: fn(ReadRequest) -> ReadRequest,
    pub page: fn(&ReadRequest, Page) -> Page,
    pub retention: fn(Duration) -> Duration,
    pub marks: fn(&[RowRef]) -> Vec<RowRef>,
    pub marked: fn(Marked) -> Marked,
    pub settlement: fn(Settlement) -> Settlement,
    pub settled: fn(Vec<Settled>) -> Vec<Settled>,
    pub events: fn(&[Event]) -> &[Event],
    pub enqueued: fn(&[Event], Written) -> Written,
    pub after_enqueue: Option<&'static str>,
    pub one_by_one: bool,
    pub filter: fn(Filter) -> Filter,
    pub list: fn(Vec<Row>) -> Vec<Row>,
    pub status: fn(OutboxStatus) -> OutboxStatus,
    pub access: fn(Access) -> Access,
    pub row: fn(Option<Row>) -> Option<Row>,
    pub predecessor: fn(Option<Row>) -> Option<Row>,
    pub limit: fn(u32) -> u32,
    pub report: fn(OperateReport) -> OperateReport,
    pub count: fn(u64) -> u64,
    pub prunes: fn(PruneRequest) -> PruneRequest,
    pub migrated: fn(Result<()>) -> Result<()>,
    pub schema: fn(SchemaState) -> SchemaState,
    pub statements: fn(String) -> String,
    pub held: fn(MaybeHeld) -> MaybeHeld,
    pub armed: fn(Armed) -> Armed,
    pub sleeps: bool,
    pub before: fn(Call) -> Option<&'static str>,
    pub after: fn(Call) -> Option<&'static str>,
}

impl Default for Twist {
    fn default() -> Twist {
        Twist {
            request: |request| request,
            page: |_, page| page,
            retention: |retention| retention,
            marks: <[RowRef]>::to_vec,
            marked: |marked| marked,
            settlement: |settlement| settlement,
            settled: |settled| settled,
            events: |events| events,
            enqueued: |_, rows| rows,
            after_enqueue: None,
            one_by_one: false,
            filter: |filter| filter,
            list: |rows| rows,
            status: |status| status,
            access: |access| access,
            row: |row| row,
            predecessor: |row| row,
            limit: |limit| limit,
            report: |report| report,
            count: |count| count,
            prunes: |request| request,
            migrated: |result| result,
            schema: |state| state,
            statements: |statements| statements,
            held: |held| held,
            armed: |armed| armed,
            sleeps: false,
            before: |_| None,
            after: |_| None,
        }
    }
}

/// The harness of a right store, twisted.
pub struct Twisted {
    pub right: Arc<dyn StoreHarness>,
    pub twist: Twist,
}

#[async_trait]
impl StoreHarness for Twisted {
    fn name(&self) -> &'static str {
        "twisted"
    }

    fn facts(&self) -> Facts {
        self.right.facts()
    }

    async fn place(&self, outbox: OutboxName) -> Arc<dyn Place> {
        let right = self.right.place(outbox.clone()).await;
        Arc::new(TwistedPlace { right, twist: self.twist, outbox })
    }
}

struct TwistedPlace {
    right: Arc<dyn Place>,
    twist: Twist,
    outbox: OutboxName,
}

#[async_trait]
impl Place for TwistedPlace {
    fn open(&self, retention: Duration) -> Arc<dyn Store> {
        let right = self.right.open((self.twist.retention)(retention));
        let (place, table) = (Arc::clone(&self.right), self.outbox.table());
        Arc::new(TwistedStore { right, place, table, twist: self.twist })
    }

    async fn begin(&self) -> Box<dyn WriterTx> {
        Box::new(TwistedTx { right: self.right.begin().await, twist: self.twist })
    }

    async fn sql(&self, statements: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        self.right.sql(statements).await
    }

    fn literal(&self, bytes: &[u8]) -> String {
        self.right.literal(bytes)
    }

    async fn age(&self, seq: Seq, by: Duration) {
        self.right.age(seq, by).await;
    }

    async fn make_newer(&self) {
        self.right.make_newer().await;
    }

    async fn teardown(&self) {
        self.right.teardown().await;
    }

    async fn leftovers(&self) -> Vec<String> {
        self.right.leftovers().await
    }
}

struct TwistedTx {
    right: Box<dyn WriterTx>,
    twist: Twist,
}

#[async_trait]
impl WriterTx for TwistedTx {
    async fn enqueue(&mut self, events: &[Event]) -> Result<Receipt, EnqueueError> {
        let written = self.right.enqueue((self.twist.events)(events)).await.map(|receipt| receipt.rows().to_vec());
        if let Some(statement) = self.twist.after_enqueue {
            self.right.execute(statement).await.unwrap();
        }
        (self.twist.enqueued)(events, written).map(Receipt::new)
    }

    async fn execute(&mut self, statement: &str) -> Result<(), String> {
        self.right.execute(statement).await
    }

    async fn transaction(&mut self) -> Option<u64> {
        self.right.transaction().await
    }

    async fn commit(self: Box<Self>) {
        self.right.commit().await;
    }

    async fn rollback(self: Box<Self>) {
        self.right.rollback().await;
    }
}

struct TwistedStore {
    right: Arc<dyn Store>,
    place: Arc<dyn Place>,
    table: String,
    twist: Twist,
}

impl TwistedStore {
    async fn run(&self, statement: Option<&str>) {
        if let Some(statement) = statement {
            self.place.sql(&statement.replace("$t", &self.table)).await.unwrap();
        }
    }

    async fn around<T>(&self, call: Call, work: impl Future<Output = T>) -> T {
        self.run((self.twist.before)(call)).await;
        let result = work.await;
        self.run((self.twist.after)(call)).await;
        result
    }

    fn selection(&self, selection: &Selection) -> Selection {
        match selection.clone() {
            Selection::Matching(filter) => Selection::Matching((self.twist.filter)(filter)),
            ids => ids,
        }
    }
}

#[async_trait]
impl Lanes for TwistedStore {
    async fn read(&self, request: ReadRequest) -> Result<Page> {
        let page = self.right.read((self.twist.request)(request.clone())).await?;
        Ok((self.twist.page)(&request, page))
    }

    async fn mark(&self, rows: &[RowRef]) -> Result<Marked> {
        let marked = self.around(Call::Mark, self.right.mark(&(self.twist.marks)(rows))).await?;
        Ok((self.twist.marked)(marked))
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let settlements: Vec<Settlement> = settlements.iter().cloned().map(self.twist.settlement).collect();
        let settled = self.around(Call::Settle, self.right.settle(&settlements)).await?;
        Ok((self.twist.settled)(settled))
    }

    fn wakeups(&self) -> Arc<dyn Wakeups> {
        Arc::new(TwistedWakeups { right: self.right.wakeups(), twist: self.twist })
    }
}

struct TwistedWakeups {
    right: Arc<dyn Wakeups>,
    twist: Twist,
}

#[async_trait]
impl Wakeups for TwistedWakeups {
    async fn arm(&self) -> Result<Armed> {
        self.right.arm().await.map(self.twist.armed)
    }

    async fn disarm(&self) -> Result<()> {
        self.right.disarm().await
    }

    async fn next(&self) -> Wake {
        if self.twist.sleeps {
            std::future::pending::<()>().await;
        }
        self.right.next().await
    }
}

#[async_trait]
impl Hold for TwistedStore {
    async fn try_hold(&self, name: &str) -> Result<Option<Box<dyn Held>>> {
        self.right.try_hold(name).await.map(self.twist.held)
    }
}

#[async_trait]
impl Inspect for TwistedStore {
    async fn status(&self) -> Result<OutboxStatus> {
        self.right.status().await.map(self.twist.status)
    }

    async fn list(&self, filter: &Filter, after: Seq, limit: u32) -> Result<Vec<Row>> {
        let filter = (self.twist.filter)(filter.clone());
        self.right.list(&filter, after, (self.twist.limit)(limit)).await.map(self.twist.list)
    }

    async fn get(&self, id: RowId) -> Result<Option<Row>> {
        self.right.get(id).await.map(self.twist.row)
    }

    async fn predecessor(&self, row: &Row) -> Result<Option<Row>> {
        self.right.predecessor(row).await.map(self.twist.predecessor)
    }

    async fn access(&self) -> Result<Access> {
        self.right.access().await.map(self.twist.access)
    }
}

#[async_trait]
impl Operate for TwistedStore {
    async fn retry(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport> {
        let (selection, limit) = (self.selection(selection), (self.twist.limit)(limit));
        self.around(Call::Retry, self.right.retry(&selection, by, limit)).await.map(self.twist.report)
    }

    async fn discard(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport> {
        let (selection, limit) = (self.selection(selection), (self.twist.limit)(limit));
        self.around(Call::Discard, self.right.discard(&selection, by, limit)).await.map(self.twist.report)
    }

    async fn count(&self, selection: &Selection) -> Result<u64> {
        self.right.count(selection).await.map(self.twist.count)
    }

    async fn prune(&self, request: &PruneRequest, limit: u32) -> Result<u64> {
        let request = (self.twist.prunes)(request.clone());
        self.around(Call::Prune, self.right.prune(&request, (self.twist.limit)(limit))).await
    }

    async fn count_prunable(&self, request: &PruneRequest) -> Result<u64> {
        self.right.count_prunable(request).await.map(self.twist.count)
    }
}

#[async_trait]
impl Schema for TwistedStore {
    async fn schema(&self) -> Result<SchemaState> {
        self.right.schema().await.map(self.twist.schema)
    }

    async fn migrate(&self) -> Result<()> {
        let result = self.right.migrate().await;
        self.run((self.twist.after)(Call::Migrate)).await;
        (self.twist.migrated)(result)
    }

    fn sql(&self) -> String {
        (self.twist.statements)(self.right.sql())
    }
}

#[async_trait]
impl Produce for TwistedStore {
    async fn produce(&self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        if !self.twist.one_by_one {
            return (self.twist.enqueued)(events, self.right.produce(events).await);
        }
        let mut rows = Vec::new();
        for event in events {
            rows.extend(self.right.produce(std::slice::from_ref(event)).await?);
        }
        Ok(rows)
    }
}
