//! The scene of a case: a migrated outbox, and short forms for what most cases do with one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use posthaste_core::{
    Event, LANES, Lane, OutboxName, Row, RowId, Seq, Timestamp,
    port::{By, Enqueued, Page, ReadRequest, Settled, Settlement, Store},
};

use super::{Place, StoreHarness, WriterTx};
use crate::mark_ids;

/// How long published rows are kept unless a case says otherwise.
const RETENTION: Duration = Duration::from_secs(86_400);

/// What a case plays with.
pub struct Scene {
    /// The store under test; its schema is current.
    pub store: Arc<dyn Store>,
    /// Where it lives.
    pub place: Arc<dyn Place>,
    /// Its name.
    pub outbox: OutboxName,
    harness: Arc<dyn StoreHarness>,
    places: Places,
}

/// Every place that a case has used.
#[derive(Clone, Default)]
pub(super) struct Places(Arc<Mutex<Vec<Arc<dyn Place>>>>);

impl Places {
    fn add(&self, place: &Arc<dyn Place>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(place));
    }

    /// Tears down all, and checks that nothing is left.
    pub(super) async fn teardown(self) {
        let places = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for place in places {
            place.teardown().await;
            assert_eq!(place.leftovers().await, Vec::<String>::new(), "left behind");
        }
    }
}

impl Scene {
    pub(super) async fn set(harness: Arc<dyn StoreHarness>, places: Places) -> Scene {
        Scene::build(harness, places, random_name("suite"), true).await
    }

    /// A second scene, of another outbox in the same kind of place; torn down with this one.
    pub(super) async fn another(&self, outbox: OutboxName) -> Scene {
        Scene::build(Arc::clone(&self.harness), self.places.clone(), outbox, true).await
    }

    /// The same without a schema.
    pub(super) async fn bare(&self) -> Scene {
        let (harness, places) = (Arc::clone(&self.harness), self.places.clone());
        Scene::build(harness, places, random_name("bare"), false).await
    }

    async fn build(harness: Arc<dyn StoreHarness>, places: Places, outbox: OutboxName, migrated: bool) -> Scene {
        let place = harness.place(outbox.clone()).await;
        places.add(&place);
        let store = place.open(RETENTION);
        if migrated {
            store.migrate().await.expect("migrate");
        }
        Scene { store, place, outbox, harness, places }
    }

    pub(super) fn facts(&self) -> super::Facts {
        self.harness.facts()
    }

    /// Another store object on the same outbox.
    pub(super) fn reopen(&self) -> Arc<dyn Store> {
        self.place.open(RETENTION)
    }

    /// The table, quoted.
    pub(super) fn table(&self) -> String {
        format!("\"{}\"", self.outbox.table())
    }

    /// Runs statements in which `$t` stands for the table.
    pub(super) async fn sql(&self, statements: &str) -> Vec<Vec<Option<String>>> {
        let statements = statements.replace("$t", &self.table());
        self.place.sql(&statements).await.unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    pub(super) async fn begin(&self) -> Box<dyn WriterTx> {
        self.place.begin().await
    }

    /// Enqueues `events` in one transaction and commits it.
    pub(super) async fn commit(&self, events: &[Event]) -> Vec<Enqueued> {
        let mut tx = self.begin().await;
        let receipt = tx.enqueue(events).await.expect("enqueue");
        tx.commit().await;
        receipt.rows().to_vec()
    }

    /// The same for one event; its id.
    pub(super) async fn commit_one(&self, event: Event) -> RowId {
        self.commit(&[event]).await[0].id
    }

    /// Writes rows of these lanes with this body by a plain INSERT, in this order.
    pub(super) async fn insert(&self, lanes: &[u8], body: &[u8]) {
        let body = self.place.literal(body);
        let values: Vec<String> = lanes.iter().map(|lane| format!("('plain', {body}, {lane})")).collect();
        self.sql(&format!("INSERT INTO $t (type, body, lane) VALUES {}", values.join(", "))).await;
    }

    pub(super) async fn page(&self, request: ReadRequest) -> Page {
        self.store.read(request).await.expect("read")
    }

    /// Everything that is still to be delivered, in the order of `seq`.
    pub(super) async fn undelivered(&self) -> Vec<Row> {
        let page = self.page(everything()).await;
        assert!(page.more.is_empty(), "all rows fit this page: {:?}", page.more);
        let mut rows = page.rows;
        rows.sort_by_key(|row| row.seq);
        rows
    }

    /// The `seq` of every row that is still to be delivered, as the table itself says.
    pub(super) async fn truth(&self) -> Vec<Seq> {
        let undelivered = "status IN ('pending', 'processing', 'failed')";
        let rows = self.sql(&format!("SELECT seq FROM $t WHERE {undelivered} ORDER BY seq")).await;
        rows.iter().flatten().flatten().map(|seq| seq.parse().expect("a number")).collect()
    }

    /// The database's clock.
    pub(super) async fn now(&self) -> Timestamp {
        self.page(everything()).await.now
    }

    pub(super) async fn find(&self, id: RowId) -> Option<Row> {
        self.store.get(id).await.expect("get")
    }

    pub(super) async fn get(&self, id: RowId) -> Row {
        self.find(id).await.unwrap_or_else(|| panic!("row {id} is gone"))
    }

    pub(super) async fn seq(&self, id: RowId) -> Seq {
        self.get(id).await.seq
    }

    pub(super) async fn mark(&self, ids: &[RowId]) -> u64 {
        mark_ids(self.store.as_ref(), ids).await.expect("mark").changed
    }

    pub(super) async fn settle(&self, settlements: &[Settlement]) -> Vec<Settled> {
        self.store.settle(settlements).await.expect("settle")
    }

    /// Makes a dead letter of the row.
    pub(super) async fn invalidate(&self, id: RowId) {
        let dead = Settlement::Invalid { id, counted: true, error: "permanent: refused".to_owned(), outstanding: None };
        assert_eq!(self.settle(&[dead]).await, [Settled::Done]);
    }

    /// Makes the row `failed`, due in an hour.
    pub(super) async fn fail(&self, id: RowId) {
        assert_eq!(self.settle(&[retry(id, 3600)]).await, [Settled::Done]);
    }

    /// Makes the row `processing`.
    pub(super) async fn claim(&self, id: RowId) {
        let seq = self.seq(id).await;
        self.sql(&format!("UPDATE $t SET status = 'processing' WHERE seq = {seq}")).await;
    }
}

/// A name that no other run uses, and that fits any prefix of up to 23 bytes.
pub(super) fn random_name(prefix: &str) -> OutboxName {
    let unique = RowId::generate().uuid().simple().to_string();
    // The last 16 digits of a version 7 UUID are random but for two bits.
    format!("{prefix}-{}", &unique[16..]).parse().expect("a valid name")
}

/// An event of this type with a small JSON body.
pub(super) fn event(event_type: &str) -> Event {
    Event::new(event_type, "application/json", r#"{"n":1}"#)
}

/// An event whose body is `n`.
pub(super) fn numbered(n: usize) -> Event {
    Event::new("numbered", "application/json", n.to_string())
}

/// An event with exactly these bytes.
pub(super) fn blob(body: impl Into<Bytes>) -> Event {
    Event::new("blob", "application/octet-stream", body)
}

/// A counted failure that is due again after so many seconds.
pub(super) fn retry(id: RowId, seconds: u64) -> Settlement {
    Settlement::Retry {
        id,
        due_in: Duration::from_secs(seconds),
        counted: true,
        error: "unknown: 500".to_owned(),
        outstanding: None,
    }
}

pub(super) fn lane(number: u8) -> Lane {
    Lane::new(number).expect("a lane")
}

/// All lanes from the start, with room for everything that a case writes.
pub(super) fn everything() -> ReadRequest {
    ReadRequest {
        from: (0..LANES).map(|number| (lane(number), 0)).collect(),
        per_lane: 10_000,
        max_rows: 100_000,
        max_bytes: 1 << 30,
        max_body: 64 << 20,
    }
}

/// The operator of the suite.
pub(super) fn by() -> By {
    By { who: "olga@ops".to_owned(), why: "it's \"fixed\"".to_owned() }
}
