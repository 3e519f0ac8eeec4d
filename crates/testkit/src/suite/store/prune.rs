//! Deleting history in small batches.

use std::time::Duration;

use posthaste_core::{RowId, Status, port::PruneRequest};

use super::scene::{Scene, event, numbered};
use crate::suite::case::cases;

cases![Scene;
    port_p1_undelivered_rows_are_never_pruned,
    port_p1_only_old_rows_of_the_status_are_pruned,
    report_139_a_prune_is_bounded_and_goes_by_seq,
    report_139_rows_that_are_locked_are_skipped needs ConcurrentWriters,
    report_143_every_end_of_a_row_can_be_pruned,
    port_p2_no_seq_is_used_again_after_a_prune,
    port_p_count_says_what_a_prune_would_delete,
];

const HOUR: Duration = Duration::from_secs(3600);

fn older_than_an_hour(status: Status) -> PruneRequest {
    PruneRequest { status, older_than: HOUR }
}

async fn prune(scene: &Scene, request: &PruneRequest, limit: u32) -> u64 {
    scene.store.prune(request, limit).await.expect("prune")
}

async fn age(scene: &Scene, id: RowId) {
    scene.place.age(scene.seq(id).await, HOUR * 2).await;
}

/// So many rows published two hours ago, with a pending row after them.
async fn history(scene: &Scene, count: usize) -> Vec<RowId> {
    let rows = scene.commit(&(0..=count).map(numbered).collect::<Vec<_>>()).await;
    let ids: Vec<RowId> = rows[..count].iter().map(|row| row.id).collect();
    scene.mark(&ids).await;
    for id in &ids {
        age(scene, *id).await;
    }
    ids
}

async fn port_p1_undelivered_rows_are_never_pruned(scene: &Scene) {
    let rows = scene.commit(&(0..4).map(numbered).collect::<Vec<_>>()).await;
    scene.claim(rows[1].id).await;
    scene.fail(rows[2].id).await;
    for row in &rows {
        age(scene, row.id).await;
    }
    for status in Status::ALL {
        // A status that is not an end may be refused as well.
        let deleted = scene.store.prune(&older_than_an_hour(status), 100).await.unwrap_or(0);
        assert_eq!(deleted, 0, "{status}");
    }
    assert_eq!(scene.undelivered().await.len(), 4);
}

async fn port_p1_only_old_rows_of_the_status_are_pruned(scene: &Scene) {
    let ids = history(scene, 2).await;
    let rows = scene.commit(&(0..3).map(numbered).collect::<Vec<_>>()).await;
    scene.mark(&[rows[0].id]).await;
    scene.invalidate(rows[1].id).await;
    age(scene, rows[1].id).await;
    assert_eq!(prune(scene, &older_than_an_hour(Status::Published), 100).await, 2);
    assert_eq!(scene.find(ids[0]).await, None);
    assert_eq!(scene.find(ids[1]).await, None);
    assert_eq!(scene.get(rows[0].id).await.status, Status::Published);
    assert_eq!(scene.get(rows[1].id).await.status, Status::Invalid);
}

async fn report_139_a_prune_is_bounded_and_goes_by_seq(scene: &Scene) {
    let ids = history(scene, 5).await;
    let request = older_than_an_hour(Status::Published);
    assert_eq!(prune(scene, &request, 2).await, 2);
    assert_eq!(scene.find(ids[1]).await, None);
    assert!(scene.find(ids[2]).await.is_some());
    assert_eq!(prune(scene, &request, 2).await, 2);
    assert_eq!(prune(scene, &request, 2).await, 1, "fewer than the limit: none are left");
    assert_eq!(prune(scene, &request, 2).await, 0);
    assert_eq!(scene.undelivered().await.len(), 1);
}

async fn report_139_rows_that_are_locked_are_skipped(scene: &Scene) {
    let ids = history(scene, 3).await;
    let mut tx = scene.begin().await;
    let seq = scene.seq(ids[0]).await;
    let lock = format!("UPDATE {} SET priority = 1 WHERE seq = {seq}", scene.table());
    tx.execute(&lock).await.expect("lock");
    let request = older_than_an_hour(Status::Published);
    let deleted = tokio::time::timeout(Duration::from_secs(20), prune(scene, &request, 100)).await;
    assert_eq!(deleted, Ok(2), "it does not wait for a lock");
    tx.rollback().await;
    assert_eq!(prune(scene, &request, 100).await, 1);
}

async fn report_143_every_end_of_a_row_can_be_pruned(scene: &Scene) {
    let rows = scene.commit(&(0..3).map(numbered).collect::<Vec<_>>()).await;
    scene.mark(&[rows[0].id]).await;
    scene.invalidate(rows[1].id).await;
    for row in &rows {
        age(scene, row.id).await;
    }
    assert_eq!(prune(scene, &older_than_an_hour(Status::Published), 10).await, 1);
    assert_eq!(prune(scene, &older_than_an_hour(Status::Invalid), 10).await, 1);
    assert_eq!(scene.find(rows[0].id).await, None);
    assert_eq!(scene.find(rows[1].id).await, None);
    assert!(scene.find(rows[2].id).await.is_some());
}

async fn port_p2_no_seq_is_used_again_after_a_prune(scene: &Scene) {
    let rows = scene.commit(&[numbered(0), numbered(1)]).await;
    let highest = scene.seq(rows[1].id).await;
    scene.mark(&[rows[0].id, rows[1].id]).await;
    for row in &rows {
        age(scene, row.id).await;
    }
    prune(scene, &older_than_an_hour(Status::Published), 100).await;
    let id = scene.commit_one(event("next")).await;
    assert!(scene.seq(id).await > highest, "a cursor at {highest} would skip it");
}

async fn port_p_count_says_what_a_prune_would_delete(scene: &Scene) {
    history(scene, 3).await;
    let request = older_than_an_hour(Status::Published);
    assert_eq!(scene.store.count_prunable(&request).await.expect("count"), 3);
    let longer = PruneRequest { older_than: HOUR * 3, ..request.clone() };
    assert_eq!(scene.store.count_prunable(&longer).await.expect("count"), 0);
    assert_eq!(prune(scene, &request, 100).await, 3);
    assert_eq!(scene.store.count_prunable(&request).await.expect("count"), 0);
}
