//! Outcomes on their way into the database: confirmed rows to be marked, and all others to be settled.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use posthaste_core::{Backoff, RouteKey, RowId, port::Settlement};

use super::gates::{GateKey, Place};

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
    pub(crate) place: Place,
    pub(crate) key: Option<std::sync::Arc<str>>,
    pub(crate) gates: Vec<GateKey>,
    pub(crate) then: Then,
}

/// What waits to be written, at most one statement of each kind under way.
pub(crate) struct Outcomes {
    /// Each with the routes on which it keeps its place.
    known: HashMap<RowId, Vec<RouteKey>>,
    confirmed: VecDeque<RowId>,
    since: Option<Duration>,
    marking: Vec<RowId>,
    settle: VecDeque<Settling>,
    settling: Vec<Settling>,
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
            settle: VecDeque::new(),
            settling: Vec::new(),
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

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn confirm(&mut self, id: RowId, now: Duration) {
        self.known.insert(id, Vec::new());
        self.confirmed.push_back(id);
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
    ) -> Option<Vec<RowId>> {
        let due = self.confirmed.len() >= batch || flush || self.since.is_some_and(|since| since + delay <= now);
        if !self.marking.is_empty() || self.confirmed.is_empty() || !due || now < self.not_before {
            return None;
        }
        let count = self.confirmed.len().min(MOST_MARKED);
        self.marking = self.confirmed.drain(..count).collect();
        self.since = if self.confirmed.is_empty() { None } else { Some(now) };
        Some(self.marking.clone())
    }

    /// The mark ended. Answers the rows if they were marked; else they stay.
    pub(crate) fn marked(&mut self, now: Duration, done: bool) -> Vec<RowId> {
        let ids = std::mem::take(&mut self.marking);
        if done {
            ids.iter().for_each(|id| {
                self.known.remove(id);
            });
            self.store_answers();
            return ids;
        }
        ids.into_iter().rev().for_each(|id| self.confirmed.push_front(id));
        self.since.get_or_insert(now);
        self.store_failed(now);
        Vec::new()
    }

    /// The settlements to write now.
    pub(crate) fn next_settle(&mut self, now: Duration) -> Option<Vec<Settlement>> {
        if !self.settling.is_empty() || self.settle.is_empty() || now < self.not_before {
            return None;
        }
        let count = self.settle.len().min(MOST_SETTLED);
        self.settling = self.settle.drain(..count).collect();
        Some(self.settling.iter().map(|settling| settling.settlement.clone()).collect())
    }

    /// The settlements ended. Answers them if they were written; else they stay.
    pub(crate) fn settled(&mut self, now: Duration, done: bool) -> Vec<Settling> {
        let ended = std::mem::take(&mut self.settling);
        if done {
            ended.iter().for_each(|settling| {
                self.known.remove(&settling.place.id);
            });
            self.store_answers();
            return ended;
        }
        ended.into_iter().rev().for_each(|settling| self.settle.push_front(settling));
        self.store_failed(now);
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
