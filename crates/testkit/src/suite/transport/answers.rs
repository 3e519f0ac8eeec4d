//! One answer a message, each its own.

use std::collections::BTreeSet;

use posthaste_core::{Class, failure::Outcome};

use super::scene::{Scene, blob, event};
use crate::suite::case::cases;

cases![Scene;
    port_p1_one_answer_a_message,
    port_p1_no_messages_no_answers,
    port_p1_a_refused_message_answers_in_its_own_place needs Refusals,
    port_p2_what_is_confirmed_has_arrived,
    port_p4_publications_one_by_one_arrive_in_that_order,
    port_p8_concurrent_batches_are_answered_each_on_its_own,
    port_p_the_largest_batch_is_taken,
];

async fn port_p1_one_answer_a_message(scene: &Scene) {
    let batch: Vec<_> = (0..7).map(|n| scene.message(blob(format!("{n}")))).collect();
    let ids: BTreeSet<String> = batch.iter().map(|message| message.id.to_string()).collect();
    scene.deliver(batch).await;
    let arrived: BTreeSet<String> = scene.arrived(7).await.into_iter().map(|message| message.id).collect();
    assert_eq!(arrived, ids);
}

async fn port_p1_no_messages_no_answers(scene: &Scene) {
    assert_eq!(scene.publish(vec![]).await, []);
}

async fn port_p1_a_refused_message_answers_in_its_own_place(scene: &Scene) {
    for bad in [[1, 3].as_slice(), &[0], &[4], &[0, 1, 2, 3, 4]] {
        let mut batch: Vec<_> = (0..5).map(|n| scene.message(blob(format!("{n}")))).collect();
        for n in bad {
            batch[*n] = scene.destination.refused(batch[*n].clone());
        }
        let answers = scene.publish(batch).await;
        let failed: Vec<usize> = (0..answers.len()).filter(|n| answers[*n].is_err()).collect();
        assert_eq!((answers.len(), failed.as_slice()), (5, bad), "{answers:?}");
        for failure in answers.into_iter().filter_map(Result::err) {
            assert_ne!(failure.class, Class::Transient, "a refusal is an answer: {failure:?}");
            assert_eq!(failure.outcome, Outcome::NotDelivered, "{failure:?}");
            assert!(!failure.detail.is_empty());
        }
    }
    scene.arrived(3 + 4 + 4).await;
}

async fn port_p2_what_is_confirmed_has_arrived(scene: &Scene) {
    for n in 0..10 {
        scene.deliver(vec![scene.message(event())]).await;
        scene.arrived(n + 1).await;
    }
}

async fn port_p4_publications_one_by_one_arrive_in_that_order(scene: &Scene) {
    let mut ids = Vec::new();
    for _ in 0..30 {
        let message = scene.message(event().key("k"));
        ids.push(message.id.to_string());
        scene.deliver(vec![message]).await;
    }
    let arrived: Vec<String> = scene.arrived(30).await.into_iter().map(|message| message.id).collect();
    assert_eq!(arrived, ids);
}

async fn port_p8_concurrent_batches_are_answered_each_on_its_own(scene: &Scene) {
    let capabilities = scene.transport().capabilities();
    let batches: Vec<Vec<_>> = (0..capabilities.concurrency)
        .map(|_| (0..capabilities.max_batch.min(5)).map(|n| scene.message(blob(format!("{n}")))).collect())
        .collect();
    let ids: BTreeSet<String> = batches.iter().flatten().map(|message| message.id.to_string()).collect();
    let answers = futures_util::future::join_all(batches.into_iter().map(|batch| scene.publish(batch))).await;
    assert!(answers.iter().flatten().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers.iter().map(Vec::len).sum::<usize>(), ids.len());
    let arrived: BTreeSet<String> = scene.arrived(ids.len()).await.into_iter().map(|message| message.id).collect();
    assert_eq!(arrived, ids);
}

async fn port_p_the_largest_batch_is_taken(scene: &Scene) {
    let count = scene.transport().capabilities().max_batch.min(5_000);
    let batch: Vec<_> = (0..count).map(|n| scene.message(blob(format!("{n}")))).collect();
    scene.deliver(batch).await;
    scene.arrived(count).await;
}
