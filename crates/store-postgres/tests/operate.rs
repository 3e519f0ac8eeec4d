//! Looking at an outbox and repairing it.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::Duration;

use posthaste_core::{
    Event, RowId, Status,
    port::{By, Filter, Inspect, Operate, Produce, PruneRequest, Selection},
};
use support::{Bench, seqs};

fn by() -> By {
    By { who: "ann".to_owned(), why: "fixed the queue".to_owned() }
}

fn all() -> Selection {
    Selection::Matching(Filter::default())
}

/// One row of each status, in the order pending, processing, failed, published, invalid.
async fn one_of_each(bench: &Bench) -> Vec<RowId> {
    let events: Vec<Event> =
        Status::ALL.iter().map(|status| Event::tombstone(format!("t.{status}")).key(status.as_str())).collect();
    let ids = bench.store.produce(&events).await.unwrap().iter().map(|answer| answer.id).collect();
    bench
        .run(
            r#"UPDATE "{t}" SET status = ordering_key, attempts = 3, last_error = 'x';
               UPDATE "{t}" SET published_at = now() WHERE status = 'published'"#,
        )
        .await;
    ids
}

#[tokio::test]
async fn counts_ages_and_deferred_types() {
    let Some(bench) = Bench::new().await else { return };
    let empty = bench.store.status().await.unwrap();
    assert_eq!((empty.pending, empty.oldest_pending, empty.relays.len()), (0, None, 0));
    one_of_each(&bench).await;
    bench
        .run(
            r#"UPDATE "{t}" SET created_at = now() - interval '1 hour' WHERE status = 'failed';
               UPDATE "{t}" SET created_at = now() - interval '1 day' WHERE status = 'published';
               UPDATE "{t}" SET last_error = 'deferred: no route' WHERE status = 'pending'"#,
        )
        .await;
    let status = bench.store.status().await.unwrap();
    assert_eq!([status.pending, status.processing, status.failed, status.published, status.invalid], [1; 5]);
    assert!((3600..3660).contains(&status.oldest_pending.unwrap().as_secs()) && !status.published_is_estimate);
    assert_eq!(status.deferred_types, ["t.pending"]);
    bench.end().await;
}

#[tokio::test]
async fn port_i1_a_long_history_is_estimated_and_says_so() {
    let Some(bench) = Bench::new().await else { return };
    bench
        .run(r#"INSERT INTO "{t}" (type, status) VALUES ('t', 'published'), ('t', 'pending'), ('t', 'invalid')"#)
        .await;
    bench.run(r#"UPDATE pg_class SET reltuples = 5000000 WHERE oid = '"{t}"'::regclass"#).await;
    let status = bench.store.status().await.unwrap();
    assert!(status.published_is_estimate && status.published == 4_999_998, "{status:?}");
    assert_eq!((status.pending, status.invalid), (1, 1));
    bench.end().await;
}

#[tokio::test]
async fn port_i2_lists_page_by_seq_and_every_filter_holds() {
    let Some(bench) = Bench::new().await else { return };
    let ids = one_of_each(&bench).await;
    let list = async |filter: Filter, after| seqs(&bench.store.list(&filter, after, 2).await.unwrap());
    assert_eq!(list(Filter::default(), 0).await, [1, 2]);
    assert_eq!(list(Filter::default(), 2).await, [3, 4]);
    assert_eq!(list(Filter { status: Some(Status::Invalid), ..Filter::default() }, 0).await, [5]);
    assert_eq!(list(Filter { event_type: Some("t.p*d".to_owned()), ..Filter::default() }, 0).await, [4]);
    assert_eq!(list(Filter { event_type: Some("t_p*".to_owned()), ..Filter::default() }, 0).await, [] as [i64; 0]);
    assert_eq!(list(Filter { key: Some("failed".to_owned()), ..Filter::default() }, 0).await, [3]);
    assert_eq!(list(Filter { tenant: Some("x".to_owned()), ..Filter::default() }, 0).await, [] as [i64; 0]);
    assert!(bench.store.get(RowId::generate()).await.unwrap().is_none());
    assert_eq!(bench.store.get(ids[3]).await.unwrap().unwrap().status, Status::Published);
    bench.end().await;
}

#[tokio::test]
async fn report_148_listing_reads_no_body() {
    let Some(bench) = Bench::new().await else { return };
    bench.store.produce(&[Event::new("t", "text/plain", "body")]).await.unwrap();
    let rows = bench.store.list(&Filter::default(), 0, 10).await.unwrap();
    assert!(rows[0].body.is_empty());
    assert_eq!(bench.store.get(rows[0].id).await.unwrap().unwrap().body.len(), 4);
    bench.end().await;
}

#[tokio::test]
async fn the_predecessor_is_the_first_undelivered_row_of_the_key() {
    let Some(bench) = Bench::new().await else { return };
    let events = ["k", "k", "other", "k", "k"].map(|key| Event::tombstone("t").key(key));
    let ids: Vec<RowId> = bench.store.produce(&events).await.unwrap().iter().map(|answer| answer.id).collect();
    bench.run(r#"UPDATE "{t}" SET status = 'published' WHERE seq = 1"#).await;
    let get = async |index: usize| bench.store.get(ids[index]).await.unwrap().unwrap();
    assert_eq!(bench.store.predecessor(&get(4).await).await.unwrap().unwrap().seq, 2);
    assert!(bench.store.predecessor(&get(1).await).await.unwrap().is_none());
    assert!(bench.store.predecessor(&get(2).await).await.unwrap().is_none());
    bench.end().await;
}

#[tokio::test]
async fn port_o1_o4_retry_makes_rows_due_and_moves_dead_letters_to_the_end_in_their_order() {
    let Some(bench) = Bench::new().await else { return };
    let ids = one_of_each(&bench).await;
    bench.run(r#"INSERT INTO "{t}" (type, status, due_at) VALUES ('late', 'invalid', 'infinity'), ('u', 'failed', 'infinity')"#).await;
    assert_eq!(bench.store.count(&all()).await.unwrap(), 5);
    let report = bench.store.retry(&all(), &by(), 4).await.unwrap();
    assert_eq!((report.matched, report.changed), (5, 4));
    let text = r#"SELECT string_agg(type || ' ' || status || ' ' || attempts, ',' ORDER BY seq) FROM "{t}""#;
    assert_eq!(
        bench.text(text).await,
        "t.pending pending 0,t.processing processing 3,t.failed pending 0,t.published published 3,u failed 0,\
         t.invalid pending 0,late pending 0"
    );
    assert_eq!(bench.number(r#"SELECT count(*) FROM "{t}" WHERE due_at <= clock_timestamp()"#).await, 6);
    assert_eq!(
        bench
            .text(r#"SELECT string_agg(who || why || action || type || status, ',' ORDER BY type) FROM "{t}_log""#)
            .await,
        "annfixed the queueretrylateinvalid,annfixed the queueretryt.failedfailed,\
         annfixed the queueretryt.invalidinvalid,annfixed the queueretryt.pendingpending"
    );
    let published = bench.store.retry(&Selection::Ids(vec![ids[3], ids[1]]), &by(), 4).await.unwrap();
    assert_eq!((published.matched, published.changed), (0, 0));
    bench.end().await;
}

#[tokio::test]
async fn port_o2_o3_discard_deletes_what_is_not_delivered_and_writes_down_who() {
    let Some(bench) = Bench::new().await else { return };
    let ids = one_of_each(&bench).await;
    let filter = Filter { event_type: Some("t.*".to_owned()), status: Some(Status::Invalid), ..Filter::default() };
    let report = bench.store.discard(&Selection::Matching(filter), &by(), 10).await.unwrap();
    assert_eq!((report.matched, report.changed), (1, 1));
    let report = bench.store.discard(&Selection::Ids(ids), &by(), 1).await.unwrap();
    assert_eq!((report.matched, report.changed), (2, 1));
    let left = r#"SELECT string_agg(status, ',' ORDER BY seq) FROM "{t}""#;
    assert_eq!(bench.text(left).await, "processing,failed,published");
    assert_eq!(bench.number(r#"SELECT count(*) FROM "{t}_log" WHERE action = 'discard' AND who = 'ann'"#).await, 2);
    bench.end().await;
}

#[tokio::test]
async fn report_139_prune_deletes_old_history_in_small_steps_and_skips_locked_rows() {
    let Some(bench) = Bench::new().await else { return };
    bench
        .run(
            r#"INSERT INTO "{t}" (type, status, published_at) SELECT 't', 'published', now() - interval '2 days'
               FROM generate_series(1, 5);
               INSERT INTO "{t}" (type, status, published_at) VALUES ('new', 'published', now());
               INSERT INTO "{t}" (type, created_at) VALUES ('open', now() - interval '9 days');
               INSERT INTO "{t}" (type, status, created_at) VALUES ('dead', 'invalid', now() - interval '9 days')"#,
        )
        .await;
    let day = Duration::from_secs(86_400);
    let published = PruneRequest { status: Status::Published, older_than: day };
    assert_eq!(bench.store.count_prunable(&published).await.unwrap(), 5);
    let other = bench.client().await;
    other.batch_execute(&bench.sql(r#"BEGIN; SELECT FROM "{t}" WHERE seq = 1 FOR UPDATE"#)).await.unwrap();
    assert_eq!(bench.store.prune(&published, 2).await.unwrap(), 2);
    assert_eq!(
        bench.text(r#"SELECT string_agg(seq::text, ',' ORDER BY seq) FROM "{t}" WHERE type = 't'"#).await,
        "1,4,5"
    );
    assert_eq!(bench.store.prune(&published, 10).await.unwrap(), 2);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(bench.store.prune(&published, 10).await.unwrap(), 1);
    for status in [Status::Pending, Status::Processing, Status::Failed] {
        assert_eq!(bench.store.prune(&PruneRequest { status, older_than: Duration::ZERO }, 10).await.unwrap(), 0);
    }
    let forever = PruneRequest { status: Status::Invalid, older_than: Duration::MAX };
    assert_eq!(bench.store.prune(&forever, 10).await.unwrap(), 0);
    let invalid = PruneRequest { status: Status::Invalid, older_than: day };
    assert_eq!(bench.store.prune(&invalid, 10).await.unwrap(), 1);
    assert_eq!(bench.text(r#"SELECT string_agg(type, ',' ORDER BY seq) FROM "{t}""#).await, "new,open");
    bench.end().await;
}
