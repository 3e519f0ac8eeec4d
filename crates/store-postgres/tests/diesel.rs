//! Writing rows in a transaction of diesel-async.
#![cfg(feature = "diesel")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use diesel_async::{AsyncConnection, AsyncPgConnection};
use posthaste_core::{
    Body, Error, ErrorKind, Event, RowId,
    port::{EnqueueError, Produce, Receipt},
};
use posthaste_store_postgres::Outbox;
use support::Bench;

fn event(body: &str) -> Event {
    Event::new("order.placed", "text/plain", body.to_owned())
}

#[derive(Debug)]
#[allow(dead_code, reason = "shown by a failed assertion")]
enum Fault {
    Diesel(diesel::result::Error),
    Enqueue(EnqueueError),
    RolledBack,
}

impl From<diesel::result::Error> for Fault {
    fn from(error: diesel::result::Error) -> Fault {
        Fault::Diesel(error)
    }
}

impl From<EnqueueError> for Fault {
    fn from(error: EnqueueError) -> Fault {
        Fault::Enqueue(error)
    }
}

#[tokio::test]
async fn port_e1_e3_rows_come_with_the_commit_in_the_order_of_the_calls() {
    let Some(bench) = Bench::new().await else { return };
    let outbox = &Outbox::new(bench.name.clone());
    let mut connection = AsyncPgConnection::establish(&bench.url).await.unwrap();
    let lost = connection.transaction::<(), Fault, _>(async |tx| {
        _ = outbox.enqueue_diesel(tx, &[event("lost")]).await?;
        Err(Fault::RolledBack)
    });
    assert!(matches!(lost.await, Err(Fault::RolledBack)));
    let whole = Event::new("t", "application/octet-stream", vec![0, 255]).key("a").tenant("acme").header("h", "v");
    let written = connection.transaction::<Receipt, Fault, _>(async |tx| {
        let receipt = outbox.enqueue_diesel(tx, &[whole, Event::tombstone("u")]).await?;
        _ = outbox.enqueue_diesel(tx, &[event("later")]).await?;
        Ok(receipt)
    });
    let receipt = written.await.unwrap();
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
    let (outbox, id) = (&Outbox::new(bench.name.clone()), RowId::generate());
    bench.store.produce(&[event("a").id(id)]).await.unwrap();
    let mut connection = AsyncPgConnection::establish(&bench.url).await.unwrap();
    let ended = connection.transaction::<(), Fault, _>(async |tx| {
        let again = outbox.enqueue_diesel(tx, &[event("a").id(id), event("b")]).await?;
        assert_eq!(again.rows().iter().map(|row| row.existing).collect::<Vec<_>>(), [true, false]);
        let other = outbox.enqueue_diesel(tx, &[event("x"), event("y").id(id)]).await;
        assert!(matches!(other, Err(EnqueueError::Conflict { index: 1, .. })), "{other:?}");
        Ok(())
    });
    ended.await.unwrap();
    assert_eq!(bench.undelivered().await.len(), 2);
    bench.end().await;
}

#[tokio::test]
async fn port_e1_outside_a_transaction_nothing_is_written_and_a_missing_schema_is_named() {
    let Some(bench) = Bench::new().await else { return };
    let mut connection = AsyncPgConnection::establish(&bench.url).await.unwrap();
    let outside = Outbox::new(bench.name.clone()).enqueue_diesel(&mut connection, &[event("x")]).await;
    let kind = |error: &Error| error.kind();
    assert!(
        matches!(&outside, Err(EnqueueError::Store(error)) if kind(error) == ErrorKind::Unsupported),
        "{outside:?}"
    );
    assert_eq!(bench.undelivered().await.len(), 0);
    let missing = connection.transaction::<Receipt, Fault, _>(async |tx| {
        let nowhere = Outbox::new("nowhere at all".parse().unwrap());
        Ok(nowhere.enqueue_diesel(tx, &[event("x"), event("y")]).await?)
    });
    let missing = missing.await;
    let named = |error: &Error| error.kind() == ErrorKind::MissingSchema;
    assert!(matches!(&missing, Err(Fault::Enqueue(EnqueueError::Store(error))) if named(error)), "{missing:?}");
    bench.end().await;
}
