//! Everything works: what is enqueued arrives, once, byte for byte.

use std::time::Duration;

use bytes::Bytes;
use posthaste::{Event, Settings};

use crate::{
    bench::{Bench, event},
    queue::{copies, number},
};

#[tokio::test(flavor = "multi_thread")]
async fn rows_r33_every_event_arrives_once_and_is_marked() {
    let Some(bench) = Bench::new().await else { return };
    let relay = bench.relay(Settings::default());
    bench.enqueue(&(0..1000).map(event).collect::<Vec<_>>()).await;
    let received = bench.receive(1000).await;
    bench.until_published(1000).await;
    assert!(copies(&received).values().all(|copies| *copies == 1));
    let mut numbers: Vec<usize> = received.iter().map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    relay.stop().await;
    assert_eq!(bench.queued().await, 0);
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_069_bodies_arrive_byte_for_byte() {
    let Some(bench) = Bench::new().await else { return };
    let bodies: [(&str, Bytes); 6] = [
        ("application/json", Bytes::from_static(br#"{"id":9007199254740993,  "id":1e400,"x":"\u0000"}"#)),
        ("application/octet-stream", Bytes::from_static(b"\xff\xfe\x80\x41")),
        ("text/plain", Bytes::new()),
        ("text/plain", Bytes::from_static(b"a\0b")),
        ("application/octet-stream", Bytes::from(vec![7; 5 << 20])),
        ("application/json", Bytes::from_static(b"{\n  \"pretty\": true\n}")),
    ];
    let events: Vec<Event> =
        bodies.iter().map(|(content_type, body)| Event::new("t", *content_type, body.clone()).key("one")).collect();
    let relay = bench.relay(Settings::default());
    bench.enqueue(&events).await;
    let received = bench.receive(bodies.len()).await;
    for (delivery, (content_type, body)) in received.iter().zip(&bodies) {
        assert!(delivery.data == *body, "a body of {} bytes was changed", body.len());
        assert_eq!(delivery.properties.content_type().as_ref().unwrap().as_str(), *content_type);
    }
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r36_a_commit_wakes_the_relay_long_before_its_interval() {
    let Some(bench) = Bench::new().await else { return };
    let settings = Settings { interval: Duration::from_secs(3600), ..Settings::default() };
    let relay = bench.relay(settings);
    for n in 0..20 {
        bench.enqueue(&[event(n)]).await;
        assert_eq!(number(&bench.receive(1).await[0]), n);
    }
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn product_4_a_plain_insert_is_delivered_like_any_other() {
    let Some(bench) = Bench::new().await else { return };
    let relay = bench.relay(Settings::default());
    let table = bench.outbox.table();
    let insert =
        format!("INSERT INTO \"{table}\" (type, body) VALUES ('order.placed', convert_to('{{\"n\":7}}', 'UTF8'))");
    bench.client.batch_execute(&insert).await.unwrap();
    let received = bench.receive(1).await;
    assert_eq!(number(&received[0]), 7);
    bench.until_published(1).await;
    relay.stop().await;
    bench.tear_down().await;
}
