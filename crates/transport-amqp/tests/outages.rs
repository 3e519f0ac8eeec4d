//! Alarms, crashes and restarts of a real RabbitMQ, one of its own for each test.

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::future::join_all;
use lapin::types::FieldTable;
use posthaste_core::{Class, Failure, Message, failure::Outcome, port::Target};
use posthaste_testkit::{eventually, server::RabbitMq};
use support::{Broker, publish_one, target, text};

const AMPLE: Duration = Duration::from_secs(120);
const BRIEF: Duration = Duration::from_secs(2);

/// A broker of its own with a queue, and a target that leads there.
async fn broker(options: &[(&str, &str)]) -> Option<(RabbitMq, Broker, Target)> {
    let server = RabbitMq::start().await?;
    let broker = Broker::at(server.url()).await;
    broker.queue(FieldTable::default()).await;
    let target = target(&server.url(), options);
    Some((server, broker, target))
}

fn batch(target: &Target, queue: &str, count: usize) -> Vec<Message> {
    (0..count).map(|n| text(target, queue, &n.to_string())).collect()
}

/// The ids of all messages in the queue, each with its number of copies.
async fn arrived(broker: &Broker) -> BTreeMap<String, usize> {
    let mut copies = BTreeMap::new();
    for message in broker.drain().await {
        let id = message.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
        *copies.entry(id).or_default() += 1;
    }
    copies
}

async fn until_it_takes_messages(target: &Target) {
    eventually(AMPLE, "the broker takes messages", async || target.transport.probe(BRIEF).await.is_ok()).await;
}

fn is_transient(answer: &Result<(), Failure>) -> bool {
    answer.as_ref().is_err_and(|failure| failure.class == Class::Transient)
}

#[tokio::test]
async fn report_044_a_memory_alarm_blocks_and_everything_is_delivered_after_it() {
    // With the shortest heartbeat, the blockage outlasts several of them.
    let Some((server, broker, target)) = broker(&[("heartbeat", "1")]).await else { return };
    until_it_takes_messages(&target).await;
    assert!(server.ctl(&["set_vm_memory_high_watermark", "0"]).await.status.success());
    let waiting = target.transport.publish(batch(&target, &broker.name, 50), AMPLE);
    let others = async {
        let blocked =
            eventually(AMPLE, "the connection is blocked", async || target.transport.probe(AMPLE).await.err());
        let failure = blocked.await;
        assert!(failure.detail.starts_with("blocked by the broker: low on memory"), "{failure}");
        assert_eq!(failure.outcome, Outcome::NotDelivered);
        // Nothing is waited for here: that the blockage lasts longer than a heartbeat time-out is the case itself.
        tokio::time::sleep(Duration::from_secs(5)).await;
        for answer in target.transport.publish(batch(&target, &broker.name, 50), AMPLE).await {
            assert_eq!(answer, Err(failure.clone()));
        }
        assert!(server.ctl(&["set_vm_memory_high_watermark", "0.4"]).await.status.success());
    };
    let (answers, ()) = tokio::join!(waiting, others);
    assert!(answers.iter().all(Result::is_ok), "what was in flight waited for the end of the alarm: {answers:?}");
    until_it_takes_messages(&target).await;
    let after = target.transport.publish(batch(&target, &broker.name, 50), AMPLE).await;
    assert!(after.iter().all(Result::is_ok), "{after:?}");
    let copies = arrived(&broker).await;
    assert_eq!((copies.len(), copies.values().max()), (100, Some(&1)));
}

#[tokio::test]
async fn port_p2_what_was_confirmed_survives_kill_9_and_what_was_not_goes_through_with_the_same_id_later() {
    let Some((mut server, broker, target)) = broker(&[]).await else { return };
    until_it_takes_messages(&target).await;
    let batches: Vec<Vec<Message>> = (0..80).map(|_| batch(&target, &broker.name, 250)).collect();
    let publish = |batch: Vec<Message>| target.transport.publish(batch, Duration::from_secs(10));
    // A crash in the middle: after the first ten batches, with the others under way.
    let (before, during) = batches.split_at(10);
    let early = join_all(before.iter().cloned().map(publish)).await;
    assert!(early.iter().flatten().all(Result::is_ok));
    let kill = async { server.kill9() };
    let (answers, ()) = tokio::join!(join_all(during.iter().cloned().map(publish)), kill);
    let failed: Vec<Message> = during
        .iter()
        .flatten()
        .zip(answers.iter().flatten())
        .filter(|(_, answer)| {
            assert!(answer.is_ok() || is_transient(answer), "{answer:?}");
            answer.is_err()
        })
        .map(|(message, _)| message.clone())
        .collect();
    assert!(!failed.is_empty(), "the crash came too late to be one");
    server.start_again().await;
    until_it_takes_messages(&target).await;
    for again in failed.chunks(250) {
        let answers = target.transport.publish(again.to_vec(), AMPLE).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
    let broker = broker.again().await;
    let arrived: BTreeSet<String> = arrived(&broker).await.into_keys().collect();
    let sent: BTreeSet<String> = batches.iter().flatten().map(|message| message.id.to_string()).collect();
    assert_eq!(arrived.len(), sent.len());
    assert_eq!(arrived, sent);
}

#[tokio::test]
async fn rows_r56_publications_fail_as_transient_while_the_broker_is_stopped_and_go_through_once_it_is_back() {
    let Some((mut server, broker, target)) = broker(&[]).await else { return };
    publish_one(&target, text(&target, &broker.name, "before")).await.unwrap();
    server.stop().await;
    let failure = publish_one(&target, text(&target, &broker.name, "while")).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome), (Class::Transient, Outcome::NotDelivered), "{failure}");
    assert!(target.transport.probe(BRIEF).await.is_err());
    server.start_again().await;
    until_it_takes_messages(&target).await;
    publish_one(&target, text(&target, &broker.name, "after")).await.unwrap();
    let broker = broker.again().await;
    let bodies: Vec<_> = broker.drain().await.into_iter().map(|message| message.delivery.data).collect();
    assert_eq!(bodies, [b"before".to_vec(), b"after".to_vec()]);
}

#[tokio::test]
async fn tw_03_port_p9_a_frozen_broker_costs_a_deadline_and_none_of_its_promises() {
    let Some((server, broker, target)) = broker(&[]).await else { return };
    until_it_takes_messages(&target).await;
    server.pause();
    let batches: Vec<Vec<Message>> = (0..8).map(|_| batch(&target, &broker.name, 250)).collect();
    let publish = |batch: Vec<Message>| target.transport.publish(batch, BRIEF);
    for answer in join_all(batches.iter().cloned().map(publish)).await.concat() {
        assert!(is_transient(&answer), "{answer:?}");
    }
    assert!(is_transient(&publish(batch(&target, &broker.name, 1)).await[0]), "neither does a new connection help");
    server.resume();
    until_it_takes_messages(&target).await;
    for again in batches.iter().cloned() {
        assert!(target.transport.publish(again, AMPLE).await.iter().all(Result::is_ok));
    }
    let copies = arrived(&broker).await;
    assert!(batches.iter().flatten().all(|message| copies.contains_key(&message.id.to_string())));
}
