//! Addresses that lead nowhere, for a while or for ever.

use std::time::Duration;

use lapin::{
    ExchangeKind,
    options::{ExchangeDeclareOptions, ExchangeDeleteOptions},
    types::FieldTable,
};
use posthaste::{Event, Settings, Status};
use posthaste_store_postgres::Settings as StoreSettings;
use posthaste_testkit::service;

use crate::{
    bench::{Bench, event},
    desk::Plan,
    queue::{Queue, number, numbers, target},
};

async fn declare(queue: &Queue, exchange: &str) {
    let declared = queue.channel.exchange_declare(
        exchange.into(),
        ExchangeKind::Direct,
        ExchangeDeclareOptions::default(),
        FieldTable::default(),
    );
    declared.await.unwrap();
}

async fn undeclare(queue: &Queue, exchange: &str) {
    queue.channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn report_037_decision_14_an_exchange_that_was_deleted_delays_events_until_it_is_back() {
    let (Some(postgres), Some(amqp)) = (service::postgres(), service::rabbitmq()) else { return };
    let at_once = StoreSettings { retention: Duration::ZERO, ..StoreSettings::default() };
    let bench = Bench::with(&postgres, &amqp, at_once).await;
    let exchange = format!("{}-exchange", bench.queue.name);
    declare(&bench.queue, &exchange).await;
    bench.queue.bind(&exchange, "k").await;
    let target = target(&amqp, &[("exchange", &exchange), ("routing_key", "k")]);
    let relay = bench.start(Plan::all_to(target), Settings { retention: Duration::ZERO, ..Settings::default() });
    bench.enqueue(&[event(0)]).await;
    bench.receive(1).await;
    undeclare(&bench.queue, &exchange).await;
    let id = bench.enqueue(&[event(1)]).await[0];
    let row = bench.until_row(id, "the failure is recorded", |row| row.attempts > 0).await;
    let error = row.last_error.unwrap();
    assert_eq!(row.status, Status::Failed);
    assert!(error.contains("404") && error.contains(&exchange), "{error}");
    declare(&bench.queue, &exchange).await;
    bench.queue.bind(&exchange, "k").await;
    assert_eq!(number(&bench.receive(1).await[0]), 1);
    bench.until("nothing is left", |status| status.pending + status.failed + status.published == 0).await;
    relay.stop().await;
    undeclare(&bench.queue, &exchange).await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_038_a_message_that_no_queue_takes_is_not_published() {
    let Some(bench) = Bench::new().await else { return };
    let exchange = format!("{}-exchange", bench.queue.name);
    declare(&bench.queue, &exchange).await;
    let target = target(&bench.queue.amqp, &[("exchange", &exchange), ("routing_key", "k")]);
    let relay = bench.start(Plan::all_to(target), Settings::default());
    let id = bench.enqueue(&[event(1)]).await[0];
    let row = bench.until_row(id, "the failure is recorded", |row| row.attempts > 0).await;
    assert!(row.last_error.as_deref().is_some_and(|error| error.contains("NO_ROUTE")), "{row:?}");
    assert_eq!((row.status, bench.status().await.published), (Status::Failed, 0));
    bench.queue.bind(&exchange, "k").await;
    assert_eq!(number(&bench.receive(1).await[0]), 1);
    bench.until_published(1).await;
    relay.stop().await;
    assert_eq!(bench.queued().await, 0);
    undeclare(&bench.queue, &exchange).await;
    bench.tear_down().await;
}

/// One event that leads nowhere between two hundred good ones: only it is held up.
async fn poison_passes(poisoned: impl Fn(&Bench) -> (posthaste::port::Target, Event), reason: &str) {
    let Some(bench) = Bench::new().await else { return };
    let (target, poison) = poisoned(&bench);
    let good = |n| Event { event_type: bench.queue.name.clone(), ..event(n) };
    let batch: Vec<Event> = (0..100).map(good).chain([poison]).chain((100..200).map(good)).collect();
    let ids = bench.enqueue(&batch).await;
    let relay = bench.start(Plan::all_to(target), Settings::default());
    let mut arrived = numbers(&bench.queue.receive_distinct(200).await);
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived, (0..200).collect::<Vec<_>>());
    let row = bench.until_row(ids[100], "the failure is recorded", |row| row.attempts > 0).await;
    assert!(row.last_error.as_deref().is_some_and(|error| error.contains(reason)), "{row:?}");
    bench.until("the others are published", |status| status.published == 200).await;
    let poison = bench.row(ids[100]).await;
    assert_eq!(bench.attempts().await, poison.attempts, "a good event pays for the bad one");
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_14_an_event_without_a_queue_holds_up_no_other() {
    let poisoned = |bench: &Bench| {
        let nowhere = Event { event_type: "nowhere".to_owned(), ..event(0) };
        (target(&bench.queue.amqp, &[("routing_key", "{type}")]), nowhere)
    };
    poison_passes(poisoned, "NO_ROUTE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_04_an_event_without_an_exchange_holds_up_no_other() {
    let poisoned = |bench: &Bench| {
        let nowhere = Event { event_type: bench.queue.name.clone(), ..event(0) }.tenant("posthaste-no-such-exchange");
        (target(&bench.queue.amqp, &[("exchange", "{tenant}"), ("routing_key", "{type}")]), nowhere)
    };
    poison_passes(poisoned, "404").await;
}
