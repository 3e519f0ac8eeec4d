//! Order within a key, whatever commits when.

use std::time::Duration;

use posthaste::{Event, Settings, port::Inspect as _};
use posthaste_store_postgres::Outbox;
use posthaste_testkit::wait::eventually;
use tokio_postgres::NoTls;

use crate::{
    bench::{Bench, PATIENCE, event},
    queue::number,
};

fn small_pages() -> Settings {
    Settings { batch: 5, interval: Duration::from_secs(1), ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_02_a_transaction_open_across_a_page_border_keeps_its_place() {
    let Some(bench) = Bench::new().await else { return };
    let outbox = Outbox::new(bench.outbox.clone());
    let (mut slow, driver) = tokio_postgres::connect(&bench.postgres, NoTls).await.unwrap();
    tokio::spawn(driver);
    let mut open = slow.transaction().await.unwrap();
    outbox.enqueue(&mut open, &[event(0).key("k")]).await.unwrap();
    let relay = bench.relay(small_pages());
    bench.enqueue(&(100..140).map(|n| event(n).key(format!("other {n}"))).collect::<Vec<_>>()).await;
    bench.receive(40).await;
    open.commit().await.unwrap();
    bench.enqueue(&[event(1).key("k")]).await;
    let numbers: Vec<usize> = bench.receive(2).await.iter().map(number).collect();
    assert_eq!(numbers, [0, 1]);
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_001_what_commits_late_is_never_skipped() {
    let Some(bench) = Bench::new().await else { return };
    let relay = bench.relay(small_pages());
    let writers = (0..8).map(|writer| {
        let (url, outbox) = (bench.postgres.clone(), Outbox::new(bench.outbox.clone()));
        tokio::spawn(async move {
            let (mut client, driver) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(driver);
            for n in 0..100 {
                let mut transaction = client.transaction().await.unwrap();
                outbox.enqueue(&mut transaction, &[event(writer * 100 + n)]).await.unwrap();
                // Late commits are the point here; nothing waits for this time to pass.
                tokio::time::sleep(Duration::from_millis((n as u64 * 7 + writer as u64 * 13) % 30)).await;
                transaction.commit().await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let mut numbers: Vec<usize> = bench.receive(800).await.iter().map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..800).collect::<Vec<_>>());
    relay.stop().await;
    assert_eq!(bench.queued().await, 0, "a duplicate without a fault");
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_004_a_rolled_back_number_delays_nothing() {
    let Some(bench) = Bench::new().await else { return };
    let relay = bench.relay(small_pages());
    let outbox = Outbox::new(bench.outbox.clone());
    let (mut client, driver) = tokio_postgres::connect(&bench.postgres, NoTls).await.unwrap();
    tokio::spawn(driver);
    for n in 0..3 {
        let mut transaction = client.transaction().await.unwrap();
        outbox.enqueue(&mut transaction, &vec![event(n).key("k"); if n == 1 { 1000 } else { 1 }]).await.unwrap();
        if n == 1 { transaction.rollback().await.unwrap() } else { transaction.commit().await.unwrap() }
    }
    assert_eq!(bench.receive(2).await.iter().map(number).collect::<Vec<_>>(), [0, 2]);
    relay.stop().await;
    assert_eq!(bench.queued().await, 0, "a phantom");
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_009_many_keys_run_in_parallel_and_each_in_order() {
    let Some(bench) = Bench::new().await else { return };
    let relay = bench.relay(Settings::default());
    let events: Vec<Event> = (0..2000).map(|n| event(n).key(format!("key {}", n % 20))).collect();
    for chunk in events.chunks(100) {
        bench.enqueue(chunk).await;
    }
    let numbers: Vec<usize> = bench.receive(2000).await.iter().map(number).collect();
    for key in 0..20 {
        let of_key: Vec<usize> = numbers.iter().copied().filter(|n| n % 20 == key).collect();
        assert!(of_key.is_sorted() && of_key.len() == 100, "key {key}: {of_key:?}");
    }
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_03_a_delayed_event_holds_back_its_key_and_nothing_else() {
    let Some(bench) = Bench::new().await else { return };
    let relay = bench.relay(Settings { interval: Duration::from_secs(1), ..Settings::default() });
    bench.enqueue(&[event(1).key("k").delay(Duration::from_secs(3)), event(2).key("k"), event(3).key("other")]).await;
    let numbers: Vec<usize> = bench.receive(3).await.iter().map(number).collect();
    assert_eq!(numbers, [3, 1, 2]);
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_12_a_second_relay_waits_and_takes_over_at_once() {
    let Some(bench) = Bench::new().await else { return };
    let first = bench.relay(Settings::default());
    eventually(PATIENCE, "the first relay holds the outbox", || async { first.health().recovers() }).await;
    let second = bench.relay(Settings::default());
    bench.enqueue(&(0..100).map(event).collect::<Vec<_>>()).await;
    bench.receive(100).await;
    assert!(!second.health().recovers());
    assert_eq!(bench.store.status().await.unwrap().relays.len(), 1);
    first.stop().await;
    bench.enqueue(&(0..100).map(event).collect::<Vec<_>>()).await;
    bench.receive(100).await;
    assert!(second.health().recovers());
    second.stop().await;
    assert_eq!(bench.queued().await, 0, "report_014: both relays sent a row");
    bench.tear_down().await;
}
