//! Reading, marking and settling rows.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::Duration;

use posthaste_core::{
    Body, Event, Lane, LaneSet, RouteKey, Status,
    port::{Inspect, Lanes, Produce, ReadRequest, Settled, Settlement},
};
use posthaste_store_postgres::{Outbox, Settings};
use posthaste_testkit::mark_ids;
use support::{Bench, everything, seqs, until};

fn lane(number: u8) -> Lane {
    Lane::new(number).unwrap()
}

/// `count` rows in each of these lanes, whose bodies have `size` bytes.
async fn fill(bench: &Bench, lanes: &[u8], count: u32, size: u32) {
    for lane in lanes {
        bench
            .run(&format!(
                r#"INSERT INTO "{{t}}" (lane, type, body) SELECT {lane}, 't', convert_to(repeat('x', {size}), 'UTF8')
                   FROM generate_series(1, {count})"#
            ))
            .await;
    }
}

fn from(lanes: &[u8], cursor: i64) -> ReadRequest {
    ReadRequest { from: lanes.iter().map(|number| (lane(*number), cursor)).collect(), ..everything() }
}

#[tokio::test]
async fn port_l1_only_undelivered_rows_of_the_lanes_asked_for_and_behind_the_cursor() {
    let Some(bench) = Bench::new().await else { return };
    fill(&bench, &[3, 4], 5, 1).await;
    bench.run(r#"UPDATE "{t}" SET status = (ARRAY['pending','processing','published','failed','invalid'])[seq] WHERE lane = 3"#).await;
    bench.run(r#"UPDATE "{t}" SET due_at = 'infinity' WHERE seq = 1"#).await;
    assert_eq!(seqs(&bench.read(from(&[3], 0)).await.rows), [1, 2, 4], "due or not");
    assert_eq!(seqs(&bench.read(from(&[3], 1)).await.rows), [2, 4]);
    assert_eq!(seqs(&bench.read(from(&[5], 0)).await.rows), [] as [i64; 0]);
    bench.end().await;
}

#[tokio::test]
async fn port_l2_l4_every_limit_leaves_a_prefix_of_each_lane_and_names_the_lanes_that_have_more() {
    let Some(bench) = Bench::new().await else { return };
    fill(&bench, &[0, 1], 10, 100).await;
    fill(&bench, &[2], 3, 100).await;
    for (per_lane, max_rows, max_bytes, rows) in [
        (4, 1000, 1 << 20, 11),
        (3, 1000, 1 << 20, 9),
        (100, 1000, 1 << 20, 23),
        (100, 23, 1 << 20, 23),
        (100, 22, 1 << 20, 22),
        (100, 7, 1 << 20, 7),
        (1, 1, 1 << 20, 1),
        (100, 1000, 1650, 16),
        (100, 1000, 2299, 22),
        (100, 1000, 2300, 23),
        (100, 1000, 10, 1),
    ] {
        let request = ReadRequest { per_lane, max_rows, max_bytes, ..from(&[0, 1, 2], 0) };
        let page = bench.read(request).await;
        assert_eq!(page.rows.len(), rows, "{per_lane} {max_rows} {max_bytes}");
        let mut more = LaneSet::EMPTY;
        for number in [0, 1, 2] {
            let got: Vec<i64> = page.rows.iter().filter(|row| row.lane == lane(number)).map(|row| row.seq).collect();
            let all: Vec<i64> = bench
                .rows(&format!(r#"SELECT seq FROM "{{t}}" WHERE lane = {number} ORDER BY seq"#))
                .await
                .iter()
                .map(|row| row.get(0))
                .collect();
            assert!(all.starts_with(&got), "{got:?} is no prefix of {all:?}");
            if got.len() < all.len() {
                more.insert(lane(number));
            }
        }
        assert_eq!(page.more, more, "{per_lane} {max_rows} {max_bytes}");
    }
    bench.end().await;
}

#[tokio::test]
async fn port_l3_one_lane_takes_what_the_others_leave_of_a_page() {
    let Some(bench) = Bench::new().await else { return };
    fill(&bench, &[7], 20, 1).await;
    fill(&bench, &[9], 1, 1).await;
    let request = ReadRequest { per_lane: 15, max_rows: 128, ..everything() };
    let page = bench.read(request).await;
    assert_eq!(page.rows.iter().filter(|row| row.lane == lane(7)).count(), 15);
    assert_eq!((page.rows.len(), page.more), (16, LaneSet::from_iter([lane(7)])));
    bench.end().await;
}

#[tokio::test]
async fn decision_21_a_body_over_the_limit_is_not_read_and_costs_no_budget() {
    let Some(bench) = Bench::new().await else { return };
    fill(&bench, &[1], 1, 5_000_000).await;
    fill(&bench, &[1], 2, 1000).await;
    let request = ReadRequest { max_body: 1000, max_bytes: 1500, ..from(&[1], 0) };
    let page = bench.read(request).await;
    assert_eq!(page.rows[0].body, Body::TooLarge(5_000_000));
    assert_eq!((page.rows[1].body.len(), page.rows.len()), (1000, 2));
    assert!(page.more.contains(lane(1)));
    let alone = bench.read(ReadRequest { max_bytes: 1500, ..from(&[1], 0) }).await;
    assert_eq!((alone.rows.len(), alone.rows[0].body.len()), (1, 5_000_000), "the first row comes whatever its size");
    bench.end().await;
}

#[tokio::test]
async fn port_l5_a_row_whose_transaction_is_open_is_seen_in_progress() {
    let Some(bench) = Bench::new().await else { return };
    let outbox = Outbox::new(bench.name.clone());
    let mut writer = bench.client().await;
    let mut open = writer.transaction().await.unwrap();
    _ = outbox.enqueue(&mut open, &[Event::tombstone("early")]).await.unwrap();
    let id = open.query_one("SELECT pg_current_xact_id()::text", &[]).await.unwrap();
    let id: u64 = id.get::<_, &str>(0).parse().unwrap();
    bench.store.produce(&[Event::tombstone("late")]).await.unwrap();
    let page = bench.read(everything()).await;
    assert_eq!(seqs(&page.rows), [2]);
    assert!(page.proof.snapshot().unwrap().in_progress.contains(&id), "{:?}", page.proof);
    open.commit().await.unwrap();
    let page = bench.read(everything()).await;
    assert_eq!(page.rows.len(), 2);
    assert!(!page.proof.snapshot().unwrap().sees_in_progress(id));
    bench.end().await;
}

/// Stops every insert of type `slow` between its number and its place in the table.
const SLOW_INSERT: &str = r#"
    CREATE FUNCTION "{t}_slow"() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock(hashtext('{t}')); RETURN new; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON "{t}" FOR EACH ROW WHEN (new.type = 'slow') EXECUTE FUNCTION "{t}_slow"()"#;

#[tokio::test]
async fn port_l5_a_number_is_never_taken_by_a_transaction_that_snapshots_do_not_show() {
    let Some(bench) = Bench::new().await else { return };
    bench.run(SLOW_INSERT).await;
    // The first number of a sequence gives the transaction its id anyway; later ones do not.
    bench.run(r#"INSERT INTO "{t}" (type) VALUES ('first')"#).await;
    bench.run("SELECT pg_advisory_lock(hashtext('{t}'))").await;
    let slow = bench.client().await;
    let sql = bench.sql(r#"INSERT INTO "{t}" (type) VALUES ('slow') RETURNING pg_current_xact_id()::text"#);
    let inserting = tokio::spawn(async move { slow.query_one(&sql, &[]).await.unwrap().get::<_, String>(0) });
    let taken = r#"SELECT last_value FROM "{t}_seq""#;
    until("the slow insert has its number", async || bench.number(taken).await == 2).await;
    bench.run(r#"INSERT INTO "{t}" (type) VALUES ('overtakes')"#).await;
    let page = bench.read(everything()).await;
    let mut got = seqs(&page.rows);
    got.sort_unstable();
    assert_eq!(got, [1, 3]);
    bench.run("SELECT pg_advisory_unlock(hashtext('{t}'))").await;
    let id: u64 = inserting.await.unwrap().parse().unwrap();
    assert!(page.proof.snapshot().unwrap().in_progress.contains(&id), "{id} in {:?}", page.proof);
    bench.run(r#"DROP TRIGGER slow ON "{t}"; DROP FUNCTION "{t}_slow""#).await;
    bench.end().await;
}

#[tokio::test]
async fn port_m1_m2_marking_sets_the_databases_clock_once_and_clears_what_was_open() {
    let Some(bench) = Bench::new().await else { return };
    let answers = bench.store.produce(&[Event::tombstone("a"), Event::tombstone("b")]).await.unwrap();
    bench.run(r#"UPDATE "{t}" SET outstanding = '{r}', last_error = 'x', status = 'failed'"#).await;
    let marked = mark_ids(&bench.store, &[answers[0].id]).await.unwrap();
    assert_eq!(marked.changed, 1);
    let row = bench.store.get(answers[0].id).await.unwrap().unwrap();
    assert_eq!((row.status, row.outstanding, row.last_error), (Status::Published, None, None));
    let again = mark_ids(&bench.store, &[answers[0].id, answers[1].id]).await.unwrap();
    assert_eq!(again.changed, 1);
    let later = bench.store.get(answers[0].id).await.unwrap().unwrap();
    assert_eq!(later.published_at, row.published_at);
    let page = bench.read(everything()).await;
    assert!(page.rows.is_empty() && row.published_at.unwrap() <= page.now);
    assert!(
        again.transaction > marked.transaction
            && !page.proof.snapshot().unwrap().sees_in_progress(again.transaction.unwrap())
    );
    bench.end().await;
}

#[tokio::test]
async fn report_083_retention_zero_deletes_what_was_delivered_and_keeps_history() {
    let settings = Settings { retention: Duration::ZERO, ..Settings::default() };
    let Some(bench) = Bench::with(settings).await else { return };
    let answers = bench.store.produce(&[Event::tombstone("a"), Event::tombstone("b")]).await.unwrap();
    bench.run(r#"UPDATE "{t}" SET status = 'published', published_at = now() WHERE type = 'b'"#).await;
    let marked = mark_ids(&bench.store, &[answers[0].id, answers[1].id]).await.unwrap();
    assert_eq!(marked.changed, 1);
    assert!(marked.transaction.is_some());
    assert_eq!(bench.text(r#"SELECT string_agg(type, ',') FROM "{t}""#).await, "b");
    bench.end().await;
}

#[tokio::test]
async fn port_s1_s3_outcomes_are_recorded_each_on_its_own_and_never_over_a_published_row() {
    let Some(bench) = Bench::new().await else { return };
    let events: Vec<Event> = (0..5).map(|_| Event::new("t", "text/plain", "body").header("h", "v")).collect();
    let id: Vec<_> = bench.store.produce(&events).await.unwrap().iter().map(|answer| answer.id).collect();
    mark_ids(&bench.store, &[id[4]]).await.unwrap();
    let gone = posthaste_core::RowId::generate();
    let left = vec![RouteKey::from("a\"b"), RouteKey::from("c,d")];
    let due_in = Duration::from_secs(60);
    let error = "said \0 no".to_owned();
    let answers = bench
        .store
        .settle(&[
            Settlement::Progress { id: id[0], outstanding: left.clone() },
            Settlement::Retry {
                id: id[1],
                due_in,
                counted: true,
                error: error.clone(),
                outstanding: Some(left.clone()),
            },
            Settlement::Retry { id: id[4], due_in, counted: true, error: error.clone(), outstanding: None },
            Settlement::Invalid { id: id[2], counted: true, error: error.clone(), outstanding: None },
            Settlement::Note { id: id[3], error: "deferred: no route".to_owned() },
            Settlement::Note { id: gone, error },
            Settlement::Retry { id: id[1], due_in, counted: true, error: "again".to_owned(), outstanding: None },
        ])
        .await
        .unwrap();
    let done = [true, true, false, true, true, false, true];
    assert_eq!(answers, done.map(|done| if done { Settled::Done } else { Settled::Stale }));
    let row = async |index: usize| bench.store.get(id[index]).await.unwrap().unwrap();
    let (progress, retried, invalid, noted) = (row(0).await, row(1).await, row(2).await, row(3).await);
    assert_eq!((progress.status, &progress.outstanding), (Status::Pending, &Some(left.clone())));
    assert_eq!((retried.status, retried.attempts, retried.outstanding), (Status::Failed, 2, Some(left)));
    assert_eq!(retried.last_error.as_deref(), Some("again"));
    let now = bench.read(everything()).await.now;
    assert!((50.0..=60.0).contains(&retried.due_at.since(now).as_secs_f64()));
    assert_eq!((invalid.status, invalid.attempts, &*invalid.headers["h"]), (Status::Invalid, 1, "v"));
    assert_eq!(invalid.body, Body::Bytes("body".into()));
    assert_eq!((noted.status, noted.attempts, noted.due_at <= now), (Status::Pending, 0, true));
    assert_eq!(bench.store.status().await.unwrap().deferred_types, ["t"]);
    assert_eq!(row(4).await.status, Status::Published);
    bench.end().await;
}

#[tokio::test]
async fn headers_that_are_no_map_of_strings_are_a_defect_of_their_row_alone() {
    let Some(bench) = Bench::new().await else { return };
    bench.run(r#"INSERT INTO "{t}" (type, headers) VALUES ('a', '[1]'), ('b', '{"n": 1}'), ('c', '{"n": "1"}')"#).await;
    let rows = bench.undelivered().await;
    let defects: Vec<bool> = rows.iter().map(|row| row.defect.is_some()).collect();
    assert_eq!(defects, [true, true, false]);
    bench.end().await;
}

#[tokio::test]
async fn report_104_large_statements_notify_with_a_small_payload() {
    let Some(bench) = Bench::new().await else { return };
    let wakeups = bench.store.wakeups();
    assert_eq!(wakeups.arm().await.unwrap(), posthaste_core::port::Armed::Yes);
    fill(&bench, &[5], 1, 1_000_000).await;
    assert_eq!(wakeups.next().await.lanes, LaneSet::from_iter([lane(5)]));
    let events: Vec<Event> = (0..5000).map(|_| Event::tombstone("t")).collect();
    bench.store.produce(&events).await.unwrap();
    assert_eq!(wakeups.next().await.lanes, LaneSet::ALL);
    bench.end().await;
}
