//! CloudEvents 1.0: the attributes of a message, and its JSON form.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::value::RawValue;

use crate::{Message, event::is_json};

/// Headers that carry the W3C trace context; they become extension attributes.
pub const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// The context attributes of a message in the order they are written, without `datacontenttype`,
/// which every protocol carries in a place of its own.
#[must_use]
pub fn attributes(message: &Message) -> Vec<(&'static str, String)> {
    let row = &message.row;
    let mut attributes = vec![
        ("specversion", "1.0".to_owned()),
        ("id", message.id.to_string()),
        ("source", message.source.to_string()),
        ("type", row.event_type.clone()),
        ("time", row.created_at.to_string()),
    ];
    attributes.extend(row.key.clone().map(|key| ("subject", key)));
    attributes.extend(row.tenant.clone().map(|tenant| ("tenant", tenant)));
    attributes.push(("rowid", row.id.to_string()));
    if message.body().is_none() {
        attributes.push(("nullbody", "true".to_owned()));
    }
    for name in TRACE_HEADERS {
        attributes.extend(row.headers.get(name).map(|value| (name, value.clone())));
    }
    attributes
}

/// The headers of a message that are the user's own: all but the trace context.
pub fn user_headers(message: &Message) -> impl Iterator<Item = (&str, &str)> {
    let headers = message.row.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    headers.filter(|(name, _)| !TRACE_HEADERS.contains(name))
}

/// The message as one CloudEvents JSON object on one line, without the line's end.
///
/// A JSON body without a line break stands in `data` byte for byte; every other body in
/// `data_base64`; a NULL body in neither. The user's headers stand in the extension `headers`.
#[must_use]
pub fn json_line(message: &Message) -> Vec<u8> {
    let size = message.body().map_or(0, |body| body.len());
    let mut line = Vec::with_capacity(size * 4 / 3 + 512);
    line.push(b'{');
    for (name, value) in attributes(message) {
        push_member(&mut line, name, &value);
    }
    for (name, value) in user_headers(message) {
        push_member(&mut line, &format!("header_{}", name.to_ascii_lowercase()), value);
    }
    push_member(&mut line, "datacontenttype", message.content_type());
    if let Some(body) = message.body() {
        if stands_verbatim(message.content_type(), body) {
            line.extend_from_slice(b"\"data\":");
            line.extend_from_slice(body);
        } else {
            line.extend_from_slice(b"\"data_base64\":\"");
            line.extend_from_slice(STANDARD.encode(body).as_bytes());
            line.push(b'"');
        }
    } else {
        line.pop();
    }
    line.push(b'}');
    line
}

fn stands_verbatim(content_type: &str, body: &[u8]) -> bool {
    is_json(content_type)
        && !body.iter().any(|byte| matches!(byte, b'\n' | b'\r'))
        && serde_json::from_slice::<&RawValue>(body).is_ok()
}

fn push_member(line: &mut Vec<u8>, name: &str, value: &str) {
    push_string(line, name);
    line.push(b':');
    push_string(line, value);
    line.push(b',');
}

fn push_string(line: &mut Vec<u8>, text: &str) {
    line.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Address, Body, Lane, RouteKey, Row, RowId, Status, Timestamp};

    fn message(content_type: &str, body: Body) -> Message {
        let id: RowId = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
        let route = RouteKey::single();
        Message {
            id: id.message_id(&route),
            route,
            source: "/posthaste/orders".into(),
            address: Address::default(),
            payload: None,
            row: Arc::new(Row {
                id,
                seq: 1,
                lane: Lane::of_key("k\"1"),
                event_type: "order.placed".into(),
                key: Some("k\"1".into()),
                tenant: None,
                priority: 0,
                headers: [("traceparent".to_owned(), "00-1".to_owned()), ("X".to_owned(), "y".to_owned())].into(),
                content_type: content_type.into(),
                body,
                due_at: Timestamp::from_micros(0),
                status: Status::Pending,
                attempts: 0,
                last_error: None,
                outstanding: None,
                created_at: Timestamp::from_micros(1_767_323_045_678_000),
                published_at: None,
                defect: None,
            }),
        }
    }

    fn parsed(message: &Message) -> serde_json::Value {
        serde_json::from_slice(&json_line(message)).unwrap()
    }

    #[test]
    fn decision_18_a_json_body_on_one_line_stands_byte_for_byte() {
        let body = br#"{"b": 9007199254740993, "b":0.1000000000000000055511151231257827,"x":"\u0000"}"#;
        let line = String::from_utf8(json_line(&message("application/json", Body::Bytes(body[..].into())))).unwrap();
        assert!(line.ends_with(&format!("\"data\":{}}}", std::str::from_utf8(body).unwrap())), "{line}");
        assert!(line.contains(r#""subject":"k\"1""#) && line.contains(r#""time":"2026-01-02T03:04:05.678000Z""#));
    }

    #[test]
    fn decision_18_every_other_body_is_base64() {
        for (content_type, body) in [
            ("application/json", &b"{\n}"[..]),
            ("application/json", b"{"),
            ("application/json", b"\xff\xfe\x80\x41"),
            ("application/json", b""),
            ("text/plain", b"1"),
        ] {
            let value = parsed(&message(content_type, Body::Bytes(body.into())));
            let decoded = STANDARD.decode(value["data_base64"].as_str().unwrap()).unwrap();
            assert_eq!(decoded, body);
            assert!(value.get("data").is_none());
        }
    }

    #[test]
    fn report_076_null_and_empty_differ() {
        let null = parsed(&message("text/plain", Body::Null));
        assert_eq!((null["nullbody"].as_str(), null.get("data_base64")), (Some("true"), None));
        let empty = parsed(&message("text/plain", Body::Bytes(Default::default())));
        assert_eq!((empty.get("nullbody"), empty["data_base64"].as_str()), (None, Some("")));
        assert_eq!((empty["traceparent"].as_str(), empty["header_x"].as_str()), (Some("00-1"), Some("y")));
    }
}
