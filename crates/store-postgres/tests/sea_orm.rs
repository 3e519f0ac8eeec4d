//! Writing rows in a transaction of sea-orm.
#![cfg(feature = "sea-orm")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use posthaste_core::{
    Body, Event, RowId,
    port::{EnqueueError, Produce},
};
use posthaste_store_postgres::Outbox;
use sea_orm::{Database, TransactionTrait};
use support::Bench;

fn event(body: &str) -> Event {
    Event::new("order.placed", "text/plain", body.to_owned())
}

#[tokio::test]
async fn port_e1_e3_rows_come_with_the_commit_in_the_order_of_the_calls() {
    let Some(bench) = Bench::new().await else { return };
    let outbox = Outbox::new(bench.name.clone());
    let connection = Database::connect(&bench.url).await.unwrap();
    let tx = connection.begin().await.unwrap();
    _ = outbox.enqueue_sea_orm(&tx, &[event("lost")]).await.unwrap();
    tx.rollback().await.unwrap();
    let tx = connection.begin().await.unwrap();
    let whole = Event::new("t", "application/octet-stream", vec![0, 255]).key("a").tenant("acme").header("h", "v");
    let receipt = outbox.enqueue_sea_orm(&tx, &[whole, Event::tombstone("u")]).await.unwrap();
    _ = outbox.enqueue_sea_orm(&tx, &[event("later")]).await.unwrap();
    tx.commit().await.unwrap();
    let rows = bench.undelivered().await;
    assert_eq!(rows.len(), 3);
    assert_eq!((rows[0].id, rows[0].lane.number()), (receipt.rows()[0].id, 12));
    assert_eq!((rows[0].tenant.as_deref(), &*rows[0].headers["h"]), (Some("acme"), "v"));
    assert_eq!([&rows[0].body, &rows[1].body], [&Body::Bytes(vec![0, 255].into()), &Body::Null]);
    bench.end().await;
}

#[tokio::test]
async fn report_135_a_repeated_id_is_no_op_or_conflict_and_the_transaction_stays_usable() {
    let Some(bench) = Bench::new().await else { return };
    let (outbox, id) = (Outbox::new(bench.name.clone()), RowId::generate());
    bench.store.produce(&[event("a").id(id)]).await.unwrap();
    let connection = Database::connect(&bench.url).await.unwrap();
    let tx = connection.begin().await.unwrap();
    let again = outbox.enqueue_sea_orm(&tx, &[event("a").id(id), event("b")]).await.unwrap();
    assert_eq!(again.rows().iter().map(|row| row.existing).collect::<Vec<_>>(), [true, false]);
    let other = outbox.enqueue_sea_orm(&tx, &[event("x"), event("y").id(id)]).await;
    assert!(matches!(other, Err(EnqueueError::Conflict { index: 1, .. })), "{other:?}");
    tx.commit().await.unwrap();
    assert_eq!(bench.undelivered().await.len(), 2);
    bench.end().await;
}
