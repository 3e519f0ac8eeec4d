use super::*;
use crate::sample;

fn relay(lanes: u32) -> RelayInfo {
    RelayInfo { name: "r1".into(), lanes, expires_in: None }
}

fn row(status: Status, last_error: Option<&str>) -> Row {
    Row { status, last_error: last_error.map(str::to_owned), ..sample::row() }
}

fn facts<'a>(row: &'a Row, relays: &'a [RelayInfo]) -> Facts<'a> {
    Facts { row, predecessor: None, relays, now: row.created_at, routed: None, relay: None }
}

fn later(row: Row) -> Row {
    Row { due_at: Timestamp::from_micros(row.created_at.micros() + 60_000_000), ..row }
}

#[test]
fn every_reason_by_the_row_alone() {
    let all = [relay(128)];
    let none: [RelayInfo; 0] = [];
    for (row, relays, reason) in [
        (row(Status::Published, None), &all[..], Reason::Published),
        (row(Status::Invalid, Some("permanent: too large")), &all, Reason::Invalid),
        (row(Status::Processing, None), &all, Reason::InFlight),
        (row(Status::Pending, None), &all, Reason::InFlight),
        (row(Status::Pending, None), &none, Reason::NoRelay),
        (row(Status::Failed, Some("unknown: 500")), &none, Reason::NoRelay),
        (row(Status::Pending, None), &[relay(0)], Reason::UnownedLane),
        (later(row(Status::Pending, None)), &none, Reason::NotDue),
        (later(row(Status::Failed, Some("unknown: 500"))), &all, Reason::Retrying),
        (later(row(Status::Failed, Some("misrouted: 404"))), &none, Reason::Retrying),
        (row(Status::Failed, Some("unknown: 500")), &all, Reason::Retrying),
        (later(row(Status::Failed, Some("render: no member total"))), &all, Reason::RenderFailed),
        (row(Status::Pending, Some("deferred: no route matches")), &all, Reason::NoRoute),
        (row(Status::Pending, Some("deferred: no route matches")), &none, Reason::NoRoute),
    ] {
        let explained = explain(&facts(&row, relays));
        assert_eq!(explained.reason, reason, "{row:?}");
        assert_eq!(explained.status, Some(row.status.as_str()));
        assert_eq!(explained.next_attempt_at, (row.due_at > row.created_at).then_some(row.due_at));
        assert!(!explained.detail.is_empty());
    }
}

#[test]
fn every_reason_that_needs_the_relay_or_the_configuration() {
    let (row, all) = (row(Status::Pending, None), [relay(64)]);
    let says = RelaySays { name: "r1".into(), owns_lane: true, in_flight: false, paused: None };
    let in_flight = RelaySays { in_flight: true, ..says.clone() };
    let paused = RelaySays { paused: Some(("rabbit".into(), "refused".into())), ..says.clone() };
    let foreign = RelaySays { owns_lane: false, ..says.clone() };
    for (relay, reason) in [
        (&says, Reason::InFlight),
        (&in_flight, Reason::InFlight),
        (&paused, Reason::TargetPaused),
        (&foreign, Reason::UnownedLane),
    ] {
        assert_eq!(explain(&Facts { relay: Some(relay), ..facts(&row, &all) }).reason, reason, "{relay:?}");
    }
    assert_eq!(explain(&Facts { routed: Some(false), ..facts(&row, &all) }).reason, Reason::NoRoute);
    assert_eq!(explain(&Facts { routed: Some(true), ..facts(&row, &all) }).reason, Reason::InFlight);
}

#[test]
fn a_type_that_has_a_route_by_now_is_not_said_to_have_none() {
    let (row, all) = (row(Status::Pending, Some("deferred: no route matches")), [relay(128)]);
    assert_eq!(explain(&Facts { routed: Some(true), ..facts(&row, &all) }).reason, Reason::InFlight);
}

#[test]
fn decision_03_a_row_waits_for_the_earlier_one_of_its_key_and_names_it() {
    let first = later(row(Status::Failed, Some("unknown: 500")));
    let second = row(Status::Pending, None);
    let explained = explain(&Facts { predecessor: Some(&first), ..facts(&second, &[]) });
    assert_eq!(explained.reason, Reason::WaitingForKey);
    for part in [first.id.to_string(), first.due_at.to_string(), "unknown: 500".into(), "no relay".into()] {
        assert!(explained.detail.contains(&part), "{}", explained.detail);
    }
    assert!(explained.fix.unwrap().contains(&first.id.to_string()));
}

#[test]
fn the_answer_has_the_members_of_the_reference() {
    let explained = serde_json::to_value(unknown(sample::row().id)).unwrap();
    let members: Vec<&String> = explained.as_object().unwrap().keys().collect();
    assert_eq!(members, ["id", "status", "reason", "detail", "next_attempt_at", "fix"]);
    assert_eq!((explained["reason"].as_str(), &explained["status"]), (Some("unknown_id"), &().into()));
    let row = later(row(Status::Pending, None));
    let explained = serde_json::to_value(explain(&facts(&row, &[]))).unwrap();
    assert_eq!(explained["next_attempt_at"].as_str(), Some("2026-01-02T03:05:05.678000Z"));
}
