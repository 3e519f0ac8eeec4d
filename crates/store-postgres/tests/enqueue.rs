//! Writing rows: in the caller's transaction, in the store's own, and by another language's INSERT.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::process::Command;

use posthaste_core::{
    Body, Event, Lane, RowId, Status,
    port::{EnqueueError, Produce},
};
use posthaste_store_postgres::Outbox;
use support::Bench;

fn event(body: &str) -> Event {
    Event::new("order.placed", "text/plain", body.to_owned())
}

fn body(row: &posthaste_core::Row) -> String {
    match &row.body {
        Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn port_e1_a_row_is_there_if_and_only_if_the_transaction_commits() {
    let Some(mut bench) = Bench::new().await else { return };
    let outbox = Outbox::new(bench.name.clone());
    let mut tx = bench.client.transaction().await.unwrap();
    _ = outbox.enqueue(&mut tx, &[event("lost")]).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = bench.client.transaction().await.unwrap();
    let receipt = outbox.enqueue(&mut tx, &[event("kept").key("a").header("h", "v").tenant("acme")]).await.unwrap();
    assert!(bench.store.produce(&[]).await.unwrap().is_empty());
    tx.commit().await.unwrap();
    let rows = bench.undelivered().await;
    assert_eq!(rows.len(), 1);
    assert_eq!((body(&rows[0]).as_str(), rows[0].id), ("kept", receipt.rows()[0].id));
    assert_eq!((rows[0].lane.number(), rows[0].status, &*rows[0].headers["h"]), (12, Status::Pending, "v"));
    bench.end().await;
}

#[tokio::test]
async fn report_005_rows_of_one_call_take_their_places_in_the_order_of_the_events() {
    let Some(bench) = Bench::new().await else { return };
    let events: Vec<Event> = (0..1000).map(|n| event(&n.to_string()).key("k")).collect();
    let answers = bench.store.produce(&events).await.unwrap();
    let rows = bench.undelivered().await;
    assert_eq!(rows.iter().map(body).collect::<Vec<_>>(), (0..1000).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(rows.iter().zip(&answers).all(|(row, answer)| row.id == answer.id && row.lane == answer.lane));
    bench.end().await;
}

#[tokio::test]
async fn report_008_answers_belong_to_their_events_even_where_ids_were_present() {
    let Some(bench) = Bench::new().await else { return };
    let known = [RowId::generate(), RowId::generate()];
    bench.store.produce(&[event("7").id(known[0]), event("31").id(known[1])]).await.unwrap();
    let mut events: Vec<Event> = (0..50).map(|n| event(&n.to_string())).collect();
    events[7] = events[7].clone().id(known[0]);
    events[31] = events[31].clone().id(known[1]).header("traceparent", "another");
    let answers = bench.store.produce(&events).await.unwrap();
    let existing: Vec<usize> = (0..50).filter(|&index| answers[index].existing).collect();
    assert_eq!(existing, [7, 31]);
    let rows = bench.undelivered().await;
    assert_eq!(rows.len(), 50);
    for (index, answer) in answers.iter().enumerate() {
        let row = rows.iter().find(|row| row.id == answer.id).unwrap();
        assert_eq!(body(row), index.to_string());
    }
    bench.end().await;
}

#[tokio::test]
async fn report_135_a_repeated_id_is_no_op_or_conflict_and_the_transaction_stays_usable() {
    let Some(mut bench) = Bench::new().await else { return };
    let (outbox, id) = (Outbox::new(bench.name.clone()), RowId::generate());
    let mut tx = bench.client.transaction().await.unwrap();
    let new = outbox.enqueue(&mut tx, &[event("a").id(id)]).await.unwrap();
    let again = outbox.enqueue(&mut tx, &[event("a").id(id)]).await.unwrap();
    assert!(!new.rows()[0].existing && again.rows()[0].existing);
    let other = outbox.enqueue(&mut tx, &[event("x"), event("b").id(id)]).await;
    assert!(matches!(other, Err(EnqueueError::Conflict { index: 1, id: taken }) if taken == id), "{other:?}");
    _ = outbox.enqueue(&mut tx, &[event("last")]).await.unwrap();
    tx.commit().await.unwrap();
    let bodies: Vec<String> = bench.undelivered().await.iter().map(body).collect();
    assert_eq!(bodies, ["a", "last"], "nothing of a call that conflicts is left");
    bench.end().await;
}

#[tokio::test]
async fn port_e5_the_same_id_twice_in_one_call_is_one_row() {
    let Some(bench) = Bench::new().await else { return };
    let id = RowId::generate();
    let answers = bench.store.produce(&[event("a").id(id), event("b"), event("a").id(id)]).await.unwrap();
    assert_eq!(answers.iter().map(|answer| answer.existing).collect::<Vec<_>>(), [false, false, true]);
    let other = bench.store.produce(&[event("c").id(RowId::generate()), event("z").id(id)]).await;
    assert!(matches!(other, Err(EnqueueError::Conflict { index: 1, .. })), "{other:?}");
    assert_eq!(bench.undelivered().await.len(), 2, "all or none");
    bench.end().await;
}

#[tokio::test]
async fn report_130_a_savepoint_that_is_rolled_back_takes_its_rows_along() {
    let Some(mut bench) = Bench::new().await else { return };
    let outbox = Outbox::new(bench.name.clone());
    let mut tx = bench.client.transaction().await.unwrap();
    _ = outbox.enqueue(&mut tx, &[event("o1")]).await.unwrap();
    let mut inner = tx.transaction().await.unwrap();
    _ = outbox.enqueue(&mut inner, &[event("i1")]).await.unwrap();
    inner.rollback().await.unwrap();
    _ = outbox.enqueue(&mut tx, &[event("o2")]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(bench.undelivered().await.iter().map(body).collect::<Vec<_>>(), ["o1", "o2"]);
    bench.end().await;
}

#[tokio::test]
async fn report_067_every_byte_of_a_body_survives_and_a_bad_event_reaches_no_server() {
    let Some(bench) = Bench::new().await else { return };
    let bytes: Vec<u8> = (0..=255).collect();
    bench.store.produce(&[Event::new("t", "application/octet-stream", bytes.clone())]).await.unwrap();
    bench.store.produce(&[Event::tombstone("t").key("k")]).await.unwrap();
    let rows = bench.undelivered().await;
    assert_eq!(rows[0].body, Body::Bytes(bytes.into()));
    assert_eq!(rows[1].body, Body::Null);
    let nowhere = posthaste_store_postgres::PostgresStore::new(
        "postgres://127.0.0.1:1/x",
        bench.name.clone(),
        posthaste_store_postgres::Settings::default(),
    );
    let refused = nowhere.unwrap().produce(&[event("a").key("k\0")]).await;
    assert!(matches!(refused, Err(EnqueueError::Event { index: 0, .. })), "{refused:?}");
    bench.end().await;
}

#[tokio::test]
async fn tw_12_due_and_created_are_the_databases_clock_and_a_delay_counts_from_it() {
    let Some(bench) = Bench::new().await else { return };
    bench.store.produce(&[event("a"), event("b").delay(std::time::Duration::from_secs(3600))]).await.unwrap();
    let page = bench.read(support::everything()).await;
    let (now, later) = if page.rows[0].due_at < page.rows[1].due_at { (0, 1) } else { (1, 0) };
    assert!(page.rows[now].due_at <= page.now && page.rows[now].created_at <= page.now);
    let wait = page.rows[later].due_at.since(page.rows[later].created_at).as_secs_f64();
    assert!((3599.0..3601.0).contains(&wait), "{wait}");
    bench.end().await;
}

#[tokio::test]
async fn decision_06_a_plain_insert_of_psql_is_a_complete_row_in_the_lane_of_its_key() {
    let Some(bench) = Bench::new().await else { return };
    let sql = bench.sql(
        r#"INSERT INTO "{t}" (type, body, ordering_key) VALUES ('order.placed', '{"n":1}', 'a');
           INSERT INTO "{t}" (type, body) VALUES ('order.placed', '\x00ff')"#,
    );
    let Ok(psql) = Command::new("psql").args([&bench.url, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", &sql]).output()
    else {
        eprintln!("skipped: psql can't be run");
        return bench.end().await;
    };
    assert!(psql.status.success(), "{}", String::from_utf8_lossy(&psql.stderr));
    let rows = bench.undelivered().await;
    assert_eq!((rows[0].lane.number(), rows[0].content_type.as_str(), rows[0].attempts), (12, "application/json", 0));
    assert_eq!(body(&rows[0]), r#"{"n":1}"#);
    assert_eq!(rows[1].lane, Lane::of_id(rows[1].id));
    assert_eq!(rows[1].body, Body::Bytes(vec![0, 255].into()));
    assert_eq!(rows[1].id.uuid().get_version_num(), 7);
    bench.end().await;
}

#[tokio::test]
async fn decision_06_a_plain_insert_of_a_python_driver_is_a_complete_row() {
    let Some(bench) = Bench::new().await else { return };
    let script = r#"
import sys
url, table = sys.argv[1:]
try:
    import psycopg2 as driver
except ImportError:
    try:
        import psycopg as driver
    except ImportError:
        sys.exit(77)
connection = driver.connect(url)
connection.cursor().execute(f'INSERT INTO "{table}" (type, body, ordering_key) VALUES (%s, %s, %s)', ("t", b"{}", "a"))
connection.commit()
"#;
    let python = Command::new("python3").args(["-c", script, &bench.url, &bench.name.table()]).output();
    match python {
        Ok(python) if python.status.code() != Some(77) => {
            assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
            assert_eq!(bench.undelivered().await[0].lane.number(), 12);
        }
        _ => eprintln!("skipped: neither psycopg2 nor psycopg can be imported"),
    }
    bench.end().await;
}
