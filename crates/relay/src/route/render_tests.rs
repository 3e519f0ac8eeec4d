use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use posthaste_core::{AddressTemplate, Lane, RowId, Status, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::route::{Condition, Payload, condition};

pub(crate) fn row(event_type: &str) -> Row {
    let id: RowId = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
    Row {
        id,
        seq: 1,
        lane: Lane::of_id(id),
        event_type: event_type.into(),
        key: Some("k1".into()),
        tenant: None,
        priority: 0,
        headers: [("region".to_owned(), "eu".to_owned())].into(),
        content_type: "application/json".into(),
        body: Body::Bytes(Bytes::from_static(br#"{"total":150}"#)),
        due_at: Timestamp::from_micros(0),
        status: Status::Pending,
        attempts: 0,
        last_error: None,
        outstanding: None,
        created_at: Timestamp::from_micros(0),
        published_at: None,
        defect: None,
    }
}

fn route(key: &str, pattern: &str) -> Route {
    let mut address = AddressTemplate::default();
    address.set("routing_key", "{type}/{key}").unwrap();
    Route {
        key: key.into(),
        pattern: pattern.parse().unwrap(),
        when: None,
        payload: None,
        target: format!("target of {key}").as_str().into(),
        address,
    }
}

fn routes(all: Vec<Route>) -> Routes {
    Routes::new(all, Vec::new(), "/posthaste/orders".into(), 1 << 20).unwrap()
}

fn keys(rendered: &Rendered) -> Vec<&str> {
    let Rendered::Messages { messages, .. } = rendered else { panic!("{rendered:?}") };
    messages.iter().map(|(_, message)| message.route.as_str()).collect()
}

fn failing(text: &'static str) -> Payload {
    Arc::new(move |_| Err(text.to_owned()))
}

#[test]
fn every_matching_route_makes_one_message_with_its_own_id() {
    let routes = routes(vec![route("a", "order.*"), route("b", "*"), route("c", "invoice.*")]);
    let row = Arc::new(row("order.placed"));
    let rendered = routes.render(&row);
    assert_eq!(keys(&rendered), ["a", "b"]);
    let Rendered::Messages { messages, unknown } = rendered else { unreachable!() };
    let (target, first) = &messages[0];
    assert_eq!((target.as_str(), &*first.source), ("target of a", "/posthaste/orders"));
    assert_eq!(first.id, row.id.message_id(&RouteKey::from("a")));
    assert_ne!(first.id, messages[1].1.id);
    assert_eq!(first.address.get("routing_key"), "order.placed/k1");
    assert!(first.payload.is_none() && unknown.is_empty());
}

#[test]
fn report_132_rendering_again_gives_the_same_message() {
    let mut again = route("a", "*");
    again.payload = Some(crate::route::payload("{'z': body.total, 'a': 1, 'm': [1, {'q': key, 'b': type}]}").unwrap());
    let routes = routes(vec![again]);
    let row = Arc::new(row("order.placed"));
    let first = routes.render(&row);
    assert!((0..20).all(|_| routes.render(&row) == first));
}

#[test]
fn decision_05_a_type_that_no_route_matches_is_deferred_by_name() {
    let Rendered::Deferred { reason } = routes(vec![route("a", "order.*")]).render(&Arc::new(row("invoice.paid")))
    else {
        panic!("not deferred")
    };
    assert_eq!(reason, "no route of this relay matches type \"invoice.paid\"");
}

#[test]
fn decision_05_a_type_is_dropped_only_where_that_is_written_down() {
    let discards = vec!["invoice.*".parse().unwrap()];
    let routes = Routes::new(vec![route("a", "invoice.paid")], discards, "s".into(), 1).unwrap();
    assert!(keys(&routes.render(&Arc::new(row("invoice.sent")))).is_empty());
    assert!(matches!(routes.render(&Arc::new(row("order.placed"))), Rendered::Deferred { .. }));
    let mut large = row("invoice.sent");
    large.body = Body::TooLarge(2);
    assert!(keys(&routes.render(&Arc::new(large))).is_empty(), "what is dropped need not be read");
    let mut waiting = row("invoice.sent");
    waiting.outstanding = Some(vec!["elsewhere".into()]);
    let rendered = routes.render(&Arc::new(waiting));
    assert!(matches!(rendered, Rendered::Deferred { .. }), "a route that is waited for is not dropped: {rendered:?}");
}

#[test]
fn rows_r19_a_false_condition_is_done_without_a_message() {
    let mut quiet = route("a", "*");
    quiet.when = Some(Arc::new(|_| Ok(false)));
    let routes = routes(vec![quiet]);
    let done = Rendered::Messages { messages: Vec::new(), unknown: Vec::new() };
    assert_eq!(routes.render(&Arc::new(row("order.placed"))), done);
}

#[test]
fn rows_r09_the_condition_at_publication_decides_over_a_stored_row() {
    let stored = Arc::new(row("order.placed"));
    for (expression, raised) in [("body.total > 100", 1), ("body.total > 1000", 0)] {
        let mut conditional = route("a", "*");
        conditional.when = Some(condition(expression).unwrap());
        assert_eq!(keys(&routes(vec![conditional]).render(&stored)).len(), raised, "{expression}");
    }
}

#[test]
fn tw_05_rows_r20_one_failing_route_leaves_no_message_of_the_row() {
    for position in 0..3 {
        let mut all = vec![route("a", "*"), route("b", "*"), route("c", "*")];
        all[position].payload = Some(failing("no such member"));
        let key = all[position].key.clone();
        let rendered = routes(all).render(&Arc::new(row("order.placed")));
        let reason = format!("route {key}: payload: no such member");
        assert_eq!(rendered, Rendered::RenderFailed { reason });
    }
}

#[test]
fn lw_04_a_panic_is_a_failed_rendering_of_this_row_only() {
    let mut bad = route("bad", "*");
    let when: Condition = Arc::new(|row| if row.seq == 1 { panic!("row {}", row.seq) } else { Ok(true) });
    bad.when = Some(when);
    let routes = routes(vec![bad]);
    let rendered = routes.render(&Arc::new(row("order.placed")));
    assert_eq!(rendered, Rendered::RenderFailed { reason: "route bad: when: panicked: row 1".into() });
    let next = Row { seq: 2, ..row("order.placed") };
    assert_eq!(keys(&routes.render(&Arc::new(next))), ["bad"]);
}

#[test]
fn only_outstanding_routes_are_rendered_and_those_of_others_stay_outstanding() {
    let mut confirmed = route("a", "*");
    confirmed.payload = Some(failing("must not be asked"));
    let routes = routes(vec![confirmed, route("b", "*"), route("narrowed", "invoice.*")]);
    let mut waiting = row("order.placed");
    waiting.outstanding = Some(vec!["b".into(), "elsewhere".into(), "narrowed".into()]);
    let rendered = routes.render(&Arc::new(waiting.clone()));
    assert_eq!(keys(&rendered), ["b"]);
    let Rendered::Messages { unknown, .. } = rendered else { unreachable!() };
    assert_eq!(unknown, [RouteKey::from("elsewhere"), RouteKey::from("narrowed")]);

    waiting.outstanding = Some(vec!["elsewhere".into()]);
    let Rendered::Deferred { reason } = routes.render(&Arc::new(waiting)) else { panic!("not deferred") };
    assert!(reason.contains("elsewhere"), "{reason}");
}

#[test]
fn an_empty_list_of_outstanding_routes_drops_nothing() {
    let mut by_hand = row("order.placed");
    by_hand.outstanding = Some(Vec::new());
    assert_eq!(keys(&routes(vec![route("a", "*")]).render(&Arc::new(by_hand))), ["a"]);
}

#[test]
fn rows_r14_a_body_that_was_too_large_to_read_is_invalid_with_size_and_limit() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let mut conditional = route("a", "*");
    conditional.when = Some(Arc::new(move |_| Ok(counter.fetch_add(1, Ordering::Relaxed) == 0)));
    let mut large = row("order.placed");
    large.body = Body::TooLarge(9_000_000);
    let reason = "body has 9000000 bytes, 1048576 are allowed (outbox.max_body)".to_owned();
    assert_eq!(routes(vec![conditional]).render(&Arc::new(large)), Rendered::Invalid { reason });
    assert_eq!(asked.load(Ordering::Relaxed), 0, "no condition sees a body that was not read");
}

#[test]
fn a_defect_makes_a_row_invalid_whether_or_not_a_route_matches() {
    let mut defective = row("order.placed");
    defective.defect = Some("headers are no object".into());
    let invalid = Rendered::Invalid { reason: "headers are no object".into() };
    assert_eq!(routes(vec![route("a", "invoice.*")]).render(&Arc::new(defective)), invalid);
}

#[test]
fn two_routes_of_one_key_are_refused_because_their_messages_would_share_an_id() {
    let repeated = Routes::new(vec![route("a", "x"), route("a", "y")], Vec::new(), "s".into(), 1);
    assert_eq!(repeated.unwrap_err(), RepeatedRoute("a".into()));
}

/// What a generated route does with the row.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Does {
    NotMatch,
    Raise,
    Skip,
    Fail,
    Panic,
}

fn generated(index: usize, does: Does) -> Route {
    let mut route = route(&index.to_string(), if does == Does::NotMatch { "invoice.*" } else { "order.*" });
    route.when = Some(Arc::new(move |_| Ok(does != Does::Skip)));
    route.payload = Some(Arc::new(move |_| match does {
        Does::Fail => Err("fails".to_owned()),
        Does::Panic => std::panic::resume_unwind(Box::new("panics")),
        _ => Ok(Bytes::from_static(b"1")),
    }));
    route
}

proptest! {
    #[test]
    fn every_selected_route_is_sent_skipped_or_left_outstanding_or_nothing_is_sent(
        does in prop::collection::vec(prop::sample::select(
            vec![Does::NotMatch, Does::Raise, Does::Raise, Does::Skip, Does::Fail, Does::Panic]), 0..6),
        waits_for in prop::option::of(prop::collection::btree_set(0usize..8, 1..6)),
    ) {
        let routes = routes(does.iter().enumerate().map(|(index, does)| generated(index, *does)).collect());
        let mut stored = row("order.placed");
        stored.outstanding =
            waits_for.as_ref().map(|keys| keys.iter().map(|key| key.to_string().as_str().into()).collect());
        let asked = |index: usize| waits_for.as_ref().is_none_or(|keys| keys.contains(&index));
        let of = |kinds: &[Does]| -> Vec<String> {
            let all = does.iter().enumerate();
            all.filter(|(index, does)| asked(*index) && kinds.contains(does)).map(|(i, _)| i.to_string()).collect()
        };
        let served = of(&[Does::Raise, Does::Skip, Does::Fail, Does::Panic]);
        match routes.render(&Arc::new(stored)) {
            Rendered::Deferred { .. } => prop_assert!(served.is_empty()),
            Rendered::RenderFailed { .. } => prop_assert!(!of(&[Does::Fail, Does::Panic]).is_empty()),
            Rendered::Invalid { reason } => prop_assert!(false, "{}", reason),
            Rendered::Messages { messages, unknown } => {
                prop_assert!(!served.is_empty() && of(&[Does::Fail, Does::Panic]).is_empty());
                let sent: Vec<String> = messages.iter().map(|(_, message)| message.route.to_string()).collect();
                prop_assert_eq!(sent, of(&[Does::Raise]));
                let left = waits_for.map_or(0, |keys| keys.len() - served.len());
                prop_assert_eq!(unknown.len(), left);
            }
        }
    }
}

#[test]
fn a_body_nested_too_deep_is_invalid_where_a_route_looks_into_it_and_nowhere_else() {
    let body = |depth: usize| Body::Bytes(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes().into());
    let deep = |depth| Arc::new(Row { body: body(depth), ..row("order.placed") });
    let looking = routes(vec![Route { when: Some(condition("size(body) == 1").unwrap()), ..route("a", "*") }]);
    assert_eq!(keys(&looking.render(&deep(127))), ["a"]);
    let Rendered::Invalid { reason } = looking.render(&deep(500)) else { panic!("it would be tried for ever") };
    assert!(reason.contains("route a: when") && reason.contains("nested 500 levels deep"), "{reason}");

    let passing = routes(vec![Route { when: Some(condition("key == 'k1'").unwrap()), ..route("a", "*") }]);
    assert_eq!(keys(&passing.render(&deep(500))), ["a"]);
    let failing = routes(vec![Route { payload: Some(failing("no rate")), ..route("a", "*") }]);
    assert!(matches!(failing.render(&deep(500)), Rendered::RenderFailed { .. }), "that has another reason");
}
