//! Wake-ups and solo ownership, with sessions that are killed.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::{sync::Arc, time::Duration};

use posthaste_core::{
    Event, LaneSet,
    port::{Armed, Hold, Inspect, Operate, Produce, Selection, Wakeups},
    port::{By, Filter, Lanes, Wake},
};
use posthaste_store_postgres::{Outbox, Settings};
use support::{Bench, everything, until};
use tokio::time::timeout;

/// A wake-up that must come.
async fn next(wakeups: &Arc<dyn Wakeups>) -> Wake {
    timeout(Duration::from_secs(30), wakeups.next()).await.expect("a wake-up")
}

/// Whether a wake-up is there already. Notifications of earlier commits come before the answer to
/// a later statement of the same session, so one round trip is all the waiting there is.
async fn silent(wakeups: &Arc<dyn Wakeups>) -> bool {
    wakeups.disarm().await.unwrap();
    wakeups.arm().await.unwrap();
    timeout(Duration::ZERO, wakeups.next()).await.is_err()
}

#[tokio::test]
async fn decision_11_while_armed_every_commit_wakes_and_while_awake_none_does() {
    let Some(bench) = Bench::new().await else { return };
    let wakeups = bench.store.wakeups();
    assert_eq!(wakeups.arm().await.unwrap(), Armed::Yes);
    assert_eq!(wakeups.arm().await.unwrap(), Armed::Yes, "arming twice is free");
    bench.store.produce(&[Event::tombstone("t").key("a")]).await.unwrap();
    let wake = next(&wakeups).await;
    assert_eq!(wake.lanes.iter().map(|lane| lane.number()).collect::<Vec<_>>(), [12]);
    assert!(!wake.rewind && wake.healthy);
    wakeups.disarm().await.unwrap();
    bench.store.produce(&[Event::tombstone("t")]).await.unwrap();
    assert!(silent(&wakeups).await);
    let other = bench.client().await;
    other.batch_execute(&bench.sql(r#"INSERT INTO "{t}" (type) VALUES ('t'), ('u'), ('v'), ('w')"#)).await.unwrap();
    assert!(!next(&wakeups).await.lanes.is_empty(), "armed again");
    bench.end().await;
}

#[tokio::test]
async fn port_w2_a_writer_that_saw_the_relay_awake_keeps_it_awake() {
    let Some(bench) = Bench::new().await else { return };
    let (wakeups, outbox) = (bench.store.wakeups(), Outbox::new(bench.name.clone()));
    wakeups.arm().await.unwrap();
    wakeups.disarm().await.unwrap();
    let mut writer = bench.client().await;
    let mut open = writer.transaction().await.unwrap();
    _ = outbox.enqueue(&mut open, &[Event::tombstone("t")]).await.unwrap();
    assert_eq!(wakeups.arm().await.unwrap(), Armed::WriterUnderWay);
    open.commit().await.unwrap();
    assert_eq!(wakeups.arm().await.unwrap(), Armed::Yes);
    let page = bench.read(everything()).await;
    assert_eq!(page.rows.len(), 1, "the read after arming sees what did not wake");
    assert!(silent(&wakeups).await);
    bench.end().await;
}

#[tokio::test]
async fn decision_11_without_a_relay_and_while_it_sleeps_writers_do_not_wait_for_each_other() {
    let Some(bench) = Bench::new().await else { return };
    let outbox = Outbox::new(bench.name.clone());
    for armed in [false, true] {
        let wakeups = bench.store.wakeups();
        if armed {
            wakeups.arm().await.unwrap();
        }
        let (mut one, mut two) = (bench.client().await, bench.client().await);
        let (mut a, mut b) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
        for tx in [&mut a, &mut b] {
            _ = outbox.enqueue(tx, &[Event::tombstone("t").key("a")]).await.unwrap();
        }
        b.commit().await.unwrap();
        a.commit().await.unwrap();
    }
    bench.end().await;
}

#[tokio::test]
async fn port_w2_of_several_relays_all_that_sleep_are_woken_whoever_wakes_up_first() {
    let Some(bench) = Bench::new().await else { return };
    let relays = [bench.store.wakeups(), bench.store(Settings::default()).wakeups(), bench.store.wakeups()];
    for relay in &relays {
        assert_eq!(relay.arm().await.unwrap(), Armed::Yes);
    }
    bench.store.produce(&[Event::tombstone("t").key("a")]).await.unwrap();
    for relay in &relays {
        assert!(next(relay).await.healthy);
    }
    // The one with the lock wakes up, with a writer under way that does not wake anybody.
    relays[0].disarm().await.unwrap();
    let outbox = Outbox::new(bench.name.clone());
    let mut writer = bench.client().await;
    let mut open = writer.transaction().await.unwrap();
    _ = outbox.enqueue(&mut open, &[Event::tombstone("t")]).await.unwrap();
    for relay in &relays[1..] {
        assert!(next(relay).await.healthy, "told to read");
    }
    open.commit().await.unwrap();
    // Whichever has the lock now, writers wake both again.
    let other = bench.client().await;
    let held = r#"SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted
        AND objid = '"{t}"'::regclass"#;
    until("one has the lock", async || !bench.rows(held).await.is_empty()).await;
    for relay in &relays[1..] {
        while timeout(Duration::from_millis(1), relay.next()).await.is_ok() {}
    }
    other.batch_execute(&bench.sql(r#"INSERT INTO "{t}" (type, ordering_key) VALUES ('t', 'a')"#)).await.unwrap();
    for relay in &relays[1..] {
        assert!(next(relay).await.lanes.iter().any(|lane| lane.number() == 12));
    }
    bench.end().await;
}

#[tokio::test]
async fn report_103_the_loss_of_the_listener_is_told_once_and_arming_connects_again() {
    let Some(bench) = Bench::new().await else { return };
    let wakeups = bench.store.wakeups();
    wakeups.arm().await.unwrap();
    let listeners = bench
        .rows(
            r#"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
               AND objid = '"{t}"'::regclass"#,
        )
        .await;
    assert_eq!(listeners.len(), 1);
    let wake = next(&wakeups).await;
    assert_eq!((wake.healthy, wake.lanes), (false, LaneSet::ALL));
    bench.store.produce(&[Event::tombstone("t")]).await.unwrap();
    until("armed again", async || wakeups.arm().await.is_ok_and(|armed| armed == Armed::Yes)).await;
    bench.store.produce(&[Event::tombstone("t")]).await.unwrap();
    assert!(next(&wakeups).await.healthy);
    bench.end().await;
}

#[tokio::test]
async fn a_table_that_is_made_anew_is_noticed_by_the_listener() {
    let settings = Settings { keep_alive: Duration::from_millis(50), ..Settings::default() };
    let Some(bench) = Bench::with(settings).await else { return };
    let wakeups = bench.store.wakeups();
    wakeups.arm().await.unwrap();
    bench.run(r#"ALTER TABLE "{t}" RENAME TO "{t}_old""#).await;
    assert!(!next(&wakeups).await.healthy);
    assert!(wakeups.arm().await.is_err());
    bench.run(r#"ALTER TABLE "{t}_old" RENAME TO "{t}""#).await;
    assert_eq!(wakeups.arm().await.unwrap(), Armed::Yes);
    bench.end().await;
}

#[tokio::test]
async fn an_operators_retry_rewinds() {
    let Some(bench) = Bench::new().await else { return };
    let wakeups = bench.store.wakeups();
    bench.store.produce(&[Event::tombstone("t")]).await.unwrap();
    wakeups.arm().await.unwrap();
    let by = By { who: "me".to_owned(), why: "test".to_owned() };
    bench.store.retry(&Selection::Matching(Filter::default()), &by, 10).await.unwrap();
    let wake = next(&wakeups).await;
    assert!(wake.rewind && wake.healthy);
    bench.end().await;
}

#[tokio::test]
async fn port_h1_h2_one_holder_over_all_processes_and_its_name_is_shown() {
    let Some(bench) = Bench::new().await else { return };
    let other = bench.store(Settings::default());
    let held = bench.store.try_hold("first").await.unwrap().expect("free");
    assert!(other.try_hold("second").await.unwrap().is_none());
    assert!(bench.store.try_hold("third").await.unwrap().is_none(), "in one process as well");
    let relays = other.status().await.unwrap().relays;
    assert_eq!(relays.iter().map(|relay| relay.name.as_str()).collect::<Vec<_>>(), ["first"]);
    held.release().await;
    let held = other.try_hold("second").await.unwrap().expect("released");
    drop(held);
    until("the lock of a dropped holder is free", async || bench.store.try_hold("first").await.unwrap().is_some())
        .await;
    bench.end().await;
}

#[tokio::test]
async fn port_h2_a_holder_whose_session_ends_says_so() {
    let Some(bench) = Bench::new().await else { return };
    let mut held = bench.store.try_hold("mine").await.unwrap().expect("free");
    let kill = r#"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
        AND objid = '"{t}"'::regclass"#;
    bench.rows(kill).await;
    let reason = timeout(Duration::from_secs(30), held.lost()).await.expect("the loss is noticed");
    assert!(reason.contains("connection"), "{reason}");
    bench.end().await;
}

#[tokio::test]
async fn report_109_a_lock_that_is_not_in_this_session_is_no_hold() {
    let settings = Settings { keep_alive: Duration::from_millis(50), ..Settings::default() };
    let Some(bench) = Bench::with(settings).await else { return };
    let mut held = bench.store.try_hold("mine").await.unwrap().expect("free");
    // What a pooler does: the session's statements meet a server process without the lock.
    bench.run(r#"ALTER TABLE "{t}" RENAME TO "{t}_old""#).await;
    let reason = timeout(Duration::from_secs(30), held.lost()).await.expect("the loss is noticed");
    assert!(reason.contains("pooler"), "{reason}");
    bench.run(r#"ALTER TABLE "{t}_old" RENAME TO "{t}""#).await;
    bench.end().await;
}
