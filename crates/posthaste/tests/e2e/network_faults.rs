//! The network between the relay and the broker fails.

use std::{collections::HashMap, time::Duration};

use lapin::message::Delivery;
use posthaste::{RelayHandle, Settings};
use posthaste_testkit::proxy::{Mode, Proxy};

use crate::{
    bench::{Bench, event, events},
    desk::{Plan, says, until_health},
    own,
    queue::{copies, id},
};

/// A bench whose relay has published one event through the proxy.
async fn connected(settings: Settings) -> Option<(Bench, Proxy, RelayHandle)> {
    let bench = Bench::new().await?;
    let (proxy, through) = own::proxied_rabbitmq().await?;
    let relay = bench.start(Plan::all_to(bench.queue.target_at(&through)), settings);
    bench.enqueue(&[event(0)]).await;
    bench.receive(1).await;
    bench.until_published(1).await;
    Some((bench, proxy, relay))
}

fn impatient() -> Settings {
    Settings { publish_timeout: Duration::from_secs(1), ..Settings::default() }
}

async fn until_paused(relay: &RelayHandle) {
    until_health(relay, "the target is paused", |health| says(health, "target default is paused")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_053_confirmations_that_are_lost_repeat_events_and_count_nothing() {
    let Some((bench, proxy, relay)) = connected(impatient()).await else { return };
    proxy.set(Mode::LoseAnswers).await;
    bench.enqueue(&events(1..21)).await;
    until_paused(&relay).await;
    let status = bench.status().await;
    assert_eq!((status.published, status.invalid, bench.attempts().await), (1, 0, 0));
    assert!(bench.queued().await >= 20, "the broker had them all along");
    proxy.set(Mode::Pass).await;
    bench.until_published(21).await;
    assert_eq!(bench.attempts().await, 0);
    relay.stop().await;
    let received = bench.receive(bench.queued().await as usize).await;
    assert_eq!(copies(&received).len(), 20);
    assert!(received.len() > 20, "what had no answer is sent again");
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_041_tw_03_a_broker_that_keeps_silent_is_given_up_and_tried_again() {
    let Some((bench, proxy, relay)) = connected(impatient()).await else { return };
    proxy.set(Mode::BlackHole).await;
    bench.enqueue(&events(1..21)).await;
    until_paused(&relay).await;
    until_health(&relay, "nothing hangs", |health| health.outboxes[0].progress.in_flight == 0).await;
    assert_eq!((bench.status().await.pending, bench.attempts().await), (20, 0));
    proxy.set(Mode::Pass).await;
    let received = bench.queue.receive_distinct(20).await;
    bench.until_published(21).await;
    assert_eq!((copies(&received).len(), bench.attempts().await), (20, 0));
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_132_a_connection_that_is_cut_again_and_again_loses_nothing_and_changes_nothing() {
    const CUTS: u64 = 8;
    const IN_FLIGHT: usize = 200;
    let mut settings = Settings::default();
    settings.bounds.in_flight = IN_FLIGHT;
    let Some((bench, proxy, relay)) = connected(settings).await else { return };
    let keyed = |n: usize| event(n).key(format!("key {}", n % 97)).tenant("t").header("h", n.to_string());
    bench.enqueue(&(1..3001).map(keyed).collect::<Vec<_>>()).await;
    for cut in 1..=CUTS {
        bench.until("some are through", |status| status.published >= cut * 200).await;
        proxy.set(Mode::CutAfter(20_000)).await;
    }
    bench.until_published(3001).await;
    assert_eq!(bench.attempts().await, 0);
    relay.stop().await;
    let received = bench.receive(bench.queued().await as usize).await;
    let mut first: HashMap<String, &Delivery> = HashMap::new();
    for delivery in &received {
        let known = first.entry(id(delivery)).or_insert(delivery);
        assert_eq!((&known.data, &known.properties), (&delivery.data, &delivery.properties), "a copy differs");
    }
    assert_eq!(first.len(), 3000);
    let repeated = received.len() - first.len();
    assert!(repeated <= CUTS as usize * IN_FLIGHT, "{repeated} copies, more than was in flight");
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r54_a_relay_stops_in_time_though_the_network_is_gone() {
    for mode in [Mode::Refuse, Mode::BlackHole] {
        let drain = Duration::from_secs(1);
        let Some((bench, proxy, relay)) = connected(Settings { drain, ..Settings::default() }).await else { return };
        proxy.set(mode).await;
        if mode == Mode::Refuse {
            proxy.cut().await;
        }
        bench.enqueue(&events(1..50)).await;
        let tried = |health: &posthaste::Health| {
            health.outboxes[0].progress.in_flight > 0 || says(health, "target default is paused")
        };
        until_health(&relay, "it is tried", tried).await;
        let stopped = tokio::time::timeout(drain + Duration::from_secs(3), relay.stop()).await;
        assert!(stopped.is_ok(), "{mode:?}");
        assert_eq!((bench.status().await.pending, bench.attempts().await), (49, 0));
        bench.tear_down().await;
    }
}
