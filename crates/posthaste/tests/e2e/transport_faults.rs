//! The broker is stopped, is killed, or takes nothing.

use std::time::Duration;

use posthaste::{RelayHandle, Settings, port::OutboxStatus};
use posthaste_testkit::service;

use crate::{
    bench::{Bench, event, events},
    desk::{Plan, says, until_health},
    own,
    queue::{copies, numbers},
};

async fn until_paused(relay: &RelayHandle) {
    until_health(relay, "the target is paused", |health| says(health, "target default is paused")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r56_a_broker_that_is_down_at_the_start_delays_events_and_counts_nothing() {
    let (Some(mut broker), Some(postgres)) = (own::rabbitmq().await, service::postgres()) else { return };
    let bench = Bench::on(&postgres, &broker.url()).await;
    broker.stop().await;
    let relay = bench.relay(Settings::default());
    bench.enqueue(&events(0..100)).await;
    until_paused(&relay).await;
    assert_eq!((bench.status().await.pending, bench.attempts().await), (100, 0));
    broker.start_again().await;
    let queue = bench.queue.again().await;
    let mut arrived = numbers(&queue.receive(100).await);
    arrived.sort_unstable();
    assert_eq!(arrived, (0..100).collect::<Vec<_>>());
    bench.until_published(100).await;
    assert_eq!(bench.attempts().await, 0);
    relay.stop().await;
    queue.delete().await;
    bench.tear_down().await;
}

/// Enqueues while the broker ends and comes back, and proves that everything arrived.
async fn nothing_is_lost(broker: &mut own::Own<posthaste_testkit::server::Node>, kill: bool) {
    const BATCHES: usize = 60;
    let Some(postgres) = service::postgres() else { return };
    let bench = Bench::on(&postgres, &broker.url()).await;
    let relay = bench.relay(Settings { retention: Duration::from_secs(86_400), ..Settings::default() });
    let writing = async {
        for batch in 0..BATCHES {
            bench.enqueue(&events(batch * 50..(batch + 1) * 50)).await;
        }
    };
    let breaking = async {
        bench.until("publications are under way", |status| status.published >= 100).await;
        if kill { broker.kill9() } else { broker.stop().await }
    };
    tokio::join!(writing, breaking);
    until_paused(&relay).await;
    let left = bench.status().await;
    assert!(left.pending > 0, "all was over before the broker was: {left:?}");
    broker.start_again().await;
    let queue = bench.queue.again().await;
    let received = queue.receive_distinct(BATCHES * 50).await;
    bench.until_published(BATCHES as u64 * 50).await;
    let in_flight = Settings::default().bounds.in_flight;
    assert!(received.len() - copies(&received).len() <= in_flight, "repeated more than was in flight");
    let mut arrived = numbers(&received);
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived, (0..BATCHES * 50).collect::<Vec<_>>());
    assert_eq!(bench.attempts().await, 0);
    relay.stop().await;
    queue.delete().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lw_32_a_broker_that_is_stopped_while_it_is_published_to_loses_nothing() {
    let Some(mut broker) = own::rabbitmq().await else { return };
    nothing_is_lost(&mut broker, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lw_32_a_broker_that_is_killed_while_it_is_published_to_loses_nothing() {
    let Some(mut broker) = own::rabbitmq().await else { return };
    nothing_is_lost(&mut broker, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_044_decision_04_a_blocked_broker_pauses_the_target_and_counts_nothing() {
    let (Some(broker), Some(postgres)) = (own::rabbitmq().await, service::postgres()) else { return };
    let bench = Bench::on(&postgres, &broker.url()).await;
    let relay = bench.relay(Settings { publish_timeout: Duration::from_secs(2), ..Settings::default() });
    bench.enqueue(&[event(0)]).await;
    bench.receive(1).await;
    assert!(broker.ctl(&["set_vm_memory_high_watermark", "0"]).await.status.success());
    // The broker tells a connection that it is blocked once something is published on it.
    bench.enqueue(&[event(1)]).await;
    until_paused(&relay).await;
    let before = bench.queued().await;
    bench.enqueue(&events(2..102)).await;
    let waited = |status: &OutboxStatus| status.pending >= 100 && status.oldest_pending > Some(Duration::from_secs(3));
    bench.until("they have waited for a while", waited).await;
    assert!(says(&relay.health(), "target default is paused"));
    assert_eq!((bench.queued().await, bench.attempts().await), (before, 0), "sent to a broker that is blocked");
    assert!(broker.ctl(&["set_vm_memory_high_watermark", "0.4"]).await.status.success());
    let received = bench.queue.receive_distinct(101).await;
    bench.until_published(102).await;
    assert_eq!((copies(&received).len(), bench.attempts().await), (101, 0));
    until_health(&relay, "all is well", |health| health.reasons().is_empty()).await;
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r54_a_relay_stops_in_time_though_the_broker_is_down() {
    let (Some(mut broker), Some(postgres)) = (own::rabbitmq().await, service::postgres()) else { return };
    let bench = Bench::on(&postgres, &broker.url()).await;
    let drain = Duration::from_secs(1);
    for deaf in [false, true] {
        let relay = bench.start(Plan::all_to(bench.queue.target()), Settings { drain, ..Settings::default() });
        bench.enqueue(&[event(0)]).await;
        bench.queue.again().await.receive(1).await;
        bench.until("it is marked", |status| status.pending == 0).await;
        if deaf {
            broker.pause()
        } else {
            broker.stop().await
        }
        bench.enqueue(&events(1..50)).await;
        let tried = |health: &posthaste::Health| {
            health.outboxes[0].progress.in_flight > 0 || says(health, "target default is paused")
        };
        until_health(&relay, "it is tried", tried).await;
        let stopped = tokio::time::timeout(drain + Duration::from_secs(3), relay.stop()).await;
        assert!(stopped.is_ok(), "deaf: {deaf}");
        assert_eq!((bench.status().await.pending, bench.attempts().await), (49, 0));
        if deaf {
            broker.resume()
        } else {
            broker.start_again().await
        }
        bench.sql(r#"DELETE FROM "{t}""#).await;
    }
    bench.queue.again().await.delete().await;
    bench.tear_down().await;
}
