//! Several users of one file: wake-ups, the relay's lock, writers side by side.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{Case, DEADLINE, by, read, text};
use posthaste_core::{
    Lane, OutboxName,
    port::{Armed, Hold, Inspect, Lanes, Operate, Produce, Schema, Selection, Settlement, Wake, Wakeups},
};
use posthaste_store_sqlite::SqliteStore;
use posthaste_testkit::mark_ids;
use tokio::time::timeout;

async fn next(wakeups: &Arc<dyn Wakeups>) -> Wake {
    timeout(DEADLINE, wakeups.next()).await.expect("no wake-up came")
}

/// Wake-ups after the first one, which says only that the thread has begun to look.
async fn armed(store: &SqliteStore) -> Arc<dyn Wakeups> {
    let wakeups = store.wakeups();
    assert_eq!(wakeups.arm().await.unwrap(), Armed::Yes);
    assert!(next(&wakeups).await.healthy);
    wakeups
}

#[tokio::test]
async fn port_w2_a_commit_of_another_connection_wakes() {
    let (case, store) = Case::migrated().await;
    let wakeups = armed(&store).await;
    for _ in 0..3 {
        case.application().execute("INSERT INTO orders_outbox (type) VALUES ('t')", []).unwrap();
        let wake = next(&wakeups).await;
        assert!(wake.healthy && !wake.rewind && wake.lanes.contains(Lane::new(0).unwrap()));
    }
}

#[tokio::test]
async fn a_relay_is_not_woken_by_its_own_marks() {
    let (case, store) = Case::migrated().await;
    let other = case.store();
    other.produce(&[text("t", "a"), text("t", "b")]).await.unwrap();
    let wakeups = armed(&store).await;
    let rows = read(&store, 0).await.rows;
    mark_ids(&store, &[rows[0].id]).await.unwrap();
    let quiet = timeout(Duration::from_millis(100), wakeups.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

#[tokio::test]
async fn a_retry_of_another_process_rewinds() {
    let (case, store) = Case::migrated().await;
    let other = case.store();
    other.produce(&[text("t", "a")]).await.unwrap();
    let id = read(&store, 0).await.rows[0].id;
    let later = Settlement::Retry { id, due_in: DEADLINE, counted: true, error: String::new(), outstanding: None };
    store.settle(&[later]).await.unwrap();
    let wakeups = armed(&store).await;
    other.retry(&Selection::Ids(vec![id]), &by(), 1).await.unwrap();
    assert!(next(&wakeups).await.rewind);
}

#[tokio::test]
async fn port_w3_a_file_that_goes_away_is_said_once_and_arming_heals() {
    let (case, store) = Case::migrated().await;
    let wakeups = armed(&store).await;
    std::fs::rename(case.path(), case.directory.path().join("elsewhere.db")).unwrap();
    assert!(!next(&wakeups).await.healthy);
    case.store().migrate().await.unwrap();
    let wakeups = armed(&store).await;
    case.store().produce(&[text("t", "a")]).await.unwrap();
    assert!(next(&wakeups).await.healthy);
}

#[tokio::test]
async fn a_memory_database_wakes_in_its_process() {
    let store = SqliteStore::new("sqlite::memory:", &OutboxName::unnamed()).unwrap();
    store.migrate().await.unwrap();
    let wakeups = store.wakeups();
    wakeups.arm().await.unwrap();
    store.produce(&[text("t", "a")]).await.unwrap();
    assert!(next(&wakeups).await.healthy);
}

#[tokio::test]
async fn port_h1_one_relay_holds_an_outbox_and_status_names_it() {
    let (case, store) = Case::migrated().await;
    let second = case.store();
    let held = store.try_hold("first").await.unwrap().unwrap();
    assert!(second.try_hold("second").await.unwrap().is_none());
    let relays = second.status().await.unwrap().relays;
    assert_eq!((relays.len(), relays[0].name.as_str(), relays[0].lanes), (1, "first", 128));
    let billing = SqliteStore::new(&case.url(), &"billing".parse().unwrap()).unwrap();
    assert!(billing.try_hold("first").await.unwrap().is_some(), "another outbox has another lock");
    held.release().await;
    assert!(second.status().await.unwrap().relays.is_empty());
    drop(second.try_hold("second").await.unwrap().unwrap());
    assert!(store.try_hold("first").await.unwrap().is_some());
}

#[tokio::test]
async fn looking_at_the_holder_never_keeps_a_relay_from_holding() {
    let (case, store) = Case::migrated().await;
    let watching = case.store();
    for _ in 0..50 {
        let (held, status) = tokio::join!(store.try_hold("a"), watching.status());
        status.unwrap();
        held.unwrap().expect("a look at the lock kept it from being taken").release().await;
    }
}

#[tokio::test]
async fn decision_12_the_lock_dies_with_its_process() {
    let (case, store) = Case::migrated().await;
    let path = format!("{}-orders-relay", case.path().display());
    let script = "import fcntl, sys, time\nf = open(sys.argv[1], 'w')\nfcntl.flock(f, fcntl.LOCK_EX)\n\
        f.write('other\\n1\\n'); f.flush()\nprint('held', flush=True)\nsys.stdin.read()";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script, &path]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut child) = command.spawn() else { return };
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    assert!(store.try_hold("mine").await.unwrap().is_none());
    assert_eq!(store.status().await.unwrap().relays[0].name, "other");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(store.try_hold("mine").await.unwrap().is_some());
}

#[tokio::test]
async fn a_lock_file_that_is_removed_is_a_lost_lock() {
    let (case, store) = Case::migrated().await;
    let mut held = store.try_hold("a").await.unwrap().unwrap();
    std::fs::remove_file(format!("{}-orders-relay", case.path().display())).unwrap();
    let why = timeout(DEADLINE, held.lost()).await.unwrap();
    assert!(why.contains("orders-relay"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn report_121_writers_side_by_side_are_never_refused_as_busy() {
    let (case, store) = Case::migrated().await;
    let mut writers = Vec::new();
    for writer in 0..4 {
        let (outbox, mut application) = (store.outbox(), case.application());
        writers.push(std::thread::spawn(move || {
            for n in 0..100 {
                let done: Result<(), posthaste_core::port::EnqueueError> =
                    outbox.transaction(&mut application, |transaction, outbox| {
                        outbox.enqueue(transaction, &[text("t", &format!("{writer}-{n}"))]).map(|_| ())
                    });
                done.unwrap();
            }
        }));
    }
    let (mut cursor, mut seen) = (0, 0);
    while seen < 400 {
        let rows = read(&store, cursor).await.rows;
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        assert_eq!(mark_ids(&store, &ids).await.unwrap().changed, ids.len() as u64);
        cursor = rows.last().map_or(cursor, |row| row.seq);
        seen += rows.len();
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(store.status().await.unwrap().published, 400, "no cursor passed a row that appeared later");
}
