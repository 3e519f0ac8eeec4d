//! Holding an outbox alone.

use std::time::Duration;

use futures_util::FutureExt;
use posthaste_core::{
    LANES,
    port::{Held, Store},
};

use super::scene::{Scene, random_name};
use crate::suite::case::cases;

cases![Scene;
    port_h1_decision_12_one_relay_holds_an_outbox,
    port_h1_released_it_is_free_at_once,
    port_h1_dropped_it_becomes_free,
    port_h1_racing_relays_get_one_hold,
    port_h_what_is_held_is_not_lost,
    port_h_the_status_names_the_holder,
    port_h_outboxes_are_held_each_on_its_own,
];

async fn hold(store: &dyn Store, name: &str) -> Option<Box<dyn Held>> {
    store.try_hold(name).await.expect("try_hold")
}

async fn port_h1_decision_12_one_relay_holds_an_outbox(scene: &Scene) {
    let (first, second) = (scene.reopen(), scene.reopen());
    let held = hold(&*first, "first").await.expect("free");
    assert!(hold(&*second, "second").await.is_none());
    assert!(hold(&*second, "first").await.is_none(), "its name does not matter");
    assert!(hold(&*first, "first").await.is_none(), "nor does the store object");
    held.release().await;
}

async fn port_h1_released_it_is_free_at_once(scene: &Scene) {
    let (first, second) = (scene.reopen(), scene.reopen());
    for _ in 0..3 {
        hold(&*first, "first").await.expect("free").release().await;
        hold(&*second, "second").await.expect("free").release().await;
    }
}

async fn port_h1_dropped_it_becomes_free(scene: &Scene) {
    let (first, second) = (scene.reopen(), scene.reopen());
    drop(hold(&*first, "first").await.expect("free"));
    let mut held = None;
    while held.is_none() {
        held = hold(&*second, "second").await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn port_h1_racing_relays_get_one_hold(scene: &Scene) {
    for _ in 0..5 {
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..4 {
            let store = scene.reopen();
            tasks.spawn(async move { hold(&*store, &format!("relay-{n}")).await });
        }
        let mut held: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(held.len(), 1);
        held.remove(0).release().await;
    }
}

async fn port_h_what_is_held_is_not_lost(scene: &Scene) {
    let mut held = hold(&*scene.store, "first").await.expect("free");
    assert_eq!(held.lost().now_or_never(), None);
    held.release().await;
}

async fn port_h_the_status_names_the_holder(scene: &Scene) {
    let held = hold(&*scene.store, "relay \"7\"").await.expect("free");
    let relays = scene.reopen().status().await.expect("status").relays;
    assert_eq!(relays.len(), 1, "{relays:?}");
    assert_eq!((relays[0].name.as_str(), relays[0].lanes), ("relay \"7\"", u32::from(LANES)));
    assert_eq!(relays[0].expires_in, None);
    held.release().await;
    assert_eq!(scene.store.status().await.expect("status").relays, []);
}

async fn port_h_outboxes_are_held_each_on_its_own(scene: &Scene) {
    let other = scene.another(random_name("other")).await;
    let held = hold(&*scene.store, "first").await.expect("free");
    let other_held = hold(&*other.store, "first").await.expect("free");
    held.release().await;
    other_held.release().await;
}
