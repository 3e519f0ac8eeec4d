use std::time::Duration;

use super::*;
use crate::sample;

fn shown(content_type: &str, body: Body) -> String {
    whole_row(&Row { content_type: content_type.to_owned(), body, ..sample::row() }).unwrap()
}

#[test]
fn report_069_a_json_body_is_shown_with_its_own_text() {
    let body = br#"{"id":9007199254740993,"d":0.1000000000000000055511151231257827,"id":1,"s":"\u00e9"}"#;
    let text = shown("application/json", Body::Bytes(Bytes::from_static(body)));
    assert!(text.ends_with(&format!(",\"body\":{}}}", std::str::from_utf8(body).unwrap())), "{text}");
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((parsed["type"].as_str(), parsed["headers"]["region"].as_str()), (Some("order.placed"), Some("eu")));
}

#[test]
fn decision_18_a_body_that_cannot_stand_on_one_line_is_base64() {
    for (content_type, body) in [
        ("application/json", &b"{\n}"[..]),
        ("application/json", b"{"),
        ("application/json", b""),
        ("text/plain", b"1"),
        ("application/octet-stream", b"\xff\0"),
    ] {
        let text = shown(content_type, Body::Bytes(Bytes::copy_from_slice(body)));
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(STANDARD.decode(parsed["body_base64"].as_str().unwrap()).unwrap(), body);
        assert!(!text.contains('\n') && parsed.get("body").is_none());
    }
}

#[test]
fn report_076_a_null_body_is_shown_as_one() {
    assert!(shown("application/json", Body::Null).ends_with(",\"body_base64\":null}"));
}

#[test]
fn a_listed_row_has_exactly_the_members_of_the_reference() {
    let value = serde_json::to_value(RowJson::from(&sample::row())).unwrap();
    let members: Vec<&String> = value.as_object().unwrap().keys().collect();
    let expected = "id lane type key tenant priority status attempts due_at created_at published_at last_error";
    assert_eq!(members, expected.split(' ').collect::<Vec<_>>());
    assert_eq!((value["created_at"].as_str(), &value["tenant"]), (Some("2026-01-02T03:04:05.678000Z"), &().into()));
}

#[test]
fn the_status_has_the_members_of_the_reference() {
    let relays = vec![RelayInfo { name: "r1".into(), lanes: 100, expires_in: Some(Duration::from_micros(1_500_400)) }];
    let status =
        OutboxStatus { pending: 3, oldest_pending: Some(Duration::from_millis(12_345)), relays, ..Default::default() };
    let value = serde_json::to_value(StatusJson::new(&"orders".parse().unwrap(), &status)).unwrap();
    let expected = serde_json::json!({
        "outbox": "orders", "pending": 3, "processing": 0, "failed": 0, "published": 0, "invalid": 0,
        "oldest_pending_seconds": 12.345, "lanes_owned": 100, "lanes_unowned": 28,
        "relays": [{"name": "r1", "lanes": 100, "expires_in_seconds": 1.5}],
        "deferred_types": [], "published_is_estimate": false,
    });
    assert_eq!(value, expected);
}

#[test]
fn tables_show_control_characters_instead_of_sending_them() {
    assert_eq!(printable("a\x1b[2Jb\né"), "a\\u{1b}[2Jb\\né");
}
