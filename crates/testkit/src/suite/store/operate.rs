//! Repairing an outbox: retry and discard.

use posthaste_core::{
    Row, RowId, Status,
    port::{Filter, OperateReport, Selection},
};

use super::scene::{Scene, by, event, numbered};
use crate::suite::case::cases;

cases![Scene;
    report_088_a_retried_row_is_due_now_with_no_attempts,
    port_o1_retry_is_bounded_and_says_how_many_match,
    port_o1_discard_is_bounded_and_says_how_many_match,
    port_o2_retry_leaves_claimed_and_published_rows,
    port_o2_discard_leaves_claimed_and_published_rows,
    port_o3_retry_records_who_and_why,
    port_o3_discard_records_who_and_why,
    port_o4_a_retried_dead_letter_goes_to_the_end_of_its_outbox,
    port_o_discarded_rows_are_gone,
    port_o_discard_lets_no_seq_be_used_again,
    port_o_a_filter_selects_what_it_lists,
    port_o_count_says_what_a_call_would_change,
];

fn status(status: Status) -> Selection {
    Selection::Matching(Filter { status: Some(status), ..Filter::default() })
}

async fn retry(scene: &Scene, selection: &Selection, limit: u32) -> OperateReport {
    scene.store.retry(selection, &by(), limit).await.expect("retry")
}

async fn discard(scene: &Scene, selection: &Selection, limit: u32) -> OperateReport {
    scene.store.discard(selection, &by(), limit).await.expect("discard")
}

/// So many dead letters, with a pending row after them.
async fn dead_letters(scene: &Scene, count: usize) -> Vec<RowId> {
    let rows = scene.commit(&(0..=count).map(numbered).collect::<Vec<_>>()).await;
    for row in &rows[..count] {
        scene.invalidate(row.id).await;
    }
    rows[..count].iter().map(|row| row.id).collect()
}

async fn report_088_a_retried_row_is_due_now_with_no_attempts(scene: &Scene) {
    let rows = scene.commit(&[numbered(0), numbered(1)]).await;
    for row in &rows {
        scene.fail(row.id).await;
    }
    scene.invalidate(rows[1].id).await;
    let ids = vec![rows[0].id, rows[1].id];
    assert_eq!(retry(scene, &Selection::Ids(ids), 10).await, OperateReport { matched: 2, changed: 2 });
    let now = scene.now().await;
    for row in &rows {
        let Row { status, attempts, due_at, body, .. } = scene.get(row.id).await;
        assert!(status.is_undelivered() && due_at <= now, "{status} {due_at} {now}");
        assert_eq!(attempts, 0);
        assert_eq!(body.len(), 1, "the body stays");
    }
    assert_eq!(scene.undelivered().await.len(), 2);
}

async fn port_o1_retry_is_bounded_and_says_how_many_match(scene: &Scene) {
    dead_letters(scene, 5).await;
    let mut reports = Vec::new();
    for _ in 0..4 {
        let report = retry(scene, &status(Status::Invalid), 2).await;
        reports.push((report.matched, report.changed));
    }
    assert_eq!(reports, [(5, 2), (3, 2), (1, 1), (0, 0)]);
    assert_eq!(scene.undelivered().await.len(), 6);
}

async fn port_o1_discard_is_bounded_and_says_how_many_match(scene: &Scene) {
    dead_letters(scene, 5).await;
    let mut reports = Vec::new();
    for _ in 0..4 {
        let report = discard(scene, &status(Status::Invalid), 2).await;
        reports.push((report.matched, report.changed));
    }
    assert_eq!(reports, [(5, 2), (3, 2), (1, 1), (0, 0)]);
    assert_eq!(scene.undelivered().await.len(), 1);
}

/// A claimed and a published row, with a pending one after them.
async fn untouchable(scene: &Scene) -> Vec<RowId> {
    let rows = scene.commit(&(0..3).map(numbered).collect::<Vec<_>>()).await;
    scene.claim(rows[0].id).await;
    scene.mark(&[rows[1].id]).await;
    rows[..2].iter().map(|row| row.id).collect()
}

async fn port_o2_retry_leaves_claimed_and_published_rows(scene: &Scene) {
    let ids = untouchable(scene).await;
    let before = [scene.get(ids[0]).await, scene.get(ids[1]).await];
    for selection in [Selection::Ids(ids.clone()), status(Status::Processing), status(Status::Published)] {
        assert_eq!(retry(scene, &selection, 10).await, OperateReport::default(), "{selection:?}");
    }
    assert_eq!([scene.get(ids[0]).await, scene.get(ids[1]).await], before);
}

async fn port_o2_discard_leaves_claimed_and_published_rows(scene: &Scene) {
    let ids = untouchable(scene).await;
    for selection in [Selection::Ids(ids.clone()), status(Status::Processing), status(Status::Published)] {
        assert_eq!(discard(scene, &selection, 10).await, OperateReport::default(), "{selection:?}");
    }
    let everything = discard(scene, &Selection::Matching(Filter::default()), 10).await;
    assert_eq!(everything, OperateReport { matched: 1, changed: 1 });
    assert_eq!(scene.get(ids[0]).await.status, Status::Processing);
    assert_eq!(scene.get(ids[1]).await.status, Status::Published);
}

/// Who, why and which action the log holds.
async fn log(scene: &Scene) -> Vec<Vec<Option<String>>> {
    let log = scene.outbox.table() + "_log";
    scene.sql(&format!("SELECT who, why, action FROM \"{log}\" ORDER BY at")).await
}

fn entries(action: &str, count: usize) -> Vec<Vec<Option<String>>> {
    vec![vec![Some(by().who), Some(by().why), Some(action.to_owned())]; count]
}

async fn port_o3_retry_records_who_and_why(scene: &Scene) {
    let ids = dead_letters(scene, 2).await;
    retry(scene, &Selection::Ids(ids), 10).await;
    assert_eq!(log(scene).await, entries("retry", 2));
}

async fn port_o3_discard_records_who_and_why(scene: &Scene) {
    let ids = dead_letters(scene, 3).await;
    discard(scene, &Selection::Ids(ids), 2).await;
    assert_eq!(log(scene).await, entries("discard", 2));
}

async fn port_o4_a_retried_dead_letter_goes_to_the_end_of_its_outbox(scene: &Scene) {
    let events: Vec<_> = (0..4).map(|n| numbered(n).key("k")).collect();
    let ids: Vec<RowId> = scene.commit(&events).await.iter().map(|row| row.id).collect();
    scene.invalidate(ids[0]).await;
    scene.fail(ids[1]).await;
    let second = scene.seq(ids[1]).await;
    retry(scene, &Selection::Ids(vec![ids[0], ids[1]]), 10).await;
    let order: Vec<RowId> = scene.undelivered().await.iter().map(|row| row.id).collect();
    assert_eq!(order, [ids[1], ids[2], ids[3], ids[0]]);
    assert_eq!(scene.seq(ids[1]).await, second);
    let last = scene.commit_one(event("last").key("k")).await;
    assert!(scene.seq(last).await > scene.seq(ids[0]).await, "a new row comes after it");
}

async fn port_o_discarded_rows_are_gone(scene: &Scene) {
    let rows = scene.commit(&(0..4).map(numbered).collect::<Vec<_>>()).await;
    scene.fail(rows[1].id).await;
    scene.invalidate(rows[2].id).await;
    let ids: Vec<RowId> = rows[..3].iter().map(|row| row.id).collect();
    let report = discard(scene, &Selection::Ids(ids.clone()), 10).await;
    assert_eq!(report, OperateReport { matched: 3, changed: 3 });
    for id in ids {
        assert_eq!(scene.find(id).await, None);
    }
    assert_eq!(scene.undelivered().await.len(), 1);
}

async fn port_o_discard_lets_no_seq_be_used_again(scene: &Scene) {
    let rows = scene.commit(&[numbered(0), numbered(1)]).await;
    let highest = scene.seq(rows[1].id).await;
    let report = discard(scene, &Selection::Ids(rows.iter().map(|row| row.id).collect()), 10).await;
    assert_eq!(report, OperateReport { matched: 2, changed: 2 });
    assert_eq!(scene.undelivered().await, []);
    let id = scene.commit_one(event("next")).await;
    assert!(scene.seq(id).await > highest, "a cursor at {highest} would skip it");
}

async fn port_o_a_filter_selects_what_it_lists(scene: &Scene) {
    let rows = scene.commit(&[event("a_1"), event("aX1"), event("a_2").tenant("t"), event("b")]).await;
    let filter = Filter { event_type: Some("a_*".to_owned()), ..Filter::default() };
    let listed = scene.store.list(&filter, 0, 10).await.expect("list");
    assert_eq!(listed.iter().map(|row| row.id).collect::<Vec<_>>(), [rows[0].id, rows[2].id]);
    assert_eq!(discard(scene, &Selection::Matching(filter), 10).await.changed, 2);
    let left: Vec<RowId> = scene.undelivered().await.iter().map(|row| row.id).collect();
    assert_eq!(left, [rows[1].id, rows[3].id]);
}

async fn port_o_count_says_what_a_call_would_change(scene: &Scene) {
    let mut ids = untouchable(scene).await;
    ids.extend(dead_letters(scene, 3).await);
    ids.push(RowId::generate());
    let count = async |selection: Selection| scene.store.count(&selection).await.expect("count");
    assert_eq!(count(status(Status::Invalid)).await, 3);
    assert_eq!(count(status(Status::Published)).await, 0);
    assert_eq!(count(Selection::Matching(Filter::default())).await, 5);
    assert_eq!(count(Selection::Ids(ids.clone())).await, 3);
    assert_eq!(retry(scene, &Selection::Ids(ids), 10).await, OperateReport { matched: 3, changed: 3 });
}
