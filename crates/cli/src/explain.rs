//! Why a row has not been delivered yet, and what would change that. Pure: facts in, answer out.

use posthaste_core::{Class, LANES, Row, RowId, Status, Timestamp, port::RelayInfo};
use serde::{Serialize, Serializer};

use crate::output::lanes_owned;

/// The reasons, in the words of `explain --json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It has been delivered.
    Published,
    /// Its time has not come.
    NotDue,
    /// An earlier row of its key is not delivered.
    WaitingForKey,
    /// The relay leaves its target alone for now.
    TargetPaused,
    /// No route takes its type.
    NoRoute,
    /// Relays run, and none has its lane.
    UnownedLane,
    /// No relay runs.
    NoRelay,
    /// It failed and will be tried again.
    Retrying,
    /// A `when` or `payload` fails on it.
    RenderFailed,
    /// A dead letter.
    Invalid,
    /// A relay has it, or is about to read it.
    InFlight,
    /// No row has this id.
    UnknownId,
}

/// What is known about a row.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The row.
    pub row: &'a Row,
    /// The first undelivered row before it in its key.
    pub predecessor: Option<&'a Row>,
    /// Who pumps its outbox.
    pub relays: &'a [RelayInfo],
    /// The database's clock.
    pub now: Timestamp,
    /// Whether a route of the given configuration takes its type; `None` without a configuration.
    pub routed: Option<bool>,
    /// What a relay that was asked says about it.
    pub relay: Option<&'a RelaySays>,
}

/// What a relay knows about one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelaySays {
    /// Its name.
    pub name: String,
    /// Whether it owns the row's lane.
    pub owns_lane: bool,
    /// Whether it is publishing the row now.
    pub in_flight: bool,
    /// The target of the row that it leaves alone, and why.
    pub paused: Option<(String, String)>,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Explanation {
    /// The row.
    #[serde(serialize_with = "as_text")]
    pub id: RowId,
    /// Its status; absent if there is no such row.
    pub status: Option<&'static str>,
    /// The reason.
    pub reason: Reason,
    /// The reason in a sentence.
    pub detail: String,
    /// When it is tried next, where that is known.
    #[serde(serialize_with = "as_optional_text")]
    pub next_attempt_at: Option<Timestamp>,
    /// What would change that; absent where nothing needs to.
    pub fix: Option<String>,
}

/// The answer about an id that no row has.
pub fn unknown(id: RowId) -> Explanation {
    Explanation {
        id,
        status: None,
        reason: Reason::UnknownId,
        detail: "no row of this outbox has this id".to_owned(),
        next_attempt_at: None,
        fix: Some(
            "check --store and --outbox; what `file:` and brokers show as id is the message's, its rowid is the row's; \
             published rows go after outbox.retention"
                .to_owned(),
        ),
    }
}

/// The answer about a row.
pub fn explain(facts: &Facts<'_>) -> Explanation {
    let (reason, detail, fix) = settled(facts)
        .or_else(|| busy(facts))
        .or_else(|| held_back(facts))
        .or_else(|| failing(facts))
        .or_else(|| later(facts))
        .unwrap_or_else(|| due(facts));
    let waits = facts.row.status.is_undelivered() && facts.row.due_at > facts.now;
    Explanation {
        id: facts.row.id,
        status: Some(facts.row.status.as_str()),
        reason,
        detail,
        next_attempt_at: waits.then_some(facts.row.due_at),
        fix,
    }
}

type Answer = (Reason, String, Option<String>);

fn settled(facts: &Facts<'_>) -> Option<Answer> {
    let row = facts.row;
    match row.status {
        Status::Published => {
            let when = row.published_at.map_or_else(|| "at an unknown time".to_owned(), |time| format!("at {time}"));
            Some((Reason::Published, format!("every route confirmed it {when}"), None))
        }
        Status::Invalid => {
            let attempts = row.attempts;
            let detail = format!("a dead letter after {attempts} counted attempts: {}", last_error(row));
            let fix = format!("remove the cause, then `posthaste retry {}`; or `posthaste discard {}`", row.id, row.id);
            Some((Reason::Invalid, detail, Some(fix)))
        }
        Status::Pending | Status::Processing | Status::Failed => None,
    }
}

fn busy(facts: &Facts<'_>) -> Option<Answer> {
    if facts.row.status == Status::Processing {
        return Some((Reason::InFlight, "a relay has claimed it".to_owned(), None));
    }
    let relay = facts.relay.filter(|relay| relay.in_flight)?;
    Some((Reason::InFlight, format!("relay {} is publishing it", relay.name), None))
}

/// An earlier row of its key comes before everything else: nothing helps this row until that is done.
fn held_back(facts: &Facts<'_>) -> Option<Answer> {
    let (first, key) = (facts.predecessor?, facts.row.key.as_deref().unwrap_or(""));
    let mut detail = format!("row {} of the same key {key:?} comes first and is {}", first.id, first.status);
    if first.due_at > facts.now {
        detail.push_str(&format!(", due at {}", first.due_at));
    }
    if first.last_error.is_some() {
        detail.push_str(&format!(": {}", last_error(first)));
    }
    if facts.relays.is_empty() {
        detail.push_str("; no relay is running");
    }
    Some((Reason::WaitingForKey, detail, Some(format!("see `posthaste explain {}`", first.id))))
}

fn failing(facts: &Facts<'_>) -> Option<Answer> {
    let row = facts.row;
    let says = |class: Class| {
        let prefix = format!("{}: ", class.as_str());
        row.last_error.as_deref().is_some_and(|error| error.starts_with(&prefix))
    };
    if facts.routed == Some(false) {
        return Some(no_route(format!("no route of this configuration matches type {:?}", row.event_type)));
    }
    if facts.routed.is_none() && says(Class::Defer) {
        return Some(no_route(format!("the relay left it alone: {}", last_error(row))));
    }
    if says(Class::Render) {
        let fix = "correct `when` or `payload` of the route and restart the relay; it is tried again by itself";
        return Some((Reason::RenderFailed, last_error(row), Some(fix.to_owned())));
    }
    None
}

fn no_route(detail: String) -> Answer {
    let fix = "add a route that matches the type; `otherwise: discard` in a route drops it on purpose";
    (Reason::NoRoute, detail, Some(fix.to_owned()))
}

fn later(facts: &Facts<'_>) -> Option<Answer> {
    let row = facts.row;
    if row.due_at <= facts.now {
        return None;
    }
    let fix = Some(format!("`posthaste retry {}` makes it due now", row.id));
    if row.status == Status::Failed || row.last_error.is_some() {
        let detail = format!("failed {} times, tried again at {}: {}", row.attempts, row.due_at, last_error(row));
        return Some((Reason::Retrying, detail, fix));
    }
    Some((Reason::NotDue, format!("it is delayed until {}", row.due_at), fix))
}

fn due(facts: &Facts<'_>) -> Answer {
    if let Some((target, why)) = facts.relay.and_then(|relay| relay.paused.as_ref()) {
        let fix = format!("bring target {target} back; the relay tries it by itself");
        return (Reason::TargetPaused, format!("target {target} is paused: {why}"), Some(fix));
    }
    if facts.relays.is_empty() && facts.relay.is_none() {
        let fix = "start one: `posthaste relay --store URL --to URL`";
        return (Reason::NoRelay, "it is due, and no relay is running on this outbox".to_owned(), Some(fix.to_owned()));
    }
    if let Some(answer) = unowned(facts) {
        return answer;
    }
    if facts.row.status == Status::Failed {
        return (Reason::Retrying, format!("due for its next attempt: {}", last_error(facts.row)), None);
    }
    let name = facts.relay.map_or_else(|| facts.relays[0].name.as_str(), |relay| relay.name.as_str());
    let detail = format!("it is due, and relay {name} has it or reads it within its interval");
    (Reason::InFlight, detail, Some("ask the relay if it stays so: `--relay HOST:PORT`".to_owned()))
}

fn unowned(facts: &Facts<'_>) -> Option<Answer> {
    let owned = lanes_owned(facts.relays);
    let unowned = match facts.relay {
        Some(relay) => !relay.owns_lane && owned < u32::from(LANES),
        None => owned == 0,
    };
    let detail = format!("{owned} of {LANES} lanes are owned, and its lane {} is not among them", facts.row.lane);
    let fix = "wait one lease: the relays that run take the lane over; else restart them";
    unowned.then(|| (Reason::UnownedLane, detail, Some(fix.to_owned())))
}

fn last_error(row: &Row) -> String {
    row.last_error.clone().unwrap_or_else(|| "no reason is recorded".to_owned())
}

fn as_text<S: Serializer>(value: &RowId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_optional_text<S: Serializer>(value: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(time) => serializer.collect_str(time),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
