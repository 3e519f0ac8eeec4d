//! Marking rows as published.

use std::time::Duration;

use posthaste_core::{
    RouteKey, RowId, Status,
    port::{Selection, Settlement},
};

use super::scene::{Scene, by, event, numbered};
use crate::{mark_ids, suite::case::cases};

cases![Scene;
    port_m_marked_rows_are_published,
    port_m1_repeating_keeps_published_at,
    port_m1_unknown_and_repeated_ids_are_harmless,
    port_m3_a_row_that_came_again_under_its_id_is_not_marked,
    port_m2_published_at_is_the_databases_clock,
    port_m2_outstanding_and_last_error_become_absent,
    port_m_failed_and_claimed_rows_are_marked_too,
    port_m_a_thousand_rows_in_one_call,
    port_m_without_retention_marked_rows_are_deleted,
    port_m_without_retention_no_seq_is_used_again,
];

async fn port_m_marked_rows_are_published(scene: &Scene) {
    let rows = scene.commit(&(0..4).map(numbered).collect::<Vec<_>>()).await;
    assert_eq!(scene.mark(&[rows[2].id, rows[0].id]).await, 2);
    let left: Vec<RowId> = scene.undelivered().await.iter().map(|row| row.id).collect();
    assert_eq!(left, [rows[1].id, rows[3].id]);
    assert_eq!(scene.get(rows[0].id).await.status, Status::Published);
    assert_eq!(scene.get(rows[1].id).await.status, Status::Pending);
}

async fn port_m1_repeating_keeps_published_at(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    assert_eq!(scene.mark(&[id]).await, 1);
    scene.place.age(scene.seq(id).await, Duration::from_secs(60)).await;
    let first = scene.get(id).await.published_at;
    assert_eq!(scene.mark(&[id]).await, 0);
    assert_eq!(scene.get(id).await.published_at, first);
}

async fn port_m1_unknown_and_repeated_ids_are_harmless(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    assert_eq!(scene.mark(&[]).await, 0);
    assert_eq!(scene.mark(&[RowId::generate(), id, id]).await, 1);
    assert_eq!(scene.get(id).await.status, Status::Published);
}

async fn port_m3_a_row_that_came_again_under_its_id_is_not_marked(scene: &Scene) {
    let id = RowId::generate();
    scene.commit_one(event("first").id(id)).await;
    let sent = scene.get(id).await.reference();
    let gone = scene.store.discard(&Selection::Ids(vec![id]), &by(), 10).await.expect("discard");
    assert_eq!(gone.changed, 1);
    scene.commit_one(event("second").id(id)).await;
    assert_eq!(scene.store.mark(&[sent]).await.expect("mark").changed, 0);
    let row = scene.get(id).await;
    assert_eq!((row.status, row.event_type.as_str()), (Status::Pending, "second"));
}

async fn port_m2_published_at_is_the_databases_clock(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    let before = scene.now().await;
    scene.mark(&[id]).await;
    let after = scene.now().await;
    let at = scene.get(id).await.published_at.expect("published_at");
    assert!(before <= at && at <= after, "{before} {at} {after}");
}

async fn port_m2_outstanding_and_last_error_become_absent(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    scene.fail(id).await;
    scene.settle(&[Settlement::Progress { id, outstanding: vec![RouteKey::from("b")] }]).await;
    scene.mark(&[id]).await;
    let row = scene.get(id).await;
    assert_eq!((row.outstanding, row.last_error), (None, None));
    assert_eq!(row.attempts, 1, "its history stays");
}

async fn port_m_failed_and_claimed_rows_are_marked_too(scene: &Scene) {
    let rows = scene.commit(&[numbered(0), numbered(1)]).await;
    scene.fail(rows[0].id).await;
    scene.claim(rows[1].id).await;
    assert_eq!(scene.mark(&[rows[0].id, rows[1].id]).await, 2);
    assert_eq!(scene.undelivered().await, []);
}

async fn port_m_a_thousand_rows_in_one_call(scene: &Scene) {
    let rows = scene.commit(&(0..1000).map(numbered).collect::<Vec<_>>()).await;
    let ids: Vec<RowId> = rows.iter().map(|row| row.id).collect();
    assert_eq!(scene.mark(&ids).await, 1000);
    assert_eq!(scene.undelivered().await, []);
}

async fn port_m_without_retention_marked_rows_are_deleted(scene: &Scene) {
    let store = scene.place.open(Duration::ZERO);
    let rows = scene.commit(&(0..4).map(numbered).collect::<Vec<_>>()).await;
    let ids: Vec<RowId> = rows[..3].iter().map(|row| row.id).collect();
    assert_eq!(mark_ids(store.as_ref(), &ids).await.expect("mark").changed, 3);
    for id in &ids {
        assert_eq!(scene.find(*id).await, None);
    }
    assert_eq!(mark_ids(store.as_ref(), &ids).await.expect("mark").changed, 0, "repeating is harmless");
    assert_eq!(scene.undelivered().await.len(), 1);
}

async fn port_m_without_retention_no_seq_is_used_again(scene: &Scene) {
    let store = scene.place.open(Duration::ZERO);
    let rows = scene.commit(&[numbered(0), numbered(1)]).await;
    let highest = scene.seq(rows[1].id).await;
    mark_ids(store.as_ref(), &[rows[0].id, rows[1].id]).await.expect("mark");
    assert_eq!(scene.undelivered().await, []);
    let id = scene.commit_one(event("next")).await;
    assert!(scene.seq(id).await > highest, "a cursor at {highest} would skip it");
}
