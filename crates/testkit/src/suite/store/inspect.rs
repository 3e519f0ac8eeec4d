//! Looking at an outbox.

use std::time::Duration;

use posthaste_core::{
    Body, Row, RowId, Seq, Status,
    port::{Filter, Settlement},
};

use super::scene::{Scene, event, numbered};
use crate::suite::case::cases;

cases![Scene;
    port_i1_status_counts_by_status,
    port_i1_status_of_an_empty_outbox,
    port_i1_the_age_of_the_oldest_row_to_be_delivered,
    port_i1_deferred_types_are_named,
    port_i2_a_list_ascends_and_pages,
    report_148_a_list_leaves_bodies_out,
    port_i_filters_must_all_match,
    port_i_the_star_of_a_type_is_the_only_wildcard,
    port_i_get_brings_the_body_of_any_row,
    port_i_the_predecessor_is_the_first_undelivered_of_the_key,
    port_i_the_one_who_made_an_outbox_lacks_nothing,
];

async fn list(scene: &Scene, filter: Filter) -> Vec<Row> {
    scene.store.list(&filter, 0, 1000).await.expect("list")
}

async fn types(scene: &Scene, glob: &str) -> Vec<String> {
    let filter = Filter { event_type: Some(glob.to_owned()), ..Filter::default() };
    list(scene, filter).await.into_iter().map(|row| row.event_type).collect()
}

/// One row of each status in the order of `Status::ALL`, and one more that is pending.
async fn one_of_each(scene: &Scene) -> Vec<RowId> {
    let rows = scene.commit(&(0..6).map(numbered).collect::<Vec<_>>()).await;
    let ids: Vec<RowId> = rows.iter().map(|row| row.id).collect();
    scene.claim(ids[1]).await;
    scene.fail(ids[2]).await;
    scene.mark(&[ids[3]]).await;
    scene.invalidate(ids[4]).await;
    ids
}

async fn port_i1_status_counts_by_status(scene: &Scene) {
    one_of_each(scene).await;
    let status = scene.store.status().await.expect("status");
    assert_eq!((status.pending, status.processing, status.failed, status.invalid), (2, 1, 1, 1));
    assert!(status.published == 1 || status.published_is_estimate, "{status:?}");
}

async fn port_i1_status_of_an_empty_outbox(scene: &Scene) {
    let status = scene.store.status().await.expect("status");
    assert_eq!((status.pending, status.processing, status.failed, status.invalid), (0, 0, 0, 0));
    assert_eq!((status.oldest_pending, status.relays), (None, vec![]));
}

async fn port_i1_the_age_of_the_oldest_row_to_be_delivered(scene: &Scene) {
    let ids = one_of_each(scene).await;
    scene.place.age(scene.seq(ids[3]).await, Duration::from_secs(9000)).await;
    scene.place.age(scene.seq(ids[4]).await, Duration::from_secs(9000)).await;
    scene.place.age(scene.seq(ids[2]).await, Duration::from_secs(3600)).await;
    let oldest = scene.store.status().await.expect("status").oldest_pending.expect("an age");
    assert!((3600..9000).contains(&oldest.as_secs()), "{oldest:?}");
    scene.mark(&ids).await;
    assert_eq!(scene.store.status().await.expect("status").oldest_pending, None);
}

async fn port_i1_deferred_types_are_named(scene: &Scene) {
    let rows = scene.commit(&[event("invoice.sent"), event("invoice.sent"), event("order.placed")]).await;
    for row in &rows[..2] {
        let error = "deferred: no route matches invoice.sent".to_owned();
        scene.settle(&[Settlement::Note { id: row.id, error }]).await;
    }
    let status = scene.store.status().await.expect("status");
    assert_eq!(status.deferred_types, ["invoice.sent"]);
}

async fn port_i2_a_list_ascends_and_pages(scene: &Scene) {
    let rows = scene.commit(&(0..10).map(numbered).collect::<Vec<_>>()).await;
    scene.mark(&[rows[4].id]).await;
    let mut after: Seq = 0;
    let mut ids = Vec::new();
    loop {
        let page = scene.store.list(&Filter::default(), after, 3).await.expect("list");
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = last.seq;
        ids.extend(page.iter().map(|row| row.id));
    }
    assert_eq!(ids, rows.iter().map(|row| row.id).collect::<Vec<_>>());
}

async fn report_148_a_list_leaves_bodies_out(scene: &Scene) {
    scene.commit(&[numbered(1).key("k").header("h", "v"), numbered(2).key("k")]).await;
    let rows = list(scene, Filter::default()).await;
    assert!(rows.iter().all(|row| row.body == Body::Null), "{rows:?}");
    assert_eq!(rows[0].headers["h"], "v");
    let first = scene.store.predecessor(&rows[1]).await.expect("predecessor").expect("a row");
    assert_eq!((first.id, first.body), (rows[0].id, Body::Null));
}

async fn port_i_filters_must_all_match(scene: &Scene) {
    let rows = scene
        .commit(&[
            event("a").key("k").tenant("t"),
            event("a").key("k").tenant("u"),
            event("b").key("k").tenant("t"),
            event("a").key("l").tenant("t"),
            event("a"),
            event("a").key("k").tenant("t"),
        ])
        .await;
    scene.mark(&[rows[5].id]).await;
    let all = Filter {
        status: Some(Status::Pending),
        event_type: Some("a".to_owned()),
        key: Some("k".to_owned()),
        tenant: Some("t".to_owned()),
    };
    let count = async |filter: Filter| list(scene, filter).await.len();
    assert_eq!(list(scene, all.clone()).await.iter().map(|row| row.id).collect::<Vec<_>>(), [rows[0].id]);
    assert_eq!(count(Filter { status: None, ..all.clone() }).await, 2);
    assert_eq!(count(Filter { status: Some(Status::Published), ..all.clone() }).await, 1);
    assert_eq!(count(Filter { event_type: None, ..all.clone() }).await, 2);
    assert_eq!(count(Filter { key: None, ..all.clone() }).await, 2);
    assert_eq!(count(Filter { tenant: None, ..all }).await, 2);
    assert_eq!(count(Filter::default()).await, 6);
}

async fn port_i_the_star_of_a_type_is_the_only_wildcard(scene: &Scene) {
    let names = [
        "order.placed",
        "order_placed",
        "orderXplaced",
        "order.paid",
        "100%",
        "100x",
        "a[b]c",
        "abc",
        "a?c",
        r"a\b",
        "Order.Placed",
    ];
    scene.commit(&names.map(event)).await;
    assert_eq!(types(scene, "order.*").await, ["order.placed", "order.paid"]);
    assert_eq!(types(scene, "*placed").await, ["order.placed", "order_placed", "orderXplaced"]);
    assert_eq!(types(scene, "order_placed").await, ["order_placed"]);
    assert_eq!(types(scene, "o*_*d").await, ["order_placed"]);
    assert_eq!(types(scene, "100%").await, ["100%"]);
    assert_eq!(types(scene, "a[b]*").await, ["a[b]c"]);
    assert_eq!(types(scene, "a?c").await, ["a?c"]);
    assert_eq!(types(scene, r"a\*").await, [r"a\b"]);
    assert_eq!(types(scene, "*").await.len(), names.len());
    assert_eq!(types(scene, "none.*").await, Vec::<String>::new());
}

async fn port_i_get_brings_the_body_of_any_row(scene: &Scene) {
    for id in one_of_each(scene).await {
        assert!(matches!(scene.get(id).await.body, Body::Bytes(_)));
    }
    assert_eq!(scene.find(RowId::generate()).await, None);
}

async fn port_i_the_predecessor_is_the_first_undelivered_of_the_key(scene: &Scene) {
    let events = [event("0").key("k"), event("1").key("k"), event("2").key("l"), event("3").key("k"), event("4")];
    let ids: Vec<RowId> = scene.commit(&events).await.iter().map(|row| row.id).collect();
    let predecessor = async |id: RowId| {
        let row = scene.get(id).await;
        scene.store.predecessor(&row).await.expect("predecessor").map(|row| row.id)
    };
    assert_eq!(predecessor(ids[3]).await, Some(ids[0]));
    assert_eq!(predecessor(ids[0]).await, None);
    assert_eq!(predecessor(ids[2]).await, None, "another key");
    assert_eq!(predecessor(ids[4]).await, None, "no key, no order");
    scene.mark(&[ids[0]]).await;
    assert_eq!(predecessor(ids[3]).await, Some(ids[1]));
    scene.invalidate(ids[1]).await;
    assert_eq!(predecessor(ids[3]).await, None, "a dead letter holds nothing back");
}

async fn port_i_the_one_who_made_an_outbox_lacks_nothing(scene: &Scene) {
    let access = scene.store.access().await.expect("access");
    assert_eq!(access.lacking, Vec::<String>::new());
    assert!(access.server.contains(|c: char| c.is_ascii_digit()), "no version in {:?}", access.server);
}
