//! Messages to be sent.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses a part of it, as a test does")]

use std::{sync::Arc, time::Duration};

use posthaste_core::{Address, Body, Lane, Message, RouteKey, Row, RowId, Status, Timestamp};

/// Generous: reached only when something is broken.
pub const DEADLINE: Duration = Duration::from_secs(30);

pub fn row(content_type: &str, body: Body) -> Row {
    Row {
        id: RowId::generate(),
        seq: 1,
        lane: Lane::new(0).unwrap(),
        event_type: "order.placed".to_owned(),
        key: Some("k1".to_owned()),
        tenant: Some("acme".to_owned()),
        priority: 0,
        headers: [("traceparent", "00-1"), ("x-shop", "north")].map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
        content_type: content_type.to_owned(),
        body,
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

pub fn message(row: Row) -> Message {
    let route = RouteKey::single();
    Message {
        id: row.id.message_id(&route),
        route,
        row: Arc::new(row),
        source: "/posthaste/orders".into(),
        address: Address::default(),
        payload: None,
    }
}

pub fn text(body: &str) -> Message {
    bytes("text/plain", body.as_bytes())
}

pub fn bytes(content_type: &str, body: &[u8]) -> Message {
    message(row(content_type, Body::Bytes(body.to_vec().into())))
}

/// What every transport must carry unchanged.
pub fn difficult_bodies() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("application/json", br#"{"id":9007199254740993,"d":0.1000000000000000055511151231257827}"#.to_vec()),
        ("application/json", b"{\n  \"a\": 1.10\n}".to_vec()),
        ("application/json", br#"{"a":"x\u0000y"}"#.to_vec()),
        ("application/json", vec![]),
        ("text/plain", vec![]),
        ("application/octet-stream", vec![0xff, 0xfe, 0x00, b'\n', 0x80]),
        ("application/octet-stream", vec![7; 5 << 20]),
    ]
}
