//! The database is stopped, is killed, hangs, or refuses.

use std::{sync::Arc, time::Duration};

use posthaste::{
    RelayHandle, Settings,
    port::{Inspect as _, Produce as _},
};
use posthaste_store_postgres::{PostgresStore, Settings as StoreSettings};
use posthaste_testkit::{
    server::{Cluster, Server},
    service,
    wait::eventually,
};
use tokio::time::Instant;

use crate::{
    bench::{Bench, PATIENCE, event, events},
    desk::{Desk, Plan, says, until_health},
    own,
    queue::{Queue, copies, numbers},
    witness,
};

/// Notices soon that a database keeps silent.
fn impatient() -> StoreSettings {
    StoreSettings {
        connect_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(1),
        keep_alive: Duration::from_millis(300),
        ..StoreSettings::default()
    }
}

async fn bench(postgres: &Server<Cluster>) -> Option<Bench> {
    Some(Bench::with(&postgres.url(), &service::rabbitmq()?, impatient()).await)
}

async fn until_lost(relay: &RelayHandle) {
    until_health(relay, "the outbox is lost", |health| !health.recovers() && !health.reasons().is_empty()).await;
}

async fn until_well(relay: &RelayHandle) {
    until_health(relay, "all is well", |health| health.recovers() && health.reasons().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_035_a_database_that_was_stopped_is_waited_for_quietly() {
    let Some(mut postgres) = own::postgres().await else { return };
    let Some(bench) = bench(&postgres).await else { return };
    let relay = bench.relay(Settings::default());
    let keyed = |n: usize| event(n).key(format!("key {}", n % 3));
    bench.enqueue(&(0..300).map(keyed).collect::<Vec<_>>()).await;
    let mut received = bench.receive(100).await;
    postgres.stop().await;
    let (down, said) = (Instant::now(), witness::warnings(&bench.outbox).len());
    until_lost(&relay).await;
    until_health(&relay, "the listener is missed", |health| says(health, "wake-up connection is down")).await;
    until_health(&relay, "the status is missed", |health| says(health, "status can't be read")).await;
    postgres.start_again().await;
    let said = witness::warnings(&bench.outbox).len() - said;
    let most = 10 + 2 * usize::try_from(down.elapsed().as_secs()).unwrap();
    assert!(said <= most, "{said} warnings in {:?}", down.elapsed());
    let late = [keyed(300)];
    eventually(PATIENCE, "the database takes events", async || bench.store.produce(&late).await.is_ok()).await;
    received.extend(bench.queue.receive_distinct(301 - copies(&received).len()).await);
    bench.until("all are published", |status| status.published >= 301 && status.pending == 0).await;
    assert_in_order(&numbers(&received));
    until_well(&relay).await;
    relay.stop().await;
    bench.queue.delete().await;
}

/// A copy may come late; the first copies of a key come in its order.
fn assert_in_order(arrived: &[usize]) {
    for key in 0..3 {
        let mut seen = std::collections::HashSet::new();
        let of_key: Vec<usize> = arrived.iter().copied().filter(|n| n % 3 == key && seen.insert(*n)).collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r45_a_database_that_is_killed_loses_nothing_that_was_committed() {
    let Some(mut postgres) = own::postgres().await else { return };
    let Some(bench) = bench(&postgres).await else { return };
    let relay = bench.relay(Settings::default());
    let mut committed = Vec::new();
    for round in 0..2 {
        let writing = async {
            for n in round * 10_000.. {
                // Whether the last one was committed, nobody knows.
                let Ok(rows) = bench.store.produce(&[event(n)]).await else { return };
                committed.extend(rows.iter().map(|row| (n, row.id)));
            }
        };
        let killing = async {
            bench.queue.receive(100).await;
            postgres.kill9();
        };
        tokio::join!(writing, killing);
        until_lost(&relay).await;
        postgres.start_again().await;
        until_well(&relay).await;
    }
    bench.until("everything is settled", |status| status.pending + status.failed == 0).await;
    relay.stop().await;
    let published = bench.status().await.published;
    assert!(published >= committed.len() as u64, "{published} of {} committed", committed.len());
    let client = crate::desk::connect(&bench.postgres).await;
    let unpublished = format!(r#"SELECT count(*) FROM "{}" WHERE status <> 'published'"#, bench.outbox.table());
    assert_eq!(client.query_one(&unpublished, &[]).await.unwrap().get::<_, i64>(0), 0);
    bench.queue.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_hangs_is_given_up_and_taken_again() {
    let Some(postgres) = own::postgres().await else { return };
    let Some(bench) = bench(&postgres).await else { return };
    let relay = bench.relay(Settings::default());
    bench.enqueue(&events(0..20)).await;
    bench.receive(20).await;
    bench.until_published(20).await;
    postgres.pause();
    until_lost(&relay).await;
    until_health(&relay, "the listener is missed", |health| says(health, "wake-up connection is down")).await;
    let store = PostgresStore::new(&bench.postgres, bench.outbox.clone(), impatient()).unwrap();
    assert!(store.status().await.is_err());
    postgres.resume();
    until_well(&relay).await;
    bench.enqueue(&events(20..40)).await;
    let mut arrived = numbers(&bench.queue.receive_distinct(20).await);
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived, (20..40).collect::<Vec<_>>());
    bench.until_published(40).await;
    relay.stop().await;
    bench.queue.delete().await;
}

/// An outbox, a queue, and a relay whose rights can be taken away.
struct Limited {
    desk: Desk,
    queue: Queue,
    relay: RelayHandle,
}

impl Limited {
    async fn new(postgres: &Server<Cluster>, settings: Settings) -> Option<Limited> {
        let desk = Desk::on(&postgres.url(), StoreSettings::default()).await;
        let queue = Queue::new().await?;
        desk.sql(r#"CREATE ROLE "{t}" LOGIN; GRANT SELECT, UPDATE, DELETE ON "{t}" TO "{t}""#).await;
        let url = postgres.url().replace("postgres@", &format!("{}@", desk.outbox.table()));
        let store = Arc::new(PostgresStore::new(&url, desk.outbox.clone(), StoreSettings::default()).unwrap());
        let relay = Plan::all_to(queue.target()).start(&desk.outbox, store, settings);
        Some(Limited { desk, queue, relay })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r31_what_cannot_be_marked_is_not_sent_again() {
    let Some(postgres) = own::postgres().await else { return };
    let settings = Settings { interval: Duration::from_millis(200), ..Settings::default() };
    let Some(Limited { desk, queue, relay }) = Limited::new(&postgres, settings).await else { return };
    desk.sql(r#"REVOKE UPDATE ON "{t}" FROM "{t}""#).await;
    desk.enqueue(&events(0..50)).await;
    until_health(&relay, "all are confirmed", |health| health.outboxes[0].progress.unmarked == 50).await;
    let passes = relay.progress()[0].1.borrow().passes;
    until_health(&relay, "they were read again", |health| health.outboxes[0].progress.passes > passes + 3).await;
    assert_eq!(queue.queued().await, 50, "sent again for want of a mark");
    assert_eq!(desk.status().await.pending, 50);
    assert!(witness::warnings(&desk.outbox).iter().any(|text| text.contains("permission denied")), "nobody is told");
    desk.sql(r#"GRANT UPDATE ON "{t}" TO "{t}""#).await;
    desk.until_published(50).await;
    relay.stop().await;
    assert_eq!((queue.queued().await, desk.attempts().await), (50, 0));
    queue.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_150_counts_that_cannot_be_read_are_not_shown_as_zero() {
    let Some(postgres) = own::postgres().await else { return };
    let Some(Limited { desk, queue, relay }) = Limited::new(&postgres, Settings::default()).await else { return };
    until_well(&relay).await;
    eventually(PATIENCE, "the counts are known", async || {
        witness::gauge("posthaste_oldest_pending_seconds", &desk.outbox) == 0.0
    })
    .await;
    desk.sql(r#"REVOKE SELECT ON "{t}" FROM "{t}""#).await;
    until_health(&relay, "the status is missed", |health| says(health, "status can't be read")).await;
    assert!(witness::gauge("posthaste_oldest_pending_seconds", &desk.outbox).is_nan());
    assert!(witness::counted("posthaste_read_errors_total", &desk.outbox, "") > 0);
    assert_eq!(witness::gauge("posthaste_lanes_owned", &desk.outbox), 128.0, "another figure is hidden as well");
    desk.enqueue(&[event(0)]).await;
    desk.sql(r#"GRANT SELECT ON "{t}" TO "{t}""#).await;
    queue.receive(1).await;
    until_well(&relay).await;
    relay.stop().await;
    queue.delete().await;
}
