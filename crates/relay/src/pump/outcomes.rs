//! Outcomes on their way into the database: confirmed rows to be marked, and all others to be settled.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use posthaste_core::{Backoff, ErrorKind, Lane, RouteKey, RowId, RowRef, port::Settlement};

use super::gates::GateKey;

/// Most rows marked in one statement.
const MOST_MARKED: usize = 2_000;
/// Most outcomes settled in one statement.
const MOST_SETTLED: usize = 200;

/// What happens once a settlement is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// The row is remembered until it is due; it keeps its gates shut.
    Hold { due_in: Duration },
    /// The row's gates open.
    Open,
    /// The row is read again as soon as the routes it was passed over for can take it.
    Revisit { parts: Vec<RouteKey> },
}

/// A settlement with what it means for the pump.
#[derive(Clone, Debug)]
pub(crate) struct Settling {
    pub(crate) settlement: Settlement,
    pub(crate) place: RowRef,
    pub(crate) key: Option<std::sync::Arc<str>>,
    pub(crate) gates: Vec<GateKey>,
    pub(crate) then: Then,
}

/// What waits to be written, at most one statement of each kind under way.
pub(crate) struct Outcomes {
    /// Each with the routes on which it keeps its place.
    known: HashMap<RowId, Vec<RouteKey>>,
    confirmed: VecDeque<RowRef>,
    since: Option<Duration>,
    marking: Vec<RowRef>,
    marks_alone: Alone,
    settle: VecDeque<Settling>,
    settling: Vec<Settling>,
    settlements_alone: Alone,
    failures: u32,
    not_before: Duration,
}

impl Outcomes {
    pub(crate) fn new() -> Outcomes {
        Outcomes {
            known: HashMap::new(),
            confirmed: VecDeque::new(),
            since: None,
            marking: Vec::new(),
            marks_alone: Alone::default(),
            settle: VecDeque::new(),
            settling: Vec::new(),
            settlements_alone: Alone::default(),
            failures: 0,
            not_before: Duration::ZERO,
        }
    }

    /// Whether the row's outcome is known and not yet in the database.
    pub(crate) fn contains(&self, id: RowId) -> bool {
        self.known.contains_key(&id)
    }

    /// The routes on which such a row keeps its place before later ones of its key.
    pub(crate) fn kept_routes(&self, id: RowId) -> &[RouteKey] {
        self.known.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The lanes of all of them, repeated.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = Lane> {
        let marks = self.confirmed.iter().chain(&self.marking).map(|row| row.lane);
        marks.chain(self.settle.iter().chain(&self.settling).map(|settling| settling.place.lane))
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn confirm(&mut self, row: RowRef, now: Duration) {
        self.known.insert(row.id, Vec::new());
        self.confirmed.push_back(row);
        self.since.get_or_insert(now);
    }

    pub(crate) fn settle(&mut self, settling: Settling) {
        let routes = match &settling.then {
            Then::Revisit { parts } => parts.clone(),
            Then::Hold { .. } | Then::Open => settling.gates.iter().map(|gate| gate.route.clone()).collect(),
        };
        self.known.insert(settling.place.id, routes);
        self.settle.push_back(settling);
    }

    /// The rows to mark now: when enough wait, or the first has waited long enough, or `flush`.
    pub(crate) fn next_mark(
        &mut self,
        now: Duration,
        batch: usize,
        delay: Duration,
        flush: bool,
    ) -> Option<Vec<RowRef>> {
        let due = self.confirmed.len() >= batch || flush || self.since.is_some_and(|since| since + delay <= now);
        if !self.marking.is_empty() || self.confirmed.is_empty() || !due || now < self.not_before {
            return None;
        }
        let count = self.marks_alone.most(self.confirmed.len().min(MOST_MARKED));
        self.marking = self.confirmed.drain(..count).collect();
        self.since = if self.confirmed.is_empty() { None } else { Some(now) };
        Some(self.marking.clone())
    }

    /// The mark ended. Answers the rows if they were marked; else they stay.
    pub(crate) fn marked(&mut self, now: Duration, failed: Option<ErrorKind>) -> Vec<RowRef> {
        let rows = std::mem::take(&mut self.marking);
        let Some(kind) = failed else {
            rows.iter().for_each(|row| drop(self.known.remove(&row.id)));
            self.marks_alone.went();
            self.store_answers();
            return rows;
        };
        self.since.get_or_insert(now);
        if self.marks_alone.failed(kind, rows.len(), self.confirmed.len()) {
            self.store_failed(now);
        }
        put_back(&mut self.confirmed, rows, kind);
        Vec::new()
    }

    /// The settlements to write now.
    pub(crate) fn next_settle(&mut self, now: Duration) -> Option<Vec<Settlement>> {
        if !self.settling.is_empty() || self.settle.is_empty() || now < self.not_before {
            return None;
        }
        let count = self.settlements_alone.most(self.settle.len().min(MOST_SETTLED));
        self.settling = self.settle.drain(..count).collect();
        Some(self.settling.iter().map(|settling| settling.settlement.clone()).collect())
    }

    /// The settlements ended. Answers them if they were written; else they stay.
    pub(crate) fn settled(&mut self, now: Duration, failed: Option<ErrorKind>) -> Vec<Settling> {
        let ended = std::mem::take(&mut self.settling);
        let Some(kind) = failed else {
            ended.iter().for_each(|settling| drop(self.known.remove(&settling.place.id)));
            self.settlements_alone.went();
            self.store_answers();
            return ended;
        };
        if self.settlements_alone.failed(kind, ended.len(), self.settle.len()) {
            self.store_failed(now);
        }
        put_back(&mut self.settle, ended, kind);
        Vec::new()
    }

    /// When the next mark is due of itself.
    pub(crate) fn next_deadline(&self, delay: Duration) -> Option<Duration> {
        let mark = self.since.filter(|_| self.marking.is_empty()).map(|since| (since + delay).max(self.not_before));
        let waits = !self.settle.is_empty() && self.settling.is_empty();
        mark.into_iter().chain(waits.then_some(self.not_before)).min()
    }

    fn store_answers(&mut self) {
        self.failures = 0;
        self.not_before = Duration::ZERO;
    }

    fn store_failed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + Backoff::STORE.after(self.failures);
    }
}

/// What the database refuses, whatever the time, for one row must not hold up the others: those of a
/// refused batch are written one by one.
#[derive(Default)]
struct Alone {
    left: usize,
    /// Refusals one after another of what was alone.
    refused: usize,
}

impl Alone {
    fn most(&self, most: usize) -> usize {
        if self.left > 0 { most.min(1) } else { most }
    }

    fn went(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.refused = 0;
    }

    /// Whether nothing more should be tried for a while. `waiting` others come first now.
    fn failed(&mut self, kind: ErrorKind, count: usize, waiting: usize) -> bool {
        if !is_refusal(kind) {
            return true;
        }
        if count > 1 {
            self.left = self.left.max(count);
            return false;
        }
        self.refused += 1;
        self.left = self.left.max(1);
        let all_refused = self.refused > waiting;
        if all_refused {
            self.refused = 0;
        }
        all_refused
    }
}

fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unknown | ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Conflict)
}

/// One that was refused alone goes to the end, anything else to where it was.
fn put_back<T>(queue: &mut VecDeque<T>, ended: Vec<T>, kind: ErrorKind) {
    if is_refusal(kind) && ended.len() == 1 {
        queue.extend(ended);
    } else {
        ended.into_iter().rev().for_each(|one| queue.push_front(one));
    }
}
