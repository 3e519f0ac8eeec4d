//! Enqueueing, in the caller's transaction and in one of its own.

use posthaste_core::{
    Event, EventError, RowId,
    port::{EnqueueError, Enqueued},
};

use super::scene::{Scene, blob, event, numbered};
use crate::suite::case::cases;

cases![Scene;
    port_e1_a_commit_shows_the_row,
    port_e1_a_rollback_hides_the_row,
    port_e1_nothing_shows_before_the_commit,
    port_e1_report_130_a_savepoint_takes_its_rows_along,
    port_e2_report_008_answers_come_in_the_order_of_the_events,
    port_e3_report_005_a_thousand_of_one_key_keep_the_order_of_the_calls,
    port_e3_a_later_transaction_comes_after_an_earlier_one,
    port_e4_report_001_a_row_that_commits_late_is_read needs ConcurrentWriters,
    port_e4_report_004_a_gap_left_by_a_rollback_hides_nothing,
    port_e5_report_135_a_repeat_is_a_no_op_that_says_so,
    port_e5_a_repeat_in_one_call_is_one_row,
    port_e5_decision_25_the_trace_context_is_no_content,
    port_e5_other_content_is_a_conflict_and_the_transaction_stays_usable,
    port_e5_every_kind_of_content_counts,
    port_e6_an_event_that_breaks_a_rule_leaves_the_transaction_as_it_was,
    port_e_no_events_are_no_rows,
    port_e_produce_writes_all_or_none,
    port_e_produce_answers_in_order,
];

async fn port_e1_a_commit_shows_the_row(scene: &Scene) {
    let id = scene.commit_one(event("order.placed")).await;
    let rows = scene.undelivered().await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
}

async fn port_e1_a_rollback_hides_the_row(scene: &Scene) {
    let mut tx = scene.begin().await;
    let receipt = tx.enqueue(&[event("order.placed")]).await.expect("enqueue");
    let id = receipt.rows()[0].id;
    tx.rollback().await;
    assert_eq!(scene.undelivered().await, []);
    assert_eq!(scene.find(id).await, None);
}

async fn port_e1_nothing_shows_before_the_commit(scene: &Scene) {
    let mut tx = scene.begin().await;
    let _ = tx.enqueue(&[event("order.placed")]).await.expect("enqueue");
    assert_eq!(scene.undelivered().await, []);
    tx.commit().await;
    assert_eq!(scene.undelivered().await.len(), 1);
}

async fn port_e1_report_130_a_savepoint_takes_its_rows_along(scene: &Scene) {
    let mut tx = scene.begin().await;
    let _ = tx.enqueue(&[event("outer.1")]).await.expect("enqueue");
    tx.execute("SAVEPOINT inner_work").await.expect("savepoint");
    let _ = tx.enqueue(&[event("inner")]).await.expect("enqueue");
    tx.execute("ROLLBACK TO SAVEPOINT inner_work").await.expect("rollback to savepoint");
    let _ = tx.enqueue(&[event("outer.2")]).await.expect("enqueue");
    tx.commit().await;
    let types: Vec<String> = scene.undelivered().await.into_iter().map(|row| row.event_type).collect();
    assert_eq!(types, ["outer.1", "outer.2"]);
}

async fn port_e2_report_008_answers_come_in_the_order_of_the_events(scene: &Scene) {
    let (seventh, thirty_first) = (RowId::generate(), RowId::generate());
    scene.commit(&[numbered(31).id(thirty_first), numbered(7).id(seventh)]).await;
    let events: Vec<Event> = (0..50)
        .map(|n| match n {
            7 => numbered(n).id(seventh),
            31 => numbered(n).id(thirty_first),
            _ => numbered(n),
        })
        .collect();
    let rows = scene.commit(&events).await;
    assert_eq!(rows.len(), 50);
    for (n, row) in rows.iter().enumerate() {
        assert_eq!(body_of(scene, row.id).await, n.to_string(), "answer {n}");
        assert_eq!(row.existing, n == 7 || n == 31, "answer {n}");
    }
}

async fn body_of(scene: &Scene, id: RowId) -> String {
    match scene.get(id).await.body {
        posthaste_core::Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).expect("UTF-8"),
        other => panic!("{id} has the body {other:?}"),
    }
}

async fn port_e3_report_005_a_thousand_of_one_key_keep_the_order_of_the_calls(scene: &Scene) {
    let events: Vec<Event> = (0..1000).map(|n| numbered(n).key("k")).collect();
    let mut tx = scene.begin().await;
    let _ = tx.enqueue(&events[..1]).await.expect("enqueue");
    let _ = tx.enqueue(&events[1..900]).await.expect("enqueue");
    let _ = tx.enqueue(&events[900..]).await.expect("enqueue");
    tx.commit().await;
    let rows = scene.undelivered().await;
    let bodies: Vec<_> = rows.iter().map(|row| row.body.clone()).collect();
    let expected: Vec<_> =
        events.iter().filter_map(|event| event.body.clone()).map(posthaste_core::Body::Bytes).collect();
    assert!(bodies == expected, "1000 rows in the order of the calls");
    assert!(rows.iter().all(|row| row.lane == rows[0].lane), "one key, one lane");
}

async fn port_e3_a_later_transaction_comes_after_an_earlier_one(scene: &Scene) {
    // The later event has the lower id: ids don't order.
    let (low, high) = (RowId::generate(), RowId::generate());
    scene.commit(&[numbered(0).key("k").id(high)]).await;
    scene.commit(&[numbered(1).key("k").id(low)]).await;
    let ids: Vec<RowId> = scene.undelivered().await.iter().map(|row| row.id).collect();
    assert_eq!(ids, [high, low]);
}

async fn port_e4_report_001_a_row_that_commits_late_is_read(scene: &Scene) {
    let mut early = scene.begin().await;
    let _ = early.enqueue(&[event("late")]).await.expect("enqueue");
    scene.commit(&[event("soon")]).await;
    assert_eq!(scene.undelivered().await.len(), 1);
    early.commit().await;
    let types: Vec<String> = scene.undelivered().await.into_iter().map(|row| row.event_type).collect();
    assert_eq!(types, ["late", "soon"]);
}

async fn port_e4_report_004_a_gap_left_by_a_rollback_hides_nothing(scene: &Scene) {
    scene.commit(&[numbered(1)]).await;
    let mut tx = scene.begin().await;
    let _ = tx.enqueue(&(0..100).map(numbered).collect::<Vec<_>>()).await.expect("enqueue");
    tx.rollback().await;
    scene.commit(&[numbered(3)]).await;
    assert_eq!(scene.undelivered().await.len(), 2);
}

async fn port_e5_report_135_a_repeat_is_a_no_op_that_says_so(scene: &Scene) {
    let again = event("order.placed").key("k").tenant("t").header("h", "v").id(RowId::generate());
    let mut tx = scene.begin().await;
    let first = tx.enqueue(std::slice::from_ref(&again)).await.expect("enqueue");
    let second = tx.enqueue(std::slice::from_ref(&again)).await.expect("a repeat");
    let _ = tx.enqueue(&[event("other")]).await.expect("the transaction is usable");
    tx.commit().await;
    assert!(!first.rows()[0].existing && second.rows()[0].existing);
    assert_eq!(first.rows()[0].id, second.rows()[0].id);
    assert!(scene.commit(&[again]).await[0].existing, "in a later transaction too");
    assert_eq!(scene.undelivered().await.len(), 2);
}

async fn port_e5_a_repeat_in_one_call_is_one_row(scene: &Scene) {
    let again = event("order.placed").id(RowId::generate());
    let rows = scene.commit(&[again.clone(), event("other"), again]).await;
    let existing: Vec<bool> = rows.iter().map(|row| row.existing).collect();
    assert_eq!(existing, [false, false, true]);
    assert_eq!(scene.undelivered().await.len(), 2);
}

async fn port_e5_decision_25_the_trace_context_is_no_content(scene: &Scene) {
    let plain = event("order.placed").header("h", "v").id(RowId::generate());
    scene.commit(&[plain.clone().header("traceparent", "00-1-1-01")]).await;
    let traced = plain.clone().header("traceparent", "00-2-2-01").header("tracestate", "a=b");
    assert!(scene.commit(&[traced]).await[0].existing);
    assert!(scene.commit(&[plain]).await[0].existing);
}

async fn port_e5_other_content_is_a_conflict_and_the_transaction_stays_usable(scene: &Scene) {
    let id = RowId::generate();
    scene.commit(&[event("first").id(id)]).await;
    let mut tx = scene.begin().await;
    let _ = tx.enqueue(&[event("before")]).await.expect("enqueue");
    let refused = tx.enqueue(&[event("between"), event("other").id(id)]).await;
    assert!(matches!(refused, Err(EnqueueError::Conflict { index: 1, id: taken }) if taken == id), "{refused:?}");
    let _ = tx.enqueue(&[event("after")]).await.expect("the transaction is usable");
    tx.commit().await;
    let types: Vec<String> = scene.undelivered().await.into_iter().map(|row| row.event_type).collect();
    assert_eq!(types, ["first", "before", "after"], "the refused call has left a row");
}

async fn port_e5_every_kind_of_content_counts(scene: &Scene) {
    let first = Event::new("t", "text/plain", "b").key("k").tenant("t").header("h", "v").id(RowId::generate());
    scene.commit(std::slice::from_ref(&first)).await;
    let others = [
        Event { event_type: "u".to_owned(), ..first.clone() },
        Event { key: Some("l".to_owned()), ..first.clone() },
        Event { key: None, ..first.clone() },
        Event { tenant: None, ..first.clone() },
        Event { content_type: "text/html".to_owned(), ..first.clone() },
        Event { body: Some("c".into()), ..first.clone() },
        Event { body: None, ..first.clone() },
        first.clone().header("h", "w"),
        first.clone().header("i", "v"),
    ];
    for other in others {
        let mut tx = scene.begin().await;
        let refused = tx.enqueue(std::slice::from_ref(&other)).await;
        assert!(matches!(refused, Err(EnqueueError::Conflict { index: 0, .. })), "{other:?}: {refused:?}");
        tx.rollback().await;
    }
}

async fn port_e6_an_event_that_breaks_a_rule_leaves_the_transaction_as_it_was(scene: &Scene) {
    let bad = [
        (event("t").key("k\0"), EventError::Nul { field: "key" }),
        (event(""), EventError::Empty { field: "type" }),
        (
            blob(vec![0; Event::DEFAULT_MAX_BODY + 1]),
            EventError::TooLarge { field: "body", size: Event::DEFAULT_MAX_BODY + 1, limit: Event::DEFAULT_MAX_BODY },
        ),
    ];
    let mut tx = scene.begin().await;
    let _ = tx.enqueue(&[event("before")]).await.expect("enqueue");
    for (event_, rule) in bad {
        let refused = tx.enqueue(&[event("good"), event_]).await;
        assert!(matches!(&refused, Err(EnqueueError::Event { index: 1, error }) if *error == rule), "{refused:?}");
    }
    tx.commit().await;
    assert_eq!(scene.undelivered().await.len(), 1);
}

async fn port_e_no_events_are_no_rows(scene: &Scene) {
    assert_eq!(scene.commit(&[]).await, []);
    assert_eq!(scene.store.produce(&[]).await.expect("produce"), []);
    assert_eq!(scene.undelivered().await, []);
}

async fn port_e_produce_writes_all_or_none(scene: &Scene) {
    let id = RowId::generate();
    scene.store.produce(&[event("first").id(id)]).await.expect("produce");
    let refused = scene.store.produce(&[event("new"), event("other").id(id)]).await;
    assert!(matches!(refused, Err(EnqueueError::Conflict { index: 1, .. })), "{refused:?}");
    let refused = scene.store.produce(&[event("new"), event("")]).await;
    assert!(matches!(refused, Err(EnqueueError::Event { index: 1, .. })), "{refused:?}");
    assert_eq!(scene.undelivered().await.len(), 1);
}

async fn port_e_produce_answers_in_order(scene: &Scene) {
    let id = RowId::generate();
    scene.store.produce(&[numbered(1).id(id)]).await.expect("produce");
    let rows = scene.store.produce(&[numbered(0), numbered(1).id(id), numbered(2)]).await.expect("produce");
    for (n, Enqueued { id, lane, existing }) in rows.into_iter().enumerate() {
        assert_eq!(existing, n == 1);
        assert_eq!(body_of(scene, id).await, n.to_string());
        assert_eq!(scene.get(id).await.lane, lane);
    }
}
