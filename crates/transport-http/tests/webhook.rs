//! Webhooks against a server on this machine.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use posthaste_core::{
    Body, Failure, Message,
    failure::{Class, Outcome},
    port::Transport,
};
use support::{Answer, OK, Server, json, local, message, target};
use tokio::net::TcpListener;

const DEADLINE: Duration = Duration::from_secs(30);

async fn send(transport: &Arc<dyn Transport>, message: Message) -> Result<(), Failure> {
    let mut answers = transport.publish(vec![message], DEADLINE).await;
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

fn facts(answer: Result<(), Failure>) -> (Class, Outcome) {
    let failure = answer.unwrap_err();
    (failure.class, failure.outcome)
}

#[tokio::test]
async fn port_p7_bytes_and_attributes_arrive_as_they_are() {
    let mut server = Server::start(|_| OK).await;
    let transport = local(&server.url("/hooks/{type}?k={key}"), &[]);
    let large: Vec<u8> = (0..5u32 << 20).map(|n| (n % 251) as u8).collect();
    for (content_type, body) in [
        ("application/octet-stream", vec![0xff, 0xfe, 0x80, 0x41]),
        ("application/json; charset=utf-8", b"{ \"a\" :\n1.10}".to_vec()),
        ("text/plain", Vec::new()),
        ("application/octet-stream", large),
    ] {
        let message = message(content_type, Body::Bytes(body.clone().into()));
        assert_eq!(send(&transport, message.clone()).await, Ok(()));
        let received = server.received().await;
        assert!(received.body == body, "report_072: {} bytes of {content_type}", received.body.len());
        assert_eq!(received.line, "POST /hooks/order.placed?k=k%201 HTTP/1.1");
        let id = message.id.to_string();
        for (name, value) in
            [("ce-id", &*id), ("ce-subject", "k%201"), ("region", "eu"), ("content-type", content_type)]
        {
            assert_eq!(received.headers[name], value);
        }
    }
    assert_eq!(send(&transport, message("application/json", Body::Null)).await, Ok(()));
    let received = server.received().await;
    assert_eq!((received.body.len(), &*received.headers["ce-nullbody"]), (0, "true"));
    assert_eq!(received.headers["content-length"], "0");
}

#[tokio::test]
async fn the_signature_satisfies_the_specification_s_own_library() {
    let secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let mut server = Server::start(|_| OK).await;
    for mode in ["binary", "structured"] {
        let transport = local(&server.url("/"), &[("secret", secret), ("mode", mode)]);
        send(&transport, json()).await.unwrap();
        let received = server.received().await;
        let headers = received.headers.iter().filter(|(name, _)| name.starts_with("webhook-"));
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let verifier = standardwebhooks::Webhook::new(secret).unwrap();
        verifier.verify(&received.body, &headers).unwrap();
        assert!(verifier.verify(b"other", &headers).is_err());
    }
}

#[tokio::test]
async fn report_094_each_answer_is_read_on_its_own_in_the_order_of_the_batch() {
    let server = Server::start(|request| match &*request.headers["ce-tenant"] {
        "1" => Answer::Status("410 Gone", "closed"),
        "2" => Answer::Status("429 Too Many Requests\r\nretry-after: 3", ""),
        "3" => Answer::Status("503 Service Unavailable\r\nretry-after: -1", ""),
        "4" => Answer::Status("500 Internal Server Error", "oops"),
        "5" => Answer::Status("404 Not Found", ""),
        "6" => Answer::Status("307 Temporary Redirect\r\nlocation: /elsewhere", ""),
        _ => Answer::Status("204 No Content", ""),
    })
    .await;
    let batch = (0..8).map(|number: u8| {
        let mut message = json();
        let row = Arc::make_mut(&mut message.row);
        row.tenant = Some(number.to_string());
        message
    });
    let answers = local(&server.url("/"), &[]).publish(batch.collect(), DEADLINE).await;
    let facts: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(|failure| failure.class)).collect();
    let expected =
        [Class::Permanent, Class::Transient, Class::Transient, Class::Unknown, Class::Misrouted, Class::Unknown];
    assert_eq!(facts[1..7], expected.map(Some));
    assert_eq!((facts[0], facts[7]), (None, None));
    let pause = |index: usize| answers[index].as_ref().unwrap_err().retry_after;
    assert_eq!((pause(2), pause(3)), (Some(Duration::from_secs(3)), None));
    assert_eq!(answers[1].as_ref().unwrap_err().detail, "HTTP 410 Gone: closed");
}

#[tokio::test]
async fn a_redirect_is_not_followed_even_where_it_leads_inside() {
    let inner = Server::start(|_| OK).await;
    let location: &'static str = format!("302 Found\r\nlocation: http://{}/", inner.address).leak();
    let server = Server::start(move |_| Answer::Status(location, "")).await;
    let transport = local(&server.url("/"), &[]);
    assert_eq!(facts(send(&transport, json()).await), (Class::Unknown, Outcome::NotDelivered));
    assert_eq!(inner.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn decision_35_addresses_inside_are_refused_before_anything_is_sent() {
    let server = Server::start(|_| OK).await;
    let port = server.address.port();
    for host in ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]", "[::1]"] {
        let transport = target(&format!("http://{host}:{port}/"), &[]).transport;
        for answer in [send(&transport, json()).await, transport.probe(DEADLINE).await] {
            let failure = answer.unwrap_err();
            assert_eq!((failure.class, failure.outcome), (Class::Transient, Outcome::NotDelivered), "{host}");
            assert!(failure.detail.contains("allow: [") && failure.detail.contains("--allow-net"), "{failure}");
        }
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
    for host in ["127.0.0.1", "localhost"] {
        let transport = target(&format!("http://{host}:{port}/"), &[("allow", "127.0.0.0/8")]).transport;
        assert_eq!(send(&transport, json()).await, Ok(()), "{host}");
        assert_eq!(transport.probe(DEADLINE).await, Ok(()), "{host}");
    }
}

#[tokio::test]
async fn what_can_t_be_reached_is_not_delivered() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for url in [format!("http://{unused}/"), "http://does-not-exist.invalid/".to_owned()] {
        let transport = local(&url, &[]);
        assert_eq!(facts(send(&transport, json()).await), (Class::Transient, Outcome::NotDelivered), "{url}");
        assert_eq!(facts(transport.probe(DEADLINE).await), (Class::Transient, Outcome::NotDelivered), "{url}");
    }
    let plain = Server::start(|_| OK).await;
    let transport = local(&plain.url("/").replace("http:", "https:"), &[("connect_timeout", "200ms")]);
    let failure = tokio::time::timeout(DEADLINE, send(&transport, json())).await.unwrap().unwrap_err();
    assert_eq!((failure.class, failure.outcome), (Class::Transient, Outcome::NotDelivered), "no TLS there: {failure}");
}

#[tokio::test]
async fn decision_04_a_connection_lost_in_flight_has_no_known_outcome() {
    for part in ["", "HTTP/1.1 200 OK\r\ncontent-le"] {
        let server = Server::start(move |_| Answer::Cut(part)).await;
        let answer = send(&local(&server.url("/"), &[]), json()).await;
        assert_eq!(facts(answer), (Class::Transient, Outcome::Lost), "{part:?}");
    }
}

#[tokio::test]
async fn a_status_counts_even_if_the_rest_of_the_answer_never_comes() {
    for (answer, expected) in [
        (Answer::Raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"), None),
        (Answer::Cut("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"), None),
        (Answer::Cut("HTTP/1.1 410 Gone\r\ncontent-length: 10\r\n\r\nabc"), Some(Class::Permanent)),
    ] {
        let answer = Arc::new(std::sync::Mutex::new(Some(answer)));
        let server = Server::start(move |_| answer.lock().unwrap().take().unwrap()).await;
        let result = send(&local(&server.url("/"), &[]), json()).await;
        assert_eq!(result.err().map(|failure| failure.class), expected);
    }
}

#[tokio::test]
async fn port_p9_no_answer_within_the_deadline_and_the_connection_is_not_used_again() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let server =
        Server::start(move |_| if count.fetch_add(1, Ordering::SeqCst) < 2 { Answer::Silence } else { OK }).await;
    let by_deadline = local(&server.url("/"), &[]);
    let answers = by_deadline.publish(vec![json()], Duration::from_millis(100)).await;
    assert_eq!(facts(answers.into_iter().next().unwrap()), (Class::Transient, Outcome::NoAnswer));
    let by_option = local(&server.url("/"), &[("timeout", "100ms")]);
    assert_eq!(facts(send(&by_option, json()).await), (Class::Transient, Outcome::NoAnswer));
    assert_eq!(send(&by_option, json()).await, Ok(()));
    assert_eq!(server.connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn report_101_one_slow_message_holds_neither_its_batch_nor_another_target() {
    let mut slow = Server::start(|_| Answer::Silence).await;
    let fast = Server::start(|_| OK).await;
    let stuck = local(&slow.url("/"), &[]);
    let batch = (0..32).map(|_| json()).collect();
    let publication = tokio::spawn(async move { stuck.publish(batch, DEADLINE).await });
    for _ in 0..32 {
        slow.received().await;
    }
    let transport = local(&fast.url("/"), &[]);
    for _ in 0..50 {
        assert_eq!(send(&transport, json()).await, Ok(()));
    }
    assert!(!publication.is_finished());
    publication.abort();
    assert!(fast.connections.load(Ordering::SeqCst) < 25, "connections are kept");
}

#[tokio::test]
async fn close_ends_a_hanging_publication_and_the_target_can_be_used_again() {
    let first = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&first);
    let mut server =
        Server::start(move |_| if count.fetch_add(1, Ordering::SeqCst) == 0 { Answer::Silence } else { OK }).await;
    let transport = local(&server.url("/"), &[]);
    let hanging = Arc::clone(&transport);
    let publication = tokio::spawn(async move { send(&hanging, json()).await });
    server.received().await;
    let started = Instant::now();
    transport.close().await;
    transport.close().await;
    assert_eq!(facts(publication.await.unwrap()), (Class::Transient, Outcome::Lost));
    assert!(started.elapsed() < DEADLINE);
    assert_eq!(send(&transport, json()).await, Ok(()));
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    let mut server = Server::start(|_| Answer::Status("401 Unauthorized", "not hunter2, nor tok3n, nor s3cret")).await;
    let url = server.url("/").replace("http://", "http://app:hunter2@");
    let options = [("header", "X-Token: tok3n"), ("secret", "s3cret")];
    let shown = target(&url, &options).label;
    let failure = send(&local(&url, &options), json()).await.unwrap_err();
    assert!(failure.detail.contains("HTTP 401") && failure.class == Class::Unknown, "{failure}");
    for secret in ["hunter2", "tok3n", "s3cret"] {
        assert!(!failure.detail.contains(secret) && !shown.contains(secret), "{failure} {shown}");
    }
    let received = server.received().await;
    assert_eq!(received.headers["authorization"], "Basic YXBwOmh1bnRlcjI=");
    assert_eq!(received.headers["x-token"], "tok3n");
    assert!(received.headers["user-agent"].starts_with("posthaste/"));
}

#[tokio::test]
async fn a_key_that_would_change_the_path_is_a_permanent_failure() {
    let server = Server::start(|_| OK).await;
    let mut message = json();
    Arc::make_mut(&mut message.row).key = Some("..".into());
    let failure = send(&local(&server.url("/a/{key}/b"), &[]), message).await;
    assert_eq!(facts(failure), (Class::Permanent, Outcome::NotDelivered));
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[test]
fn decision_35_whether_a_target_signs_is_known_beforehand() {
    let mut options = posthaste_core::options::Options::default();
    assert!(!posthaste_transport_http::is_signed(&options));
    options.add("secret", "s");
    assert!(posthaste_transport_http::is_signed(&options));
}
