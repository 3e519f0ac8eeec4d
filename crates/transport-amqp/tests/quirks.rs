//! What is special about RabbitMQ, against the real one.

mod support;

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::future::join_all;
use lapin::{
    ExchangeKind,
    types::{AMQPValue, FieldTable, LongString},
};
use posthaste_core::{Body, Class, Failure, failure::Outcome, options::Options, port::Transport};
use support::{Broker, SOON, altered, message, publish_one, target, text};

fn class(answer: &Result<(), Failure>) -> Option<Class> {
    answer.as_ref().err().map(|failure| failure.class)
}

#[tokio::test]
async fn report_072_bodies_arrive_byte_for_byte() {
    let Some(broker) = Broker::shared().await else { return };
    broker.queue(FieldTable::default()).await;
    let target = target(&broker.url, &[]);
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let bodies = [b"\xff\xfe\x80\x41".to_vec(), Vec::new(), b"{ \"a\": 1.0e3 }".to_vec(), large];
    for body in bodies {
        publish_one(&target, message(&target, &broker.name, Body::Bytes(body.clone().into()))).await.unwrap();
        let arrived = broker.drain().await;
        assert_eq!(arrived.len(), 1, "one copy");
        assert!(arrived[0].data == body, "{} bytes arrived for {}", arrived[0].data.len(), body.len());
    }
    broker.clean().await;
}

#[tokio::test]
async fn port_p7_report_075_report_076_properties_survive_the_trip() {
    let Some(broker) = Broker::shared().await else { return };
    broker.queue(FieldTable::default()).await;
    let target = target(&broker.url, &[]);
    let sent = altered(&target, &broker.name, |row| {
        row.body = Body::Null;
        row.key = Some("schlüssel/😀".to_owned());
        row.tenant = Some("acme".to_owned());
        row.headers = [("X-Mine".to_owned(), "grün".to_owned()), ("traceparent".to_owned(), "00-1".to_owned())].into();
    });
    publish_one(&target, sent.clone()).await.unwrap();
    let arrived = broker.get().await.unwrap().delivery;
    let properties = &arrived.properties;
    assert_eq!(properties.message_id().clone().unwrap().to_string(), sent.id.to_string());
    assert_eq!(properties.kind().clone().unwrap().to_string(), broker.name);
    assert_eq!(properties.content_type().clone().unwrap().to_string(), "application/octet-stream");
    assert_eq!((*properties.timestamp(), *properties.delivery_mode()), (Some(1_767_323_045), Some(2)));
    let headers = properties.headers().clone().unwrap();
    for (name, value) in [
        ("cloudEvents:subject", "schlüssel/😀"),
        ("cloudEvents:tenant", "acme"),
        ("cloudEvents:time", "2026-01-02T03:04:05.678000Z"),
        ("cloudEvents:nullbody", "true"),
        ("cloudEvents:traceparent", "00-1"),
        ("X-Mine", "grün"),
    ] {
        assert_eq!(headers.inner().get(name), Some(&AMQPValue::LongString(LongString::from(value))), "{name}");
    }
    assert!(arrived.data.is_empty());
    broker.clean().await;
}

#[tokio::test]
async fn report_038_tw_09_unroutable_is_misrouted_until_a_queue_is_bound() {
    let Some(broker) = Broker::shared().await else { return };
    broker.exchange(ExchangeKind::Topic).await;
    let target = target(&broker.url, &[("exchange", &broker.name)]);
    let sent = text(&target, "order.placed", "1");
    let failure = publish_one(&target, sent.clone()).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome), (Class::Misrouted, Outcome::NotDelivered));
    assert!(failure.detail.starts_with("312 NO_ROUTE") && failure.detail.contains("order.placed"), "{failure}");
    broker.queue(FieldTable::default()).await;
    broker.bind("order.#").await;
    publish_one(&target, sent).await.unwrap();
    assert_eq!(broker.drain().await.len(), 1);
    broker.clean().await;
}

#[tokio::test]
async fn report_038_returns_among_pipelined_publishes_are_told_apart() {
    let Some(broker) = Broker::shared().await else { return };
    broker.exchange(ExchangeKind::Direct).await;
    broker.queue(FieldTable::default()).await;
    broker.bind("good").await;
    let target = target(&broker.url, &[("exchange", &broker.name)]);
    let kind = |n: usize| if n.is_multiple_of(7) { "bad" } else { "good" };
    let batch = |at: usize| (0..250).map(|n| text(&target, kind(at + n), &(at + n).to_string())).collect::<Vec<_>>();
    let answers = join_all((0..16).map(|at| target.transport.publish(batch(at * 250), SOON))).await.concat();
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(class(answer), (kind(n) == "bad").then_some(Class::Misrouted), "{n}: {answer:?}");
    }
    let arrived: HashSet<Vec<u8>> = broker.drain().await.into_iter().map(|got| got.delivery.data).collect();
    let routed = (0..4000).filter(|n| kind(*n) == "good").count();
    assert_eq!(arrived.len(), routed);
    broker.clean().await;
}

#[tokio::test]
async fn report_037_a_missing_exchange_is_named_and_delivery_goes_on_once_it_is_there() {
    let Some(broker) = Broker::shared().await else { return };
    broker.queue(FieldTable::default()).await;
    let target = target(&broker.url, &[("exchange", &broker.name)]);
    let sent = text(&target, "t", "1");
    let failure = publish_one(&target, sent.clone()).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome), (Class::Misrouted, Outcome::NotDelivered));
    assert!(failure.detail.contains("404") && failure.detail.contains(&broker.name), "{failure}");
    broker.exchange(ExchangeKind::Fanout).await;
    broker.bind("").await;
    publish_one(&target, sent).await.unwrap();
    assert_eq!(broker.drain().await.len(), 1);
    broker.clean().await;
}

#[tokio::test]
async fn report_037_a_missing_exchange_costs_the_others_of_its_batch_no_verdict() {
    let Some(broker) = Broker::shared().await else { return };
    broker.queue(FieldTable::default()).await;
    let good = target(&broker.url, &[]);
    let bad = target(&broker.url, &[("exchange", &broker.name)]);
    let batch = (0..100).map(|n| text(if n == 50 { &bad } else { &good }, &broker.name, "x")).collect();
    let answers = good.transport.publish(batch, SOON).await;
    for (n, answer) in answers.iter().enumerate() {
        match class(answer) {
            None | Some(Class::Transient) => assert_ne!(n, 50),
            Some(Class::Misrouted) => assert_eq!(n, 50),
            Some(class) => panic!("{n}: {class:?}"),
        }
    }
    let claimed = answers.iter().filter(|answer| answer.is_ok()).count();
    let maybe = answers.iter().flat_map(|answer| answer.as_ref().err()).filter(|f| f.outcome == Outcome::Lost).count();
    let arrived = broker.drain().await.len();
    assert!((claimed..=claimed + maybe).contains(&arrived), "{claimed} <= {arrived} <= {claimed} + {maybe}");
    broker.clean().await;
}

#[tokio::test]
async fn decision_29_the_exchange_is_declared_durable_where_the_target_says_so_and_again_when_it_is_gone() {
    let Some(broker) = Broker::shared().await else { return };
    broker.queue(FieldTable::default()).await;
    let target = target(&broker.url, &[("exchange", &broker.name), ("declare", "topic")]);
    let sent = || text(&target, "a.b", "1");
    assert_eq!(class(&publish_one(&target, sent()).await), Some(Class::Misrouted), "no queue is bound yet");
    // The same durable topic exchange may be declared again; any other would be refused.
    broker.exchange(ExchangeKind::Topic).await;
    broker.bind("a.*").await;
    publish_one(&target, sent()).await.unwrap();
    broker.delete_exchange().await;
    assert_eq!(class(&publish_one(&target, sent()).await), Some(Class::Misrouted));
    assert!(publish_one(&target, sent()).await.unwrap_err().detail.contains("NO_ROUTE"), "it is there again");
    broker.clean().await;
}

#[tokio::test]
async fn an_exchange_of_another_kind_is_misrouted_with_the_brokers_words() {
    let Some(broker) = Broker::shared().await else { return };
    broker.queue(FieldTable::default()).await;
    broker.exchange(ExchangeKind::Fanout).await;
    let target = target(&broker.url, &[("exchange", &broker.name), ("declare", "topic")]);
    let failure = publish_one(&target, text(&target, "a", "1")).await.unwrap_err();
    assert_eq!(failure.class, Class::Misrouted);
    assert!(failure.detail.contains("inequivalent arg 'type'"), "{failure}");
    broker.clean().await;
}

#[tokio::test]
async fn rows_r56_a_full_queue_that_rejects_is_transient_and_not_delivered() {
    let Some(broker) = Broker::shared().await else { return };
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    broker.queue(arguments).await;
    let target = target(&broker.url, &[]);
    publish_one(&target, text(&target, &broker.name, "1")).await.unwrap();
    let mut failure = None;
    // Some messages more than the limit may be taken.
    for n in 0..100 {
        failure = failure.or(publish_one(&target, text(&target, &broker.name, &n.to_string())).await.err());
    }
    let failure = failure.expect("the queue is full");
    assert_eq!((failure.class, failure.outcome), (Class::Transient, Outcome::NotDelivered));
    assert!(failure.detail.contains("basic.nack"), "{failure}");
    broker.clean().await;
}

#[tokio::test]
async fn port_p1_p6_one_answer_a_message_in_order_and_what_cannot_be_sent_stops_no_other() {
    let Some(broker) = Broker::shared().await else { return };
    broker.queue(FieldTable::default()).await;
    let target = target(&broker.url, &[]);
    let long = "k".repeat(300);
    let headers = |row: &mut posthaste_core::Row| drop(row.headers.insert("h".to_owned(), "v".repeat(200_000)));
    let batch = vec![
        text(&target, &broker.name, "1"),
        text(&target, &long, "2"),
        altered(&target, &broker.name, headers),
        text(&target, &broker.name, "4"),
    ];
    let answers = target.transport.publish(batch, SOON).await;
    let classes: Vec<_> = answers.iter().map(class).collect();
    assert_eq!(classes, [None, Some(Class::Permanent), Some(Class::Permanent), None]);
    let arrived: Vec<Vec<u8>> = broker.drain().await.into_iter().map(|got| got.delivery.data).collect();
    assert_eq!(arrived, [b"1", b"4"]);
    assert!(target.transport.publish(Vec::new(), SOON).await.is_empty());
    broker.clean().await;
}

#[tokio::test]
async fn report_115_a_wrong_password_is_transient_to_a_publication_and_shown_nowhere() {
    let Some(broker) = Broker::shared().await else { return };
    let target = target(&broker.url, &[("password", "geheim")]);
    let failure = publish_one(&target, text(&target, "t", "1")).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome), (Class::Transient, Outcome::NotDelivered));
    assert!(failure.detail.contains("403") && failure.detail.contains("password"), "{failure}");
    assert!(!failure.detail.contains("geheim"));
    // A probe judges no message, and says that waiting changes nothing.
    assert_eq!(target.transport.probe(SOON).await, Err(Failure { class: Class::Unknown, ..failure }));
}

#[tokio::test]
async fn report_116_a_virtual_host_that_does_not_exist_is_transient_and_says_so() {
    let Some(broker) = Broker::shared().await else { return };
    let url = broker.url.replace("%2f", "nowhere");
    let target = target(&url, &[]);
    let failure = publish_one(&target, text(&target, "t", "1")).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome), (Class::Transient, Outcome::NotDelivered));
    assert!(failure.detail.contains("nowhere") && failure.detail.contains("virtual host"), "{failure}");
}

#[tokio::test]
async fn close_is_idempotent_and_the_next_publication_connects_again() {
    let Some(broker) = Broker::shared().await else { return };
    broker.queue(FieldTable::default()).await;
    let target = target(&broker.url, &[]);
    target.transport.close().await;
    target.transport.probe(SOON).await.unwrap();
    publish_one(&target, text(&target, &broker.name, "1")).await.unwrap();
    target.transport.close().await;
    target.transport.close().await;
    publish_one(&target, text(&target, &broker.name, "2")).await.unwrap();
    assert_eq!(broker.drain().await.len(), 2);
    broker.clean().await;
}

#[tokio::test]
async fn port_p5_a_dropped_publication_leaves_nothing_that_disturbs_the_next() {
    let Some(broker) = Broker::shared().await else { return };
    broker.queue(FieldTable::default()).await;
    let target = target(&broker.url, &[]);
    let body = Bytes::from(vec![b'x'; 20_000]);
    for _ in 0..20 {
        let batch = (0..250).map(|_| message(&target, &broker.name, Body::Bytes(body.clone()))).collect();
        let publishing = target.transport.publish(batch, SOON);
        // Dropped at its first wait.
        drop(futures_util::future::poll_immediate(Box::pin(publishing)).await);
        publish_one(&target, text(&target, &broker.name, "mark")).await.unwrap();
    }
    let marks = broker.drain().await.into_iter().filter(|got| got.delivery.data == b"mark").count();
    assert_eq!(marks, 20);
    broker.clean().await;
}

fn assert_object_safe(_: &dyn Transport) {}

#[tokio::test]
async fn the_target_states_its_limits() {
    let target = target("amqp://127.0.0.1:1", &[]);
    assert_object_safe(&*target.transport);
    let capabilities = target.transport.capabilities();
    assert_eq!((capabilities.max_batch, capabilities.concurrency), (250, 8));
    let failure = publish_one(&target, text(&target, "t", "1")).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome), (Class::Transient, Outcome::NotDelivered));
    assert!(failure.detail.contains("127.0.0.1:1") && failure.detail.contains("refused"), "{failure}");
}

#[tokio::test]
async fn port_h1_looking_for_exchanges_names_those_that_are_missing_and_declares_nothing() {
    let Some(broker) = Broker::shared().await else { return };
    let open = |options: &[(&str, &str)]| {
        let mut all = Options::default();
        options.iter().for_each(|(name, value)| all.add(*name, *value));
        posthaste_transport_amqp::open(&broker.url, all).unwrap()
    };
    let names = ["", "amq.topic", broker.name.as_str()];
    let asking = open(&[]);
    for _ in 0..2 {
        let missing = asking.missing_exchanges(&names, SOON).await.unwrap();
        assert!(missing.len() == 1 && missing[0].contains(&broker.name) && missing[0].contains("404"), "{missing:?}");
    }
    let declaring = open(&[("declare", "topic")]);
    assert_eq!(declaring.missing_exchanges(&names, SOON).await, Ok(vec![]), "it is made by its first use");
    broker.exchange(ExchangeKind::Topic).await;
    assert_eq!(asking.missing_exchanges(&names, SOON).await, Ok(vec![]));
    asking.close().await;
    broker.delete_exchange().await;
}
