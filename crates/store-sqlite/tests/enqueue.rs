//! Enqueueing in the application's own transaction.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::{Arc, Mutex};

use common::{Case, bodies, read, text};
use posthaste_core::{
    Body, Event, EventError, LaneSet, RowId,
    event::Limits,
    port::{EnqueueError, Produce, Waker},
};
use posthaste_store_sqlite::Outbox;

#[derive(Default)]
struct Heard(Mutex<u32>);

impl Waker for Heard {
    fn wake(&self, _lanes: LaneSet) {
        *self.0.lock().unwrap() += 1;
    }
}

#[tokio::test]
async fn port_e1_a_row_is_visible_if_and_only_if_the_transaction_commits() {
    let (case, store) = Case::migrated().await;
    let mut application = case.application();
    let outbox = store.outbox();
    let mut transaction = application.transaction().unwrap();
    let _ = outbox.enqueue(&mut transaction, &[text("t", "a")]).unwrap();
    assert!(read(&store, 0).await.rows.is_empty());
    transaction.rollback().unwrap();
    assert!(read(&store, 0).await.rows.is_empty());
    let mut transaction = application.transaction().unwrap();
    let _ = outbox.enqueue(&mut transaction, &[text("t", "b")]).unwrap();
    transaction.commit().unwrap();
    assert_eq!(bodies(&read(&store, 0).await.rows), ["b"]);
}

#[tokio::test]
async fn report_130_only_what_is_committed_is_there() {
    let (case, store) = Case::migrated().await;
    let mut application = case.application();
    let outbox = store.outbox();
    let mut transaction = application.transaction().unwrap();
    let _ = outbox.enqueue(&mut transaction, &[text("t", "o1")]).unwrap();
    transaction.execute_batch("SAVEPOINT s").unwrap();
    let receipt = outbox.enqueue(&mut transaction, &[text("t", "i1")]).unwrap();
    transaction.execute_batch("ROLLBACK TO s").unwrap();
    let _ = outbox.enqueue(&mut transaction, &[text("t", "o2")]).unwrap();
    transaction.commit().unwrap();
    outbox.committed(receipt);
    assert_eq!(bodies(&read(&store, 0).await.rows), ["o1", "o2"]);
}

#[tokio::test]
async fn report_005_order_inside_a_transaction_is_that_of_the_calls() {
    let (_case, store) = Case::migrated().await;
    let events: Vec<Event> = (0..1000).map(|n| text("t", &n.to_string()).key("k")).collect();
    store.produce(&events).await.unwrap();
    let expected: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    assert_eq!(bodies(&read(&store, 0).await.rows), expected);
}

#[tokio::test]
async fn report_135_a_repeated_id_is_a_no_op_and_the_transaction_goes_on() {
    let (case, store) = Case::migrated().await;
    let mut application = case.application();
    application.execute_batch("CREATE TABLE business (n INTEGER); INSERT INTO business VALUES (0)").unwrap();
    let outbox = store.outbox();
    let event = text("t", "a").id(RowId::generate()).header("traceparent", "00-1");
    let mut transaction = application.transaction().unwrap();
    let first = outbox.enqueue(&mut transaction, std::slice::from_ref(&event)).unwrap();
    let again = event.clone().header("traceparent", "00-2");
    let second = outbox.enqueue(&mut transaction, &[again]).unwrap();
    let other = Event { body: None, ..event.clone() };
    let conflict = outbox.enqueue(&mut transaction, &[text("t", "b"), other]);
    assert!(matches!(conflict, Err(EnqueueError::Conflict { index: 1, .. })), "{conflict:?}");
    transaction.execute("UPDATE business SET n = 1", []).unwrap();
    transaction.commit().unwrap();
    assert_eq!((first.rows()[0].existing, second.rows()[0].existing), (false, true));
    assert_eq!(application.query_row("SELECT n FROM business", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    assert_eq!(bodies(&read(&store, 0).await.rows), ["a", "b"]);
}

#[tokio::test]
async fn report_008_answers_belong_to_their_events() {
    let (_case, store) = Case::migrated().await;
    let ids: Vec<RowId> = (0..2).map(|_| RowId::generate()).collect();
    let mut events: Vec<Event> = (0..50).map(|n| text("t", &n.to_string())).collect();
    events[7] = events[7].clone().id(ids[0]);
    events[31] = events[31].clone().id(ids[1]);
    store.produce(&[events[31].clone(), events[7].clone()]).await.unwrap();
    let produced = store.produce(&events).await.unwrap();
    let rows = read(&store, 0).await.rows;
    for (n, enqueued) in produced.iter().enumerate() {
        let row = rows.iter().find(|row| row.id == enqueued.id).unwrap();
        assert_eq!(row.body, Body::Bytes(n.to_string().into()));
        assert_eq!(enqueued.existing, n == 7 || n == 31);
    }
    assert_eq!(rows.len(), 50);
}

#[tokio::test]
async fn a_bad_event_is_refused_before_anything_is_written() {
    let (_case, store) = Case::migrated().await;
    let store = store.with_limits(Limits { max_body: 3 });
    let error = store.produce(&[text("t", "abc"), text("t", "abcd")]).await.unwrap_err();
    let EnqueueError::Event { index: 1, error: EventError::TooLarge { size: 4, limit: 3, .. } } = error else {
        panic!("{error}")
    };
    assert!(read(&store, 0).await.rows.is_empty());
}

#[tokio::test]
async fn port_e5_a_conflict_leaves_nothing_of_a_produced_batch() {
    let (_case, store) = Case::migrated().await;
    let id = RowId::generate();
    store.produce(&[text("t", "a").id(id)]).await.unwrap();
    let conflict = store.produce(&[text("t", "b"), text("t", "c").id(id)]).await;
    assert!(matches!(conflict, Err(EnqueueError::Conflict { index: 1, id: taken }) if taken == id));
    assert_eq!(bodies(&read(&store, 0).await.rows), ["a"]);
}

#[tokio::test]
async fn the_managed_transaction_wakes_after_its_commit_alone() {
    let (case, store) = Case::migrated().await;
    let heard = Arc::new(Heard::default());
    let outbox = Outbox::new(&case.name).with_waker(heard.clone());
    let mut application = case.application();
    let refused: Result<(), EnqueueError> = outbox.transaction(&mut application, |transaction, outbox| {
        outbox.enqueue(transaction, &[text("t", "a")])?;
        outbox.enqueue(transaction, &[text("", "b")]).map(|_| ())
    });
    assert!(refused.is_err() && *heard.0.lock().unwrap() == 0);
    let done: Result<Vec<RowId>, EnqueueError> =
        outbox.transaction(&mut application, |transaction, outbox| outbox.enqueue(transaction, &[text("t", "c")]));
    assert_eq!((done.unwrap().len(), *heard.0.lock().unwrap()), (1, 1));
    assert_eq!(bodies(&read(&store, 0).await.rows), ["c"]);
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn sqlx_transactions_are_served_alike() {
    use sqlx::{Connection as _, SqliteConnection};
    let (case, store) = Case::migrated().await;
    let mut application = SqliteConnection::connect(&case.path().display().to_string()).await.unwrap();
    let outbox = store.outbox();
    let event = text("t", "a").id(RowId::generate()).header("x", "1");
    let other = Event { key: Some("k".to_owned()), ..event.clone() };
    let mut transaction = application.begin().await.unwrap();
    let receipt = outbox.enqueue_sqlx(&mut transaction, &[event.clone(), event, text("t", "b")]).await.unwrap();
    let existing: Vec<bool> = receipt.rows().iter().map(|row| row.existing).collect();
    assert_eq!(existing, [false, true, false]);
    let conflict = outbox.enqueue_sqlx(&mut transaction, &[other]).await;
    assert!(matches!(conflict, Err(EnqueueError::Conflict { .. })));
    assert!(read(&store, 0).await.rows.is_empty());
    transaction.commit().await.unwrap();
    assert_eq!(bodies(&read(&store, 0).await.rows), ["a", "b"]);
}
