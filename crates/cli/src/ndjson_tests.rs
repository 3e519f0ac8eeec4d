use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn event_of(line: &str) -> Event {
    parse(line.as_bytes()).unwrap()
}

fn body_of(line: &str) -> String {
    String::from_utf8(event_of(line).body.unwrap().to_vec()).unwrap()
}

#[test]
fn report_069_a_body_is_sent_with_its_own_text() {
    let line = r#"{"type":"t", "body" : { "id": 9007199254740993 , "d":0.1000000000000000055511151231257827,
        "id":1, "s":"a \u00e9 \" b",  "e":[ ],"n":-0.0e+5 } }"#;
    let expected = r#"{"id":9007199254740993,"d":0.1000000000000000055511151231257827,"id":1,"s":"a \u00e9 \" b","e":[],"n":-0.0e+5}"#;
    assert_eq!(body_of(&line.replace('\n', " ")), expected);
    for body in ["null", "true", "1", r#""a b""#, "[]", "1E400"] {
        assert_eq!(body_of(&format!(r#"{{"type":"t","body": {body} }}"#)), body);
    }
}

#[test]
fn every_member_arrives() {
    let line = r#"{"type":"order.placed","key":"k","tenant":"t","priority":-3,"headers":{"a":"b","traceparent":"00"},
        "id":"0190163d-8694-739b-aea5-966c26f8ad91","body":1,"delay":"5s"}"#;
    let event = event_of(line);
    assert_eq!((event.key.as_deref(), event.tenant.as_deref(), event.priority), (Some("k"), Some("t"), -3));
    assert_eq!((event.headers.len(), event.delay), (2, Duration::from_secs(5)));
    assert_eq!(event.id.unwrap().to_string(), "0190163d-8694-739b-aea5-966c26f8ad91");
    assert_eq!(event.content_type, "application/json");
    assert_eq!(event_of(r#"{"type":"t","body":1,"delay":2}"#).delay, Duration::from_secs(2));
    let plain = event_of(r#"{"type":"t","body":1,"key":null,"headers":null,"delay":null}"#);
    assert_eq!((plain.key, plain.headers.len(), plain.delay), (None, 0, Duration::ZERO));
}

#[test]
fn decision_39_a_body_in_base64_may_be_null() {
    let event = event_of(r#"{"type":"t","body_base64":"/wA="}"#);
    assert_eq!(
        (event.body.as_deref(), event.content_type.as_str()),
        (Some(&b"\xff\0"[..]), "application/octet-stream")
    );
    assert_eq!(event_of(r#"{"type":"t","body_base64":""}"#).body.as_deref(), Some(&b""[..]));
    assert_eq!(event_of(r#"{"type":"t","body_base64":null}"#).body, None);
    let typed = event_of(r#"{"type":"t","body_base64":"eA==","content_type":"text/plain"}"#);
    assert_eq!(typed.content_type, "text/plain");
}

#[test]
fn what_is_wrong_with_a_line_is_said() {
    for (line, error) in [
        (r#"{"type":"t","bdoy":1}"#, "unknown member \"bdoy\"; did you mean body?"),
        (r#"{"type":"t","zzzzzzzzz":1}"#, "unknown member \"zzzzzzzzz\"; known: type, key, tenant"),
        (r#"{"type":"t","body":1,"body":2}"#, "body is given twice"),
        (r#"{"type":"t","body":1,"body_base64":""}"#, "body and body_base64 exclude each other"),
        (r#"{"type":"t"}"#, "body or body_base64 is missing"),
        (r#"{"body":1}"#, "type is missing"),
        (r#"{"type":7,"body":1}"#, "type: invalid type: integer `7`, expected a string"),
        (r#"{"type":"t","body":1,"priority":"high"}"#, "priority: invalid type"),
        (r#"{"type":"t","body":1,"headers":{"a":1}}"#, "header a is no string"),
        (r#"{"type":"t","body":1,"headers":{"a":"1","a":"2"}}"#, "header a is given twice"),
        (r#"{"type":"t","body":1,"headers":["a"]}"#, "headers: invalid type"),
        (r#"{"type":"t","body":1,"id":"7"}"#, "id \"7\" is no UUID"),
        (r#"{"type":"t","body":1,"delay":"soon"}"#, "delay: \"soon\" is no duration"),
        (r#"{"type":"t","body_base64":"%%"}"#, "body_base64 is no base64"),
        (r#"{"type":"t","body":{"a":}}"#, "not JSON: expected value at column 25"),
        (r#"{"type":"t","body":1} x"#, "not JSON: trailing characters at column 23"),
        ("[1]", "not a JSON object"),
        ("", "not JSON: EOF while parsing a value"),
        ("\"\u{e9}", "not JSON"),
    ] {
        let said = parse(line.as_bytes()).unwrap_err();
        assert!(said.starts_with(error) && !said.contains("at line"), "{line}: {said}");
    }
    assert!(parse(b"{\"type\":\"\xff\",\"body\":1}").is_err());
}

#[test]
fn a_body_nested_deeper_than_any_stack_is_passed_on() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(body_of(&format!(r#"{{"type":"t","body":{deep}}}"#)), deep);
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        r#"[ \\"a\t\n\PC]{0,12}"#.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((r#"[ "\\ab]{0,4}"#, inner), 0..5)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn minified_json_is_what_serde_writes_compact(value in json()) {
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let compact = serde_json::to_vec(&value).unwrap();
        prop_assert_eq!(minify(&pretty), compact.clone());
        prop_assert_eq!(minify(std::str::from_utf8(&compact).unwrap()), compact);
    }
}
