use std::sync::Arc;

use posthaste_core::{Address, Body, Lane, RouteKey, Row, RowId, Status, Timestamp, options::Options};

use super::*;

pub(crate) fn row() -> Row {
    let id: RowId = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
    Row {
        id,
        seq: 1,
        lane: Lane::of_key("k1"),
        event_type: "order.placed".into(),
        key: Some("k1".into()),
        tenant: None,
        priority: 0,
        headers: [].into(),
        content_type: "application/json".into(),
        body: Body::Bytes(Bytes::from_static(br#"{"id":1}"#)),
        due_at: Timestamp::from_micros(0),
        status: Status::Pending,
        attempts: 0,
        last_error: None,
        outstanding: None,
        created_at: Timestamp::from_micros(1_767_323_045_678_000),
        published_at: None,
        defect: None,
    }
}

pub(crate) fn message(row: Row) -> Message {
    let route = RouteKey::from("partner");
    Message {
        id: row.id.message_id(&route),
        route,
        source: "/posthaste/orders".into(),
        address: Address::default(),
        payload: None,
        row: Arc::new(row),
    }
}

fn settings(pairs: &[(&str, &str)]) -> Settings {
    let mut options = Options::default();
    pairs.iter().for_each(|(name, value)| options.add(*name, *value));
    Settings::read(options).unwrap()
}

fn sent(row: Row, options: &[(&str, &str)]) -> (HeaderMap, Bytes) {
    make(&message(row), &settings(options), 1_767_323_046).unwrap()
}

fn with_headers(pairs: &[(&str, &str)]) -> Row {
    Row { headers: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(), ..row() }
}

#[test]
fn binary_mode_sends_the_body_and_every_attribute_as_a_header() {
    let row = Row { tenant: Some("acme".into()), ..with_headers(&[("traceparent", "00-1"), ("Region", "eu west")]) };
    let id = row.id.message_id(&"partner".into()).to_string();
    let (headers, body) = sent(row, &[]);
    assert_eq!(body, br#"{"id":1}"#.as_slice());
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", &id),
        ("ce-source", "/posthaste/orders"),
        ("ce-type", "order.placed"),
        ("ce-time", "2026-01-02T03:04:05.678000Z"),
        ("ce-subject", "k1"),
        ("ce-tenant", "acme"),
        ("ce-rowid", "0190163d-8694-739b-aea5-966c26f8ad91"),
        ("ce-traceparent", "00-1"),
        ("traceparent", "00-1"),
        ("content-type", "application/json"),
        ("region", "eu west"),
        ("webhook-id", &id),
        ("webhook-timestamp", "1767323046"),
    ] {
        assert_eq!(headers.get(name).map(|value| value.to_str().unwrap()), Some(value), "{name}");
    }
    assert!(headers.get("webhook-signature").is_none() && headers.get("ce-nullbody").is_none());
}

#[test]
fn attributes_are_percent_encoded_as_the_binding_says() {
    let (headers, _) = sent(Row { key: Some("Euro \u{20ac} \u{1f600} \"50%\"\n~".into()), ..row() }, &[]);
    assert_eq!(headers["ce-subject"], "Euro%20%E2%82%AC%20%F0%9F%98%80%20%2250%25%22%0A~");
}

#[test]
fn no_event_header_can_pass_for_the_target_s_own() {
    let forged = [
        ("ce-id", "1"),
        ("Content-Length", "1"),
        ("Host", "evil"),
        ("transfer-encoding", "chunked"),
        ("webhook-signature", "v1,x"),
        ("posthaste-header-x", "y"),
        ("X-Api-Key", "theirs"),
    ];
    let (headers, _) = sent(with_headers(&forged), &[("header", "X-Api-Key: ours")]);
    for (name, value) in forged {
        assert_eq!(headers[format!("posthaste-header-{}", name.to_lowercase())], value, "{name}");
    }
    assert_eq!(headers["x-api-key"], "ours");
    assert!(headers.get("host").is_none() && headers.get("content-length").is_none());
    assert_ne!(headers["ce-id"], "1");
}

#[test]
fn values_that_a_header_can_t_carry_arrive_encoded_under_another_name() {
    for (value, expected) in
        [("caf\u{e9}", "caf%C3%A9"), ("a\r\nX-B: 1", "a%0D%0AX-B:%201"), (" a", "%20a"), ("\t", "%09")]
    {
        let (headers, _) = sent(with_headers(&[("X-A", value)]), &[]);
        assert_eq!(headers["posthaste-header-x-a"], expected);
        assert!(headers.get("x-a").is_none() && headers.get("x-b").is_none());
    }
    let (headers, _) = sent(with_headers(&[("a b\u{e9}", "1"), ("X-Empty", ""), ("X-Percent", "50%")]), &[]);
    assert_eq!(headers["posthaste-header-a%20b%c3%a9"], "1");
    assert!(headers["x-empty"].is_empty() && headers["x-percent"] == "50%");
}

#[test]
fn decision_39_a_null_body_is_empty_and_says_so() {
    let (headers, body) = sent(Row { body: Body::Null, ..row() }, &[]);
    assert!(body.is_empty());
    assert_eq!(headers["ce-nullbody"], "true");
    let (headers, body) = sent(Row { body: Body::Bytes(Bytes::new()), ..row() }, &[]);
    assert!(body.is_empty() && headers.get("ce-nullbody").is_none());
}

#[test]
fn structured_mode_sends_one_json_object() {
    let (headers, body) = sent(with_headers(&[("Region", "eu")]), &[("mode", "structured")]);
    assert_eq!(headers["content-type"], "application/cloudevents+json; charset=utf-8");
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&json["data"]["id"], &json["subject"]), (&serde_json::json!(1), &serde_json::json!("k1")));
    assert!(headers.get("ce-id").is_none() && headers.get("webhook-id").is_some());
}

#[test]
fn an_event_s_authorization_never_replaces_the_target_s() {
    let (headers, _) = sent(with_headers(&[("Authorization", "theirs")]), &[("header", "Authorization: ours")]);
    assert_eq!(headers["authorization"], "ours");
    assert_eq!(headers.get_all("authorization").iter().count(), 1);
    let (headers, _) = sent(with_headers(&[("Authorization", "theirs"), ("Cookie", "c")]), &[]);
    assert!(headers.get("authorization").is_none() && headers.get("cookie").is_none());
}

#[test]
fn a_content_type_that_no_header_can_carry_is_permanent() {
    let broken = Row { content_type: "text/plain\r\nX: y".into(), ..row() };
    let failure = make(&message(broken), &settings(&[]), 0).unwrap_err();
    assert_eq!(failure.class, Class::Permanent);
}

#[test]
fn report_132_attempts_differ_in_their_time_and_signature_only() {
    let settings = settings(&[("secret", "s")]);
    let message = message(with_headers(&[("a", "1"), ("b", "2")]));
    let [(mut first, body), (mut second, again)] = [1, 2].map(|now| make(&message, &settings, now).unwrap());
    for name in ["webhook-timestamp", "webhook-signature"] {
        assert_ne!(first.remove(name), second.remove(name));
    }
    assert_eq!((first, body), (second, again));
}
