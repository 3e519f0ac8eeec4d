//! Memory is bounded by configuration, not by what waits.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{fs, sync::Arc, time::Duration};

use lapin::{
    Connection, ConnectionProperties,
    options::{QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use posthaste::{
    Event, Relay, RouteKey, Settings,
    options::Options,
    port::{Inspect as _, Produce as _, Schema as _, Store},
    route::{Route, Routes, TargetKey},
};
use posthaste_store_postgres::{PostgresStore, Settings as StoreSettings};
use posthaste_testkit::{service, wait::eventually};

const PATIENCE: Duration = Duration::from_secs(120);
const EVENTS: usize = 40;
const BODY: usize = 5 << 20;

/// The figure that is promised for any backlog of any body size.
const LIMIT: u64 = 256 << 20;

/// The most memory this process has used since the last call of `forget_peak`, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// 200 MB wait; the budget for everything held is 64 MiB, and drivers hold copies of a part of it.
#[tokio::test(flavor = "multi_thread")]
async fn decision_21_report_148_a_backlog_of_large_bodies_fits_the_memory_promised() {
    let (Some(postgres), Some(amqp)) = (service::postgres(), service::rabbitmq()) else { return };
    let outbox = service::outbox_name();
    let store = Arc::new(PostgresStore::new(&postgres, outbox.clone(), StoreSettings::default()).unwrap());
    store.migrate().await.unwrap();
    for n in 0..EVENTS {
        let body = vec![u8::try_from(n).unwrap(); BODY];
        store.produce(&[Event::new("large", "application/octet-stream", body)]).await.unwrap();
    }
    let connection = Connection::connect(&amqp, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let name = outbox.to_string();
    channel.queue_declare(name.as_str().into(), durable, FieldTable::default()).await.unwrap();
    let mut options = Options::default();
    options.add("routing_key", &name);
    let target = posthaste_transport_amqp::parse(&amqp, options).unwrap();
    let route = Route {
        key: RouteKey::from("default"),
        pattern: "*".parse().unwrap(),
        when: None,
        payload: None,
        target: TargetKey::from("default"),
        address: target.address.clone(),
    };
    let settings = Settings::default();
    let routes = Routes::new(vec![route], Vec::new(), "/posthaste/e2e".into(), settings.max_body).unwrap();
    forget_peak();
    let relay = Relay::builder("memory").target(TargetKey::from("default"), target);
    let relay = relay.outbox(outbox.clone(), Arc::clone(&store) as Arc<dyn Store>, Arc::new(routes), settings);
    let relay = relay.build().unwrap().start();
    let all = async || store.status().await.is_ok_and(|status| status.published == EVENTS as u64);
    eventually(PATIENCE, "all are published", all).await;
    let peak = peak();
    relay.stop().await;
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let queued = channel.queue_declare(name.as_str().into(), passive, FieldTable::default()).await.unwrap();
    assert_eq!(queued.message_count(), u32::try_from(EVENTS).unwrap());
    channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    assert!(peak < LIMIT, "{} MiB", peak >> 20);
}
