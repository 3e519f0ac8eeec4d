//! Recording outcomes other than "published".

use std::time::Duration;

use posthaste_core::{
    Body, RouteKey, Row, RowId, Status,
    port::{Settled, Settlement},
};

use super::scene::{Scene, event, numbered, retry};
use crate::suite::case::cases;

cases![Scene;
    port_s1_one_answer_each_in_order,
    port_s1_a_published_row_is_stale_and_not_changed,
    port_s1_a_row_that_is_gone_is_stale,
    port_s1_all_kinds_in_one_call,
    port_s2_a_retry_is_due_by_the_databases_clock,
    port_s_a_retry_counts_only_if_told,
    port_s_a_retry_keeps_outstanding_unless_it_changed,
    port_s_progress_leaves_the_status,
    port_s_a_note_changes_nothing_else,
    port_s3_an_invalid_row_keeps_everything,
    port_s_texts_come_back_as_they_are,
    port_s_no_settlements_are_no_answers,
];

fn routes(keys: &[&str]) -> Vec<RouteKey> {
    keys.iter().map(|key| RouteKey::from(*key)).collect()
}

async fn port_s1_one_answer_each_in_order(scene: &Scene) {
    let rows = scene.commit(&(0..4).map(numbered).collect::<Vec<_>>()).await;
    scene.mark(&[rows[2].id]).await;
    let order = [rows[2].id, rows[3].id, RowId::generate(), rows[0].id];
    let answers = scene.settle(&order.map(|id| retry(id, 60))).await;
    assert_eq!(answers, [Settled::Stale, Settled::Done, Settled::Stale, Settled::Done]);
    assert_eq!(scene.get(rows[1].id).await.status, Status::Pending);
    assert_eq!(scene.get(rows[0].id).await.status, Status::Failed);
}

async fn port_s1_a_published_row_is_stale_and_not_changed(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    scene.mark(&[id]).await;
    let published = scene.get(id).await;
    for settlement in all_kinds(id) {
        assert_eq!(scene.settle(std::slice::from_ref(&settlement)).await, [Settled::Stale], "{settlement:?}");
        assert_eq!(scene.get(id).await, published, "{settlement:?}");
    }
}

async fn port_s1_a_row_that_is_gone_is_stale(scene: &Scene) {
    for settlement in all_kinds(RowId::generate()) {
        assert_eq!(scene.settle(std::slice::from_ref(&settlement)).await, [Settled::Stale], "{settlement:?}");
    }
}

fn all_kinds(id: RowId) -> [Settlement; 4] {
    let error = "unknown: 500".to_owned();
    [
        Settlement::Progress { id, outstanding: routes(&["a"]) },
        retry(id, 60),
        Settlement::Invalid { id, counted: true, error: error.clone(), outstanding: None },
        Settlement::Note { id, error },
    ]
}

async fn port_s1_all_kinds_in_one_call(scene: &Scene) {
    let rows = scene.commit(&(0..4).map(numbered).collect::<Vec<_>>()).await;
    let batch: Vec<Settlement> = rows.iter().enumerate().map(|(n, row)| all_kinds(row.id)[n].clone()).collect();
    assert_eq!(scene.settle(&batch).await, [Settled::Done; 4]);
    let mut found = Vec::new();
    for row in &rows {
        let Row { status, attempts, .. } = scene.get(row.id).await;
        found.push((status, attempts));
    }
    assert_eq!(found, [(Status::Pending, 0), (Status::Failed, 1), (Status::Invalid, 1), (Status::Pending, 0)]);
}

async fn port_s2_a_retry_is_due_by_the_databases_clock(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    let minute = Duration::from_secs(60);
    let before = scene.now().await;
    scene.settle(&[retry(id, 60)]).await;
    let after = scene.now().await;
    let due_at = scene.get(id).await.due_at;
    assert!(due_at.since(before) >= minute && due_at.since(after) <= minute, "{before} {due_at} {after}");
}

async fn port_s_a_retry_counts_only_if_told(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    let counted = retry(id, 1);
    let Settlement::Retry { due_in, error, outstanding, .. } = counted.clone() else { unreachable!() };
    let uncounted = Settlement::Retry { id, due_in, counted: false, error, outstanding };
    for settlement in [&counted, &uncounted, &counted] {
        scene.settle(std::slice::from_ref(settlement)).await;
    }
    let row = scene.get(id).await;
    assert_eq!((row.status, row.attempts), (Status::Failed, 2));
    assert_eq!(row.last_error.as_deref(), Some("unknown: 500"));
}

async fn port_s_a_retry_keeps_outstanding_unless_it_changed(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    scene.settle(&[Settlement::Progress { id, outstanding: routes(&["a", "b"]) }]).await;
    scene.settle(&[retry(id, 1)]).await;
    assert_eq!(scene.get(id).await.outstanding, Some(routes(&["a", "b"])));
    let Settlement::Retry { due_in, counted, error, .. } = retry(id, 1) else { unreachable!() };
    scene.settle(&[Settlement::Retry { id, due_in, counted, error, outstanding: Some(routes(&["b"])) }]).await;
    assert_eq!(scene.get(id).await.outstanding, Some(routes(&["b"])));
}

async fn port_s_progress_leaves_the_status(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    scene.fail(id).await;
    let before = scene.get(id).await;
    // Route keys are users' texts.
    let outstanding = routes(&["b", "with space", "it's \"{odd}\", \\ ë"]);
    scene.settle(&[Settlement::Progress { id, outstanding: outstanding.clone() }]).await;
    assert_eq!(scene.get(id).await, Row { outstanding: Some(outstanding), ..before });
}

async fn port_s_a_note_changes_nothing_else(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    let before = scene.get(id).await;
    let error = "deferred: no route matches t".to_owned();
    scene.settle(&[Settlement::Note { id, error: error.clone() }]).await;
    assert_eq!(scene.get(id).await, Row { last_error: Some(error), ..before });
}

async fn port_s3_an_invalid_row_keeps_everything(scene: &Scene) {
    let id = scene.commit_one(event("t").key("k").tenant("acme").header("h", "v")).await;
    scene.fail(id).await;
    let before = scene.get(id).await;
    let error = "permanent: too large".to_owned();
    let outstanding = Some(routes(&["b"]));
    let dead = Settlement::Invalid { id, counted: true, error: error.clone(), outstanding: outstanding.clone() };
    assert_eq!(scene.settle(&[dead]).await, [Settled::Done]);
    let row = scene.get(id).await;
    assert!(matches!(row.body, Body::Bytes(_)), "{:?}", row.body);
    let kept = Row {
        due_at: row.due_at,
        status: Status::Invalid,
        attempts: 2,
        last_error: Some(error),
        outstanding,
        ..before
    };
    assert_eq!(row, kept);
    assert_eq!(scene.undelivered().await, []);
}

async fn port_s_texts_come_back_as_they_are(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    let error = format!("permanent: it's \"{}\" \\ ë", "x".repeat(400));
    let dead = Settlement::Invalid { id, counted: false, error: error.clone(), outstanding: None };
    scene.settle(&[dead]).await;
    let row = scene.get(id).await;
    assert_eq!((row.last_error, row.attempts), (Some(error), 0));
}

async fn port_s_no_settlements_are_no_answers(scene: &Scene) {
    assert_eq!(scene.settle(&[]).await, []);
}
