//! Brokers that are silent, rude or stuck, played by a scripted server.

mod support;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use posthaste_core::{Class, Failure, failure::Outcome, port::Target};
use support::{
    SOON,
    fake::{Fake, Heard, Reply, ack, blocked, hang_up, method, returned, unblocked},
    target, text,
};

const BRIEF: Duration = Duration::from_millis(300);

/// Publishes one message for each key; panics if that takes much longer than `deadline`.
async fn publish(target: &Target, keys: &[&str], deadline: Duration) -> Vec<Result<(), Failure>> {
    let batch = keys.iter().map(|key| text(target, key, "x")).collect();
    let answers = target.transport.publish(batch, deadline);
    tokio::time::timeout(deadline + SOON, answers).await.expect("an answer within the deadline")
}

fn outcomes(answers: &[Result<(), Failure>]) -> Vec<Option<(Class, Outcome)>> {
    answers.iter().map(|answer| answer.as_ref().err().map(|failure| (failure.class, failure.outcome))).collect()
}

/// Until the client has taken in `connection.unblocked`, which it says through its probe.
async fn until_unblocked(target: &Target) {
    let unblocked = async {
        while target.transport.probe(SOON).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, unblocked).await.expect("it is never unblocked");
}

const NOT_SENT: Option<(Class, Outcome)> = Some((Class::Transient, Outcome::NotDelivered));
const LOST: Option<(Class, Outcome)> = Some((Class::Transient, Outcome::Lost));
const NO_ANSWER: Option<(Class, Outcome)> = Some((Class::Transient, Outcome::NoAnswer));

/// A server that does `rudeness` where it is asked to, until the switch is turned off.
async fn rude_while(rudeness: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> (Fake, Arc<AtomicBool>) {
    let rude = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&rude);
    let fake = Fake::start(move |heard| if switch.load(Ordering::SeqCst) { rudeness(heard) } else { Reply::Polite });
    (fake.await, rude)
}

#[tokio::test]
async fn report_041_a_server_that_accepts_and_stays_silent_costs_one_deadline() {
    let (fake, rude) = rude_while(|_| Reply::Nothing).await;
    let target = target(&fake.url, &[]);
    assert_eq!(outcomes(&publish(&target, &["a", "b"], BRIEF).await), [NOT_SENT, NOT_SENT]);
    let failure = target.transport.probe(BRIEF).await.unwrap_err();
    assert!(failure.detail.contains("127.0.0.1"), "{failure}");
    fake.until_closed(2).await;
    rude.store(false, Ordering::SeqCst);
    assert_eq!(outcomes(&publish(&target, &["a"], SOON).await), [None]);
}

#[tokio::test]
async fn report_041_connection_close_after_the_first_publish_is_a_loss_and_the_next_one_goes_through() {
    let (fake, rude) = rude_while(|heard| match heard {
        Heard::Publish { .. } => Reply::Say(hang_up(320, "CONNECTION_FORCED - closed by an operator")),
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    let answers = publish(&target, &["a"], SOON).await;
    assert_eq!(outcomes(&answers), [LOST]);
    assert!(answers[0].as_ref().unwrap_err().detail.contains("320 CONNECTION_FORCED"), "{answers:?}");
    rude.store(false, Ordering::SeqCst);
    assert_eq!(outcomes(&publish(&target, &["a"], SOON).await), [None]);
}

#[tokio::test]
async fn report_041_a_refused_connection_open_is_answered_and_recovered_from() {
    let (fake, rude) = rude_while(|heard| match heard {
        Heard::Method(10, 40) => Reply::Say(hang_up(530, "NOT_ALLOWED - vhost down")),
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    let answers = publish(&target, &["a"], SOON).await;
    assert_eq!(outcomes(&answers), [NOT_SENT]);
    assert!(answers[0].as_ref().unwrap_err().detail.contains("530 NOT_ALLOWED"), "{answers:?}");
    rude.store(false, Ordering::SeqCst);
    assert_eq!(outcomes(&publish(&target, &["a"], SOON).await), [None]);
}

#[tokio::test]
async fn a_server_that_drops_the_socket_during_the_handshake_is_answered_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = target(&format!("amqp://{}", listener.local_addr().unwrap()), &[]);
    let dropping = async { while listener.accept().await.is_ok() {} };
    tokio::select! {
        answers = publish(&target, &["a"], SOON) => assert_eq!(outcomes(&answers), [NOT_SENT]),
        () = dropping => {}
    }
}

#[tokio::test]
async fn tw_03_port_p9_what_has_no_confirmation_by_the_deadline_is_no_answer_and_its_connection_is_not_used_again() {
    let (fake, rude) = rude_while(|heard| match heard {
        Heard::Publish { nth: 2.., .. } => Reply::Nothing,
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    assert_eq!(outcomes(&publish(&target, &["a"], SOON).await), [None]);
    assert_eq!(outcomes(&publish(&target, &["b", "c"], BRIEF).await), [NO_ANSWER, NO_ANSWER]);
    fake.until_closed(1).await;
    rude.store(false, Ordering::SeqCst);
    assert_eq!(outcomes(&publish(&target, &["d"], SOON).await), [None]);
    assert_eq!(fake.connections(), 2);
}

#[tokio::test]
async fn a_queue_that_never_confirms_costs_its_channel_but_not_the_connection_of_the_others() {
    let stuck = |heard: &Heard| matches!(heard, Heard::Publish { key, .. } if key == "stuck");
    let fake = Fake::start(move |heard| if stuck(heard) { Reply::Nothing } else { Reply::Polite }).await;
    let target = target(&fake.url, &[]);
    let others = async {
        fake.until_published(1).await;
        assert_eq!(outcomes(&publish(&target, &["fine"], SOON).await), [None]);
    };
    let (answers, ()) = tokio::join!(publish(&target, &["stuck"], Duration::from_secs(1)), others);
    assert_eq!(outcomes(&answers), [NO_ANSWER]);
    assert_eq!(outcomes(&publish(&target, &["fine"], SOON).await), [None]);
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn confirmations_that_came_in_time_count_although_others_are_missing() {
    let silent = |heard: &Heard| matches!(heard, Heard::Publish { nth: 2, .. });
    let fake = Fake::start(move |heard| if silent(heard) { Reply::Nothing } else { Reply::Polite }).await;
    let target = target(&fake.url, &[]);
    assert_eq!(outcomes(&publish(&target, &["a", "b", "c"], BRIEF).await), [None, NO_ANSWER, None]);
}

#[tokio::test]
async fn report_038_an_acknowledgement_proves_nothing_while_returns_of_its_batch_may_be_unknown() {
    let headers = Mutex::new(Vec::new());
    let fake = Fake::start(move |heard| {
        let Heard::Publish { channel, nth, header, .. } = heard else { return Reply::Polite };
        let mut headers = headers.lock().unwrap();
        headers.push(header.clone());
        match nth {
            // Two returns, and a confirmation of the second only: lapin hands it the first return.
            3 => Reply::Say(
                [returned(*channel, &headers[0]), returned(*channel, &headers[1]), ack(*channel, 2)].concat(),
            ),
            _ => Reply::Nothing,
        }
    })
    .await;
    let target = target(&fake.url, &[]);
    let answers = publish(&target, &["a", "b", "c"], BRIEF).await;
    let misrouted = Some((Class::Misrouted, Outcome::NotDelivered));
    assert_eq!(outcomes(&answers), [misrouted, LOST, NO_ANSWER], "{answers:?}");
}

#[tokio::test]
async fn report_044_while_blocked_new_batches_are_answered_at_once_and_those_in_flight_wait() {
    let (fake, rude) = rude_while(|heard| match heard {
        Heard::Publish { .. } => Reply::Say(blocked("low on memory")),
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    let others = async {
        fake.until_published(1).await;
        let failure = loop {
            match target.transport.probe(SOON).await {
                Err(failure) => break failure,
                Ok(()) => tokio::task::yield_now().await,
            }
        };
        assert_eq!(
            (failure.class, failure.detail.as_str()),
            (Class::Transient, "blocked by the broker: low on memory")
        );
        assert_eq!(publish(&target, &["b"], SOON).await, [Err(failure)]);
        rude.store(false, Ordering::SeqCst);
        fake.say(&[unblocked(), ack(1, 1)].concat());
    };
    let (answers, ()) = tokio::join!(publish(&target, &["a"], SOON), others);
    assert_eq!(outcomes(&answers), [None]);
    until_unblocked(&target).await;
    assert_eq!(outcomes(&publish(&target, &["b"], SOON).await), [None]);
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn report_044_a_blocked_connection_whose_batch_ran_out_of_time_stays_blocked_until_the_broker_says_otherwise() {
    let (fake, rude) = rude_while(|heard| match heard {
        Heard::Publish { .. } => Reply::Say(blocked("low on disk")),
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    assert_eq!(outcomes(&publish(&target, &["a"], BRIEF).await), [NO_ANSWER]);
    let failure = target.transport.probe(SOON).await.unwrap_err();
    assert_eq!(failure.detail, "blocked by the broker: low on disk");
    assert_eq!(fake.connections(), 1, "a new connection would not know that it is blocked");
    rude.store(false, Ordering::SeqCst);
    fake.say(&unblocked());
    until_unblocked(&target).await;
    assert_eq!(outcomes(&publish(&target, &["b"], SOON).await), [None]);
}

#[tokio::test]
async fn report_044_what_is_not_yet_sent_when_the_blockage_begins_does_not_wait_for_its_end() {
    let (fake, rude) = rude_while(|heard| match heard {
        Heard::Method(20, 10) => Reply::Say(blocked("low on memory")),
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    let answers = tokio::time::timeout(SOON, publish(&target, &["a"], Duration::from_secs(3600))).await.unwrap();
    assert_eq!(outcomes(&answers), [NOT_SENT]);
    assert_eq!(answers[0].as_ref().unwrap_err().detail, "blocked by the broker: low on memory");
    rude.store(false, Ordering::SeqCst);
    fake.say(&unblocked());
    until_unblocked(&target).await;
    assert_eq!(outcomes(&publish(&target, &["b"], SOON).await), [None]);
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn report_044_a_blocked_connection_that_dies_is_replaced() {
    let (fake, rude) = rude_while(|heard| match heard {
        Heard::Publish { .. } => Reply::Say([blocked("low on memory"), hang_up(320, "CONNECTION_FORCED")].concat()),
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    assert_eq!(outcomes(&publish(&target, &["a"], SOON).await), [LOST]);
    rude.store(false, Ordering::SeqCst);
    assert_eq!(outcomes(&publish(&target, &["a"], SOON).await), [None]);
}

#[tokio::test]
async fn a_channel_that_never_opens_costs_one_deadline_and_the_connection() {
    let (fake, rude) = rude_while(|heard| match heard {
        Heard::Method(20, 10) => Reply::Nothing,
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    assert_eq!(outcomes(&publish(&target, &["a"], BRIEF).await), [NOT_SENT]);
    fake.until_closed(1).await;
    rude.store(false, Ordering::SeqCst);
    assert_eq!(outcomes(&publish(&target, &["a"], SOON).await), [None]);
}

#[tokio::test]
async fn port_p5_a_publication_dropped_in_the_handshake_leaves_no_connection() {
    let fake = Fake::start(|_| Reply::Nothing).await;
    let target = target(&fake.url, &[]);
    tokio::select! {
        _ = publish(&target, &["a"], SOON) => panic!("nobody answered"),
        () = async { while fake.connections() == 0 { tokio::task::yield_now().await } } => {}
    }
    fake.until_closed(1).await;
}

#[tokio::test]
async fn close_ends_quickly_although_a_publication_hangs_and_the_broker_does_not_say_goodbye() {
    let fake = Fake::start(|heard| match heard {
        Heard::Publish { .. } | Heard::Method(10, 50) => Reply::Nothing,
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    let close = async {
        fake.until_published(1).await;
        target.transport.close().await;
    };
    let (answers, ()) = tokio::join!(publish(&target, &["a"], Duration::from_secs(3600)), close);
    assert_eq!(outcomes(&answers), [LOST]);
    fake.until_closed(1).await;
}

#[tokio::test]
async fn dropping_the_transport_cuts_its_connection() {
    let fake = Fake::start(|_| Reply::Polite).await;
    let target = target(&fake.url, &[]);
    assert_eq!(outcomes(&publish(&target, &["a"], SOON).await), [None]);
    drop(target);
    fake.until_closed(1).await;
}

#[tokio::test]
async fn a_channel_closed_for_one_message_is_permanent_for_it_alone_and_a_loss_for_its_company() {
    let text = b"\x1aPRECONDITION_FAILED - nope";
    let fake = Fake::start(move |heard| match heard {
        Heard::Publish { channel, key, .. } if key == "bad" => {
            Reply::Say(method(*channel, 20, 40, &[&406_u16.to_be_bytes()[..], text, &[0; 4]].concat()))
        }
        Heard::Publish { key, .. } if key == "before" => Reply::Nothing,
        _ => Reply::Polite,
    })
    .await;
    let target = target(&fake.url, &[]);
    assert_eq!(outcomes(&publish(&target, &["before", "bad"], SOON).await), [LOST, LOST]);
    let answers = publish(&target, &["bad"], SOON).await;
    assert_eq!(outcomes(&answers), [Some((Class::Permanent, Outcome::NotDelivered))]);
    assert!(answers[0].as_ref().unwrap_err().detail.starts_with("406 PRECONDITION_FAILED - nope"), "{answers:?}");
    assert_eq!(outcomes(&publish(&target, &["good"], SOON).await), [None]);
    assert_eq!(fake.connections(), 1);
}
