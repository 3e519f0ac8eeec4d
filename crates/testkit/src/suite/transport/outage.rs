//! A dead target: every message gets its answer within the deadline, as a transient failure.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use posthaste_core::{Class, Failure, failure::Outcome, port::Target};
use tokio::net::TcpListener;

use super::scene::{Scene, event, message};
use crate::suite::case::cases;

cases![Scene;
    port_p9_an_unreachable_target_is_a_transient_failure,
    port_p9_a_refused_connection_is_a_transient_failure needs Network,
    port_p9_a_target_that_says_nothing_is_a_transient_failure needs Network,
    port_p9_a_target_that_hangs_up_is_a_transient_failure needs Network,
    port_h1_the_probe_of_a_dead_target_fails,
    port_h1_the_probe_of_a_silent_target_ends needs Network,
    port_p_close_ends_while_a_publication_hangs needs Network,
];

const DEADLINE: Duration = Duration::from_secs(2);
/// The machine may be busy; a transport that ignores its deadline takes far longer.
const GRACE: Duration = Duration::from_secs(15);

/// Publishes three messages that can't arrive, and checks their answers.
async fn fails(target: &Target) -> Vec<Failure> {
    let batch = (0..3).map(|_| message(target, event())).collect();
    let started = Instant::now();
    let answers = target.transport.publish(batch, DEADLINE).await;
    assert!(started.elapsed() < DEADLINE + GRACE, "answered after {:?}", started.elapsed());
    let failures: Vec<Failure> = answers.into_iter().filter_map(Result::err).collect();
    assert_eq!(failures.len(), 3, "nothing can have been taken: {failures:?}");
    for failure in &failures {
        assert_eq!(failure.class, Class::Transient, "{failure:?}");
        assert!(!failure.detail.is_empty());
    }
    failures
}

async fn port_p9_an_unreachable_target_is_a_transient_failure(scene: &Scene) {
    let target = scene.harness.unreachable();
    for failure in fails(&target).await {
        assert_eq!(failure.outcome, Outcome::NotDelivered, "{failure:?}");
    }
    fails(&target).await;
    target.transport.close().await;
}

fn at(scene: &Scene, address: SocketAddr) -> Target {
    scene.harness.at(address).expect("a transport that is reached through a network")
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

async fn port_p9_a_refused_connection_is_a_transient_failure(scene: &Scene) {
    let (listener, address) = listen().await;
    drop(listener);
    let target = at(scene, address);
    for failure in fails(&target).await {
        assert_eq!(failure.outcome, Outcome::NotDelivered, "{failure:?}");
    }
    target.transport.close().await;
}

async fn port_p9_a_target_that_says_nothing_is_a_transient_failure(scene: &Scene) {
    // The kernel accepts for it; nobody ever answers.
    let (_listener, address) = listen().await;
    let target = at(scene, address);
    fails(&target).await;
    target.transport.close().await;
}

async fn port_p9_a_target_that_hangs_up_is_a_transient_failure(scene: &Scene) {
    let (listener, address) = listen().await;
    let hang_up = async {
        loop {
            drop(listener.accept().await);
        }
    };
    let target = at(scene, address);
    tokio::select! {
        () = hang_up => unreachable!("it never ends"),
        _ = fails(&target) => {}
    }
    target.transport.close().await;
}

async fn port_h1_the_probe_of_a_dead_target_fails(scene: &Scene) {
    let target = scene.harness.unreachable();
    let failure = target.transport.probe(DEADLINE).await.expect_err("nothing is there");
    assert_eq!(failure.class, Class::Transient, "{failure:?}");
    target.transport.close().await;
}

async fn port_h1_the_probe_of_a_silent_target_ends(scene: &Scene) {
    let (_listener, address) = listen().await;
    let target = at(scene, address);
    let started = Instant::now();
    // Some protocols can tell no more than that a connection is accepted.
    if let Err(failure) = target.transport.probe(DEADLINE).await {
        assert_eq!(failure.class, Class::Transient, "{failure:?}");
    }
    assert!(started.elapsed() < DEADLINE + GRACE, "ended after {:?}", started.elapsed());
    target.transport.close().await;
}

async fn port_p_close_ends_while_a_publication_hangs(scene: &Scene) {
    let (listener, address) = listen().await;
    let target = at(scene, address);
    let batch = vec![message(&target, event())];
    let transport = std::sync::Arc::clone(&target.transport);
    let hanging = tokio::spawn(async move { transport.publish(batch, GRACE * 2).await });
    let _connection = listener.accept().await.expect("it connects");
    tokio::time::timeout(GRACE, target.transport.close()).await.expect("close ends quickly");
    hanging.abort();
}
