//! The same over SQLite: one file, one writer at a time.

use std::{sync::Arc, time::Duration};

use posthaste::{
    Event, OutboxName, RelayHandle, Settings,
    port::{EnqueueError, Inspect as _, OutboxStatus, Produce as _, Schema as _},
};
use posthaste_store_sqlite::SqliteStore;
use posthaste_testkit::{service, wait::eventually};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{
    bench::{PATIENCE, event, events},
    desk::{Plan, until_health},
    queue::{Queue, copies, numbers},
};

/// A database file and a queue, both of a test's own.
struct Shop {
    directory: TempDir,
    outbox: OutboxName,
    store: Arc<SqliteStore>,
    queue: Queue,
}

impl Shop {
    async fn new() -> Option<Shop> {
        Shop::with_retention(Duration::from_secs(86_400)).await
    }

    async fn with_retention(retention: Duration) -> Option<Shop> {
        let queue = Queue::new().await?;
        let (directory, outbox) = (tempfile::tempdir().unwrap(), service::outbox_name());
        let url = format!("sqlite:{}", directory.path().join("shop.db").display());
        let store = Arc::new(SqliteStore::new(&url, &outbox).unwrap().with_retention(retention));
        store.migrate().await.unwrap();
        Some(Shop { directory, outbox, store, queue })
    }

    fn relay(&self, settings: Settings) -> RelayHandle {
        Plan::all_to(self.queue.target()).start(&self.outbox, Arc::clone(&self.store) as _, settings)
    }

    /// A connection of the application's own.
    fn connect(&self) -> Connection {
        let connection = Connection::open(self.directory.path().join("shop.db")).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }

    async fn until(&self, what: &str, wanted: impl Fn(&OutboxStatus) -> bool) {
        eventually(PATIENCE, what, || async { wanted(&self.store.status().await.unwrap()) }).await;
    }
}

fn rare() -> Settings {
    Settings { interval: Duration::from_secs(3600), ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r33_every_event_arrives_once_and_is_marked() {
    let Some(shop) = Shop::new().await else { return };
    let relay = shop.relay(Settings::default());
    shop.store.produce(&events(0..1000)).await.unwrap();
    let received = shop.queue.receive(1000).await;
    shop.until("all are marked", |status| (status.published, status.pending) == (1000, 0)).await;
    assert_eq!(copies(&received).len(), 1000);
    relay.stop().await;
    assert_eq!(shop.queue.queued().await, 0, "sent more than once");
    shop.queue.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_009_each_key_keeps_its_order() {
    let Some(shop) = Shop::new().await else { return };
    let relay = shop.relay(Settings::default());
    let keyed: Vec<Event> = (0..1000).map(|n| event(n).key(format!("key {}", n % 10))).collect();
    for chunk in keyed.chunks(50) {
        shop.store.produce(chunk).await.unwrap();
    }
    let arrived = numbers(&shop.queue.receive(1000).await);
    for key in 0..10 {
        let of_key: Vec<usize> = arrived.iter().copied().filter(|n| n % 10 == key).collect();
        assert!(of_key.is_sorted() && of_key.len() == 100, "key {key}: {of_key:?}");
    }
    relay.stop().await;
    shop.queue.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r21_a_commit_delivers_at_once_and_a_rollback_nothing() {
    let Some(shop) = Shop::new().await else { return };
    let relay = shop.relay(rare());
    until_health(&relay, "the outbox is held", |health| health.recovers()).await;
    let outbox = shop.store.outbox().with_waker(relay.waker(&shop.outbox).unwrap());
    let mut connection = shop.connect();
    for n in 0..20 {
        let refused = outbox.transaction(&mut connection, |tx, outbox| {
            outbox.enqueue(tx, &[event(1000 + n)])?;
            Err::<(), _>(EnqueueError::Store(posthaste::Error::new(posthaste::ErrorKind::Unknown, "changing its mind")))
        });
        assert!(refused.is_err());
        outbox.transaction(&mut connection, |tx, outbox| outbox.enqueue(tx, &[event(n)])).unwrap();
        assert_eq!(numbers(&shop.queue.receive(1).await), [n]);
    }
    shop.until("all are marked", |status| status.published == 20).await;
    relay.stop().await;
    shop.queue.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn product_5_a_change_of_the_file_by_another_connection_wakes_the_relay() {
    let Some(shop) = Shop::new().await else { return };
    let relay = shop.relay(rare());
    until_health(&relay, "the outbox is held", |health| health.recovers()).await;
    let (outbox, mut connection) = (shop.store.outbox(), shop.connect());
    for n in 0..5 {
        outbox.transaction(&mut connection, |tx, outbox| outbox.enqueue(tx, &[event(n)])).unwrap();
        assert_eq!(numbers(&shop.queue.receive(1).await), [n]);
    }
    relay.stop().await;
    shop.queue.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_13_without_retention_published_rows_go_but_for_the_highest() {
    let Some(shop) = Shop::with_retention(Duration::ZERO).await else { return };
    let relay = shop.relay(Settings { retention: Duration::ZERO, ..Settings::default() });
    for round in 0..3 {
        shop.store.produce(&events(round * 100..(round + 1) * 100)).await.unwrap();
        let mut arrived = numbers(&shop.queue.receive(100).await);
        arrived.sort_unstable();
        assert_eq!(arrived, (round * 100..(round + 1) * 100).collect::<Vec<_>>());
        shop.until("only the highest is left", |status| status.pending == 0 && status.published <= 1).await;
    }
    relay.stop().await;
    assert_eq!(shop.queue.queued().await, 0, "sent more than once");
    shop.queue.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r46_old_published_rows_go_and_undelivered_ones_never_do() {
    let Some(shop) = Shop::new().await else { return };
    let relay = shop.relay(Settings { retention: Duration::from_millis(1), ..Settings::default() });
    shop.store.produce(&events(0..200)).await.unwrap();
    let delayed: Vec<Event> = (200..210).map(|n| event(n).delay(Duration::from_secs(3600))).collect();
    shop.store.produce(&delayed).await.unwrap();
    shop.queue.receive(200).await;
    shop.until("the old ones are gone", |status| (status.pending, status.published) == (10, 0)).await;
    relay.stop().await;
    shop.queue.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_writer_delays_marks_and_loses_nothing() {
    let Some(shop) = Shop::new().await else { return };
    let relay = shop.relay(Settings { interval: Duration::from_millis(200), ..Settings::default() });
    shop.store.produce(&events(0..50)).await.unwrap();
    let blocker = shop.connect();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    shop.queue.receive_distinct(50).await;
    let passes = relay.progress()[0].1.borrow().passes;
    until_health(&relay, "they were read again", |health| health.outboxes[0].progress.passes > passes + 3).await;
    blocker.execute_batch("COMMIT").unwrap();
    shop.until("all are marked", |status| (status.published, status.pending) == (50, 0)).await;
    relay.stop().await;
    assert_eq!(shop.queue.queued().await, 0, "sent again for want of a mark");
    shop.queue.delete().await;
}
