//! Marking, settling, repairing, pruning, and the place of every row through all of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::{Case, DEADLINE, bodies, by, read, text};
use posthaste_core::{
    Event, RouteKey, Row, RowId, Seq, Status,
    port::{Filter, Inspect, Lanes, Operate, Produce, PruneRequest, Selection, Settled, Settlement},
};
use posthaste_store_sqlite::SqliteStore;
use posthaste_testkit::mark_ids;
use rusqlite::Connection;

async fn produced(store: &SqliteStore, count: usize) -> Vec<RowId> {
    let events: Vec<Event> = (0..count).map(|n| text("t", &n.to_string()).key("k")).collect();
    store.produce(&events).await.unwrap().into_iter().map(|row| row.id).collect()
}

fn invalid(id: RowId) -> Settlement {
    Settlement::Invalid { id, counted: true, error: "refused".to_owned(), outstanding: None }
}

fn retry(id: RowId, due_in: Duration) -> Settlement {
    Settlement::Retry { id, due_in, counted: true, error: "later".to_owned(), outstanding: None }
}

fn old(status: Status) -> PruneRequest {
    PruneRequest { status, older_than: Duration::ZERO }
}

async fn get(store: &SqliteStore, id: RowId) -> Row {
    store.get(id).await.unwrap().unwrap()
}

fn lowest(application: &Connection) -> Seq {
    application.query_row("SELECT lowest FROM orders_outbox_meta", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn port_m1_marking_twice_changes_nothing_more() {
    let (_case, store) = Case::migrated().await;
    let ids = produced(&store, 3).await;
    store.settle(&[Settlement::Note { id: ids[0], error: "x".to_owned() }]).await.unwrap();
    assert_eq!(mark_ids(&store, &ids[..2]).await.unwrap().changed, 2);
    let marked = get(&store, ids[0]).await;
    assert_eq!((marked.status, marked.last_error.clone()), (Status::Published, None));
    assert_eq!(mark_ids(&store, &ids).await.unwrap().changed, 1);
    assert_eq!(get(&store, ids[0]).await, marked);
}

#[tokio::test]
async fn a_store_that_has_read_nothing_finds_rows_by_their_ids() {
    let (case, store) = Case::migrated().await;
    let ids = produced(&store, 3).await;
    assert_eq!(mark_ids(&case.store(), &[ids[1], RowId::generate()]).await.unwrap().changed, 1);
    assert_eq!(bodies(&read(&store, 0).await.rows), ["0", "2"]);
}

#[tokio::test]
async fn port_s1_each_settlement_is_answered_and_delivered_rows_are_left_alone() {
    let (_case, store) = Case::migrated().await;
    let ids = produced(&store, 3).await;
    mark_ids(&store, &ids[..1]).await.unwrap();
    let routes = vec![RouteKey::from("a"), RouteKey::from("b")];
    let progress = Settlement::Progress { id: ids[1], outstanding: routes.clone() };
    let settled =
        store.settle(&[invalid(ids[0]), progress, invalid(RowId::generate()), retry(ids[2], DEADLINE)]).await.unwrap();
    assert_eq!(settled, [Settled::Stale, Settled::Done, Settled::Stale, Settled::Done]);
    let rows = read(&store, 0).await;
    assert_eq!((rows.rows[0].outstanding.clone(), rows.rows[0].status), (Some(routes), Status::Pending));
    let failed = &rows.rows[1];
    assert_eq!((failed.status, failed.attempts, failed.last_error.as_deref()), (Status::Failed, 1, Some("later")));
    assert!(failed.due_at > rows.now, "port S2: the delay counts from now");
}

#[tokio::test]
async fn decision_13_the_seq_of_a_deleted_row_is_never_used_again() {
    let (_case, store) = Case::migrated().await;
    let store = store.with_retention(Duration::ZERO);
    let mut highest = 0;
    for _ in 0..3 {
        let ids = produced(&store, 2).await;
        let rows = read(&store, 0).await.rows;
        assert!(rows.iter().all(|row| row.seq > highest), "a cursor at {highest} would skip {rows:?}");
        highest = rows[1].seq;
        assert_eq!(mark_ids(&store, &ids).await.unwrap().changed, 2);
        assert_eq!(mark_ids(&store, &ids).await.unwrap().changed, 0);
        assert!(store.get(ids[1]).await.unwrap().is_none());
    }
    let status = store.status().await.unwrap();
    assert_eq!((status.pending, status.published, status.invalid), (0, 0, 0));
    assert!(store.list(&Filter::default(), 0, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn decision_13_placeholders_do_not_pile_up() {
    let (case, store) = Case::migrated().await;
    let store = store.with_retention(Duration::ZERO);
    for _ in 0..5 {
        let ids = produced(&store, 1).await;
        mark_ids(&store, &ids).await.unwrap();
    }
    let rows: i64 = case.application().query_row("SELECT count(*) FROM orders_outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn decision_13_a_late_mark_hits_no_other_event() {
    let (case, store) = Case::migrated().await;
    let ids = produced(&store, 1).await;
    read(&store, 0).await;
    // What a repair by hand may do in spite of all warnings.
    case.application().execute_batch("DELETE FROM orders_outbox").unwrap();
    let other = case.store();
    produced(&other, 1).await;
    assert_eq!(mark_ids(&store, &ids).await.unwrap().changed, 0);
    assert_eq!(read(&store, 0).await.rows.len(), 1);
}

#[tokio::test]
async fn a_table_that_was_emptied_by_hand_loses_no_later_event() {
    let (case, store) = Case::migrated().await;
    let ids = produced(&store, 5).await;
    mark_ids(&store, &ids).await.unwrap();
    let application = case.application();
    assert_eq!(lowest(&application), 6);
    application.execute_batch("DELETE FROM orders_outbox").unwrap();
    produced(&store, 9).await;
    assert_eq!(read(&store, 0).await.rows.len(), 9);
}

#[tokio::test]
async fn a_row_that_is_reopened_by_hand_is_read_again() {
    let (case, store) = Case::migrated().await;
    let ids = produced(&store, 5).await;
    mark_ids(&store, &ids).await.unwrap();
    case.application().execute_batch("UPDATE orders_outbox SET status = 'pending' WHERE seq = 2").unwrap();
    assert_eq!(bodies(&read(&store, 0).await.rows), ["1"]);
}

#[tokio::test]
async fn decision_13_a_start_does_not_scan_history() {
    let (case, store) = Case::migrated().await;
    let ids = produced(&store, 10).await;
    mark_ids(&store, &ids[..4]).await.unwrap();
    mark_ids(&store, &ids[6..]).await.unwrap();
    let application = case.application();
    assert_eq!(lowest(&application), 5, "rows 5 and 6 are still to be delivered");
    store.settle(&[invalid(ids[4])]).await.unwrap();
    mark_ids(&store, &ids[5..6]).await.unwrap();
    assert_eq!(lowest(&application), 11);
    assert!(read(&store, 0).await.rows.is_empty());
}

#[tokio::test]
async fn port_o4_a_dead_letter_goes_to_the_end_and_others_keep_their_place() {
    let (_case, store) = Case::migrated().await;
    let ids = produced(&store, 3).await;
    store.settle(&[invalid(ids[0]), retry(ids[1], DEADLINE)]).await.unwrap();
    let all = Selection::Matching(Filter { key: Some("k".to_owned()), ..Filter::default() });
    let report = store.retry(&all, &by(), 10).await.unwrap();
    assert_eq!((report.matched, report.changed), (3, 2), "a row that is due anyway gains nothing");
    let page = read(&store, 0).await;
    assert_eq!(bodies(&page.rows), ["1", "2", "0"]);
    for row in &page.rows {
        assert!(row.status == Status::Pending && row.attempts == 0 && row.due_at <= page.now);
    }
    assert_eq!(mark_ids(&store, &ids).await.unwrap().changed, 3);
}

#[tokio::test]
async fn port_o1_repairs_are_bounded_and_go_on_where_they_stopped() {
    let (_case, store) = Case::migrated().await;
    let ids = produced(&store, 5).await;
    let all: Vec<Settlement> = ids.iter().map(|id| retry(*id, DEADLINE)).collect();
    store.settle(&all).await.unwrap();
    let failed = Selection::Matching(Filter { status: Some(Status::Failed), ..Filter::default() });
    for (matched, changed) in [(5, 2), (3, 2), (1, 1), (0, 0)] {
        let report = store.retry(&failed, &by(), 2).await.unwrap();
        assert_eq!((report.matched, report.changed), (matched, changed));
    }
}

#[tokio::test]
async fn port_o2_claimed_and_published_rows_are_not_touched() {
    let (case, store) = Case::migrated().await;
    let ids = produced(&store, 2).await;
    mark_ids(&store, &ids[..1]).await.unwrap();
    case.application().execute_batch("UPDATE orders_outbox SET status = 'processing' WHERE seq = 2").unwrap();
    let selection = Selection::Ids(ids);
    assert_eq!(store.retry(&selection, &by(), 10).await.unwrap().matched, 0);
    assert_eq!(store.discard(&selection, &by(), 10).await.unwrap().matched, 0);
    assert_eq!(store.count(&selection).await.unwrap(), 0);
}

#[tokio::test]
async fn port_o3_who_and_why_is_recorded() {
    let (case, store) = Case::migrated().await;
    let ids = produced(&store, 2).await;
    store.settle(&[invalid(ids[0])]).await.unwrap();
    store.retry(&Selection::Ids(vec![ids[0]]), &by(), 10).await.unwrap();
    store.discard(&Selection::Ids(vec![ids[1]]), &by(), 10).await.unwrap();
    let application = case.application();
    let mut log = application.prepare("SELECT who, why, action, id, status FROM orders_outbox_log").unwrap();
    let lines: Vec<[String; 5]> = log
        .query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let line =
        |action: &str, id: RowId, status: &str| ["ada", "test", action, &id.to_string(), status].map(str::to_owned);
    assert_eq!(lines, [line("retry", ids[0], "invalid"), line("discard", ids[1], "pending")]);
}

#[tokio::test]
async fn decision_13_discarding_the_highest_row_keeps_its_seq_from_being_used_again() {
    let (_case, store) = Case::migrated().await;
    let id = RowId::generate();
    store.produce(&[text("t", "a").id(id)]).await.unwrap();
    assert_eq!(store.discard(&Selection::Ids(vec![id]), &by(), 1).await.unwrap().changed, 1);
    assert!(store.get(id).await.unwrap().is_none());
    let again = store.produce(&[text("t", "b").id(id)]).await.unwrap();
    assert!(!again[0].existing, "the id is free again");
    assert_eq!(read(&store, 0).await.rows[0].seq, 2);
}

#[tokio::test]
async fn report_139_pruning_is_bounded_goes_in_order_and_spares_what_must_stay() {
    let (_case, store) = Case::migrated().await;
    let ids = produced(&store, 6).await;
    mark_ids(&store, &ids[..3]).await.unwrap();
    mark_ids(&store, &ids[4..]).await.unwrap();
    // Nothing is older than zero within the same millisecond.
    while store.count_prunable(&old(Status::Published)).await.unwrap() < 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.prune(&old(Status::Published), 2).await.unwrap(), 2);
    assert!(store.get(ids[0]).await.unwrap().is_none() && store.get(ids[2]).await.unwrap().is_some());
    assert_eq!(store.prune(&old(Status::Published), 9).await.unwrap(), 2);
    let left: Vec<RowId> = store.list(&Filter::default(), 0, 9).await.unwrap().iter().map(|row| row.id).collect();
    assert_eq!(left, [ids[3], ids[5]], "the undelivered row, and the one with the highest seq");
    let young = PruneRequest { status: Status::Published, older_than: DEADLINE * 1000 };
    assert_eq!(store.prune(&young, 9).await.unwrap(), 0);
}

#[tokio::test]
async fn report_143_dead_letters_have_an_end_too_and_undelivered_rows_have_none() {
    let (_case, store) = Case::migrated().await;
    let ids = produced(&store, 2).await;
    store.settle(&[invalid(ids[0])]).await.unwrap();
    while store.count_prunable(&old(Status::Invalid)).await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.prune(&old(Status::Invalid), 9).await.unwrap(), 1);
    assert!(store.prune(&old(Status::Pending), 9).await.is_err());
    assert_eq!(store.status().await.unwrap().pending, 1);
}

#[tokio::test]
async fn status_counts_and_names_what_is_deferred() {
    let (_case, store) = Case::migrated().await;
    let ids = produced(&store, 4).await;
    store.produce(&[text("invoice.sent", "")]).await.unwrap();
    let deferred = read(&store, 4).await.rows[0].id;
    mark_ids(&store, &ids[1..2]).await.unwrap();
    let note = Settlement::Note { id: deferred, error: "deferred: no route".to_owned() };
    store.settle(&[invalid(ids[0]), retry(ids[2], DEADLINE), note]).await.unwrap();
    let status = store.status().await.unwrap();
    let counts = [status.pending, status.processing, status.failed, status.published, status.invalid];
    assert_eq!((counts, status.published_is_estimate), ([2, 0, 1, 1, 1], false));
    assert_eq!(status.deferred_types, ["invoice.sent"]);
    assert!(status.oldest_pending.unwrap() < DEADLINE);
}

#[tokio::test]
async fn lists_page_by_seq_and_match_literally() {
    let (_case, store) = Case::migrated().await;
    let types = ["order.placed", "order.paid", "Order.placed", "order[x]", "order?x"];
    let events = types.map(|event_type| text(event_type, "b").tenant("t1"));
    store.produce(&events).await.unwrap();
    let found = async |pattern: &str, after: Seq, limit: u32| -> Vec<String> {
        let filter =
            Filter { event_type: Some(pattern.to_owned()), tenant: Some("t1".to_owned()), ..Filter::default() };
        store.list(&filter, after, limit).await.unwrap().into_iter().map(|row| row.event_type).collect()
    };
    assert_eq!(found("order.*", 0, 9).await, ["order.placed", "order.paid"]);
    assert_eq!(found("order*", 1, 2).await, ["order.paid", "order[x]"]);
    assert_eq!(found("order[x]", 0, 9).await, ["order[x]"]);
    assert_eq!(found("order?x", 0, 9).await, ["order?x"]);
}

#[tokio::test]
async fn the_predecessor_is_the_first_undelivered_row_of_the_key() {
    let (_case, store) = Case::migrated().await;
    let ids = produced(&store, 3).await;
    let last = get(&store, ids[2]).await;
    assert_eq!(store.predecessor(&last).await.unwrap().unwrap().id, ids[0]);
    mark_ids(&store, &ids[..2]).await.unwrap();
    assert!(store.predecessor(&last).await.unwrap().is_none());
}
