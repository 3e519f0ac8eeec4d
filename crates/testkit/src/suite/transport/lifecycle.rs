//! Probing and closing.

use std::time::Duration;

use super::scene::{AMPLE, Scene, event, message};
use crate::suite::case::cases;

cases![Scene;
    port_h1_a_probe_of_a_live_target_succeeds,
    port_h1_a_probe_sends_nothing,
    port_p_close_is_idempotent,
    port_p_close_before_use_ends_quickly,
    port_p_a_second_target_works_after_the_first_is_closed,
    port_p_capabilities_are_usable,
];

const QUICKLY: Duration = Duration::from_secs(15);

async fn port_h1_a_probe_of_a_live_target_succeeds(scene: &Scene) {
    assert_eq!(scene.transport().probe(AMPLE).await, Ok(()));
    scene.deliver(vec![scene.message(event())]).await;
    assert_eq!(scene.transport().probe(AMPLE).await, Ok(()));
}

async fn port_h1_a_probe_sends_nothing(scene: &Scene) {
    for _ in 0..3 {
        assert_eq!(scene.transport().probe(AMPLE).await, Ok(()));
    }
    scene.deliver(vec![scene.message(event())]).await;
    assert_eq!(scene.transport().probe(AMPLE).await, Ok(()));
    scene.arrived(1).await;
}

async fn port_p_close_is_idempotent(scene: &Scene) {
    scene.deliver(vec![scene.message(event())]).await;
    for _ in 0..3 {
        tokio::time::timeout(QUICKLY, scene.transport().close()).await.expect("close ends quickly");
    }
    scene.arrived(1).await;
}

async fn port_p_close_before_use_ends_quickly(scene: &Scene) {
    for target in [scene.destination.open(), scene.harness.unreachable()] {
        tokio::time::timeout(QUICKLY, target.transport.close()).await.expect("close ends quickly");
    }
}

async fn port_p_a_second_target_works_after_the_first_is_closed(scene: &Scene) {
    scene.deliver(vec![scene.message(event())]).await;
    scene.transport().close().await;
    let second = scene.destination.open();
    let answers = second.transport.publish(vec![message(&second, event())], AMPLE).await;
    second.transport.close().await;
    assert_eq!(answers, [Ok(())]);
    scene.arrived(2).await;
}

async fn port_p_capabilities_are_usable(scene: &Scene) {
    let capabilities = scene.transport().capabilities();
    assert!(capabilities.max_batch >= 1 && capabilities.concurrency >= 1, "{capabilities:?}");
    assert!(!scene.target.label.is_empty());
}
