use super::*;
use crate::route::render::tests::row;

fn with_body(content_type: &str, body: &str) -> Row {
    let body = Body::Bytes(Bytes::copy_from_slice(body.as_bytes()));
    Row { content_type: content_type.into(), body, ..row("order.placed") }
}

fn json(body: &str) -> Row {
    with_body("application/json", body)
}

fn when(expression: &str, row: &Row) -> Result<bool, String> {
    condition(expression).unwrap()(row)
}

fn made(expression: &str, row: &Row) -> Result<String, String> {
    payload(expression).unwrap()(row).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

#[test]
fn conditions_over_every_part_of_an_event() {
    let event = json(r#"{"total":150,"price":9.5,"lines":[{"sku":"a"},{"sku":"b"}],"paid":true}"#);
    for (expression, raised) in [
        ("type == 'order.placed'", true),
        ("type.startsWith('order.')", true),
        ("key == 'k1' && tenant == null", true),
        ("headers['region'] == 'eu' && headers.region == 'eu'", true),
        ("body.total > 100", true),
        ("body.total * 2 == 300 && body.total + 1 > 150", true),
        ("body.price < 9", false),
        ("body.paid", true),
        ("body.lines.exists(line, line.sku == 'b')", true),
        ("size(body.lines.filter(line, line.sku != key)) == 2", true),
        ("has(body.total) && !has(body.missing)", true),
        ("body.total in [1, 150]", true),
        ("int('7') == 7", true),
    ] {
        assert_eq!(when(expression, &event), Ok(raised), "{expression}");
    }
}

#[test]
fn integers_of_64_bits_are_exact() {
    let event = json(r#"{"small":-9223372036854775808,"large":18446744073709551615,"id":9007199254740993}"#);
    assert!(when("body.large == 18446744073709551615u && body.id == 9007199254740993", &event).unwrap());
    let copied = made("{'s': body.small, 'l': body.large, 'i': body.id}", &event).unwrap();
    assert_eq!(copied, r#"{"i":9007199254740993,"l":18446744073709551615,"s":-9223372036854775808}"#);
}

#[test]
fn rows_r19_only_true_raises_and_no_other_value_passes_for_it() {
    for expression in ["body.n", "type", "body", "key == null ? 1 : 2"] {
        let error = when(expression, &json(r#"{"n":1}"#)).unwrap_err();
        assert!(error.contains("not a bool"), "{error}");
    }
}

#[test]
fn rows_r16_the_members_of_a_state_change_are_names_of_their_own() {
    let change = json(r#"{"origin":null,"state":{"_version":3,"paid":true},"trailers":{"x":1},"input":{"id":"7"}}"#);
    assert!(when("origin == null && state.paid && trailers.x == 1 && input.id == '7'", &change).unwrap());
    assert_eq!(made("state", &change).unwrap(), r#"{"_version":3,"paid":true}"#);
    let assigned = json(r#"{"origin":{"a":1},"state":{"a":2}}"#);
    assert!(when("state.a != origin.a && !has(body.trailers)", &assigned).unwrap());
    assert!(when("trailers.x == 1", &assigned).unwrap_err().contains("the body has no trailers"));
    assert!(when("state.a == 1", &with_body("text/plain", "x")).unwrap_err().contains("no JSON object"));
}

#[test]
fn what_is_missing_or_of_another_type_is_an_error_that_names_expression_and_cause() {
    for (expression, cause) in [
        ("body.amount > 1", "no member amount"),
        ("headers['x'] == ''", "no member x"),
        ("body.name > 1", "found no matching overload"),
        ("body.total / 0 == 1", "division by zero"),
        ("body.total * 9223372036854775807 > 1", "overflows"),
        ("body.lines[7] == 1", "out of bounds"),
    ] {
        let error = when(expression, &json(r#"{"total":150,"name":"secret name","lines":[1]}"#)).unwrap_err();
        assert!(error.contains(expression) && error.contains(cause), "{error}");
        assert!(!error.contains("secret"), "values of the event stay out: {error}");
    }
}

#[test]
fn a_body_that_is_no_json_is_bytes_and_none_is_null() {
    assert!(when("body == b'abc' && size(body) == 3", &with_body("text/plain", "abc")).unwrap());
    assert!(when("body == null", &Row { body: Body::Null, ..json("") }).unwrap());
    let error = when("body.a == 1", &json("{not json")).unwrap_err();
    assert!(error.contains("the body is not JSON"), "{error}");
    assert!(when("type != ''", &json("{not json")).unwrap(), "nobody asked for the body");
    let deep = "[".repeat(100_000);
    assert!(when("body == 1", &json(&deep)).is_err());
}

#[test]
fn payloads_are_compact_json_with_sorted_members() {
    let event = json(r#"{"id":"7","price":1.50,"big":1e300}"#);
    for (expression, expected) in [
        ("{'id': body.id}", r#"{"id":"7"}"#),
        ("{'z': 1, 'a': {'y': [true, null], 'b': 'ü\"'}}", r#"{"a":{"b":"ü\"","y":[true,null]},"z":1}"#),
        ("body.price", "1.5"),
        ("body.lines", ""),
        ("body.id + '!'", r#""7!""#),
        ("[headers]", r#"[{"region":"eu"}]"#),
        ("body.big * 1e300", ""),
    ] {
        let result = made(expression, &event);
        let refused = expected.is_empty();
        assert!(if refused { result.is_err() } else { result.as_deref() == Ok(expected) }, "{expression}: {result:?}");
    }
}

#[test]
fn mistakes_are_found_when_the_expression_is_compiled() {
    for (expression, detail) in [
        ("body.total >", "line 1, column 13"),
        ("boddy.total > 1", "unknown name boddy; did you mean body?"),
        ("[1].all(x, x > y)", "unknown name y"),
        ("{'id': ident}", "unknown name ident"),
        ("sise(body) > 1", "there is no function sise that takes 1 arguments; did you mean size?"),
        ("type.startWith('order.')", "did you mean startsWith?"),
        ("body.lines.exists(line, unheard_of(line))", "there is no function unheard_of"),
        ("{'id': lower(type)} == body", "there is no function lower"),
        ("body.lines.all(true)", "there is no function all that takes 1 arguments"),
        ("5", "always gives int, not a bool"),
        ("'true'", "always gives string, not a bool"),
        ("null", "not a bool"),
        ("[true]", "not a bool"),
        ("1 / 0 == 1", "always fails: division by zero"),
        ("body.total + 1", "gives a sum, and never a bool"),
        ("size(body.lines)", "gives a size, and never a bool"),
        ("[body.paid]", "gives a list, and never a bool"),
    ] {
        let error = condition(expression).err().unwrap();
        assert_eq!(error.expression, expression);
        assert!(error.to_string().contains(detail) && error.to_string().contains(expression), "{error}");
    }
    for constant in ["true", "1 < 2", "'a' in ['a']", "'abc'.matches('b') && [1].exists(n, n == 1)"] {
        assert!(condition(constant).is_ok(), "{constant}");
    }
    assert!(payload("5").is_ok() && payload("sise(body)").is_err());
    assert!(condition("[1].all(x, [x].exists(y, y == x)) && type(key) == string").is_ok());
}

#[test]
fn a_body_nested_too_deep_to_be_looked_into_says_how_deep_it_is() {
    let nested = |depth: usize| json(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    assert_eq!(when("size(body) == 1", &nested(127)), Ok(true));
    let error = when("size(body) == 1", &nested(128)).unwrap_err();
    assert!(error.ends_with("the body is nested 128 levels deep, 127 are the most that can be looked into"), "{error}");
    assert_eq!(when("type != ''", &nested(100_000)), Ok(true), "nobody asked for the body");
    assert_eq!(depth(br#"{"a":"[[[\"[[","b\\":[{}],"c":[]}"#), 3);
}
