//! One target as a pump sees it: what waits for it, how much may be in flight, whether it is paused.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use posthaste_core::{
    Backoff, Failure, RouteKey, RowId,
    breaker::{Breaker, State},
    failure::Outcome,
    port::TransportCapabilities,
};

use super::room::Room;

/// The waits of a message that failed while its target works.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_secs(1) };

/// One route of a row.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct PartRef {
    pub(crate) row: RowId,
    pub(crate) route: RouteKey,
}

pub(crate) struct TargetState {
    pub(crate) breaker: Breaker,
    pub(crate) room: Room,
    queue: VecDeque<PartRef>,
    later: BTreeMap<(Duration, PartRef), ()>,
    /// Most messages in flight while a culprit is looked for; `None` when there is no suspicion.
    window: Option<usize>,
    batches: usize,
    in_flight: usize,
    most_in_flight: usize,
    share: usize,
    concurrency: usize,
    strikes: HashMap<PartRef, (Outcome, u32)>,
}

impl TargetState {
    pub(crate) fn new(capabilities: TransportCapabilities, in_flight: usize, room: Room) -> TargetState {
        let concurrency = capabilities.concurrency.max(1);
        TargetState {
            breaker: Breaker::new(Breaker::THRESHOLD, Backoff::TARGET),
            room,
            queue: VecDeque::new(),
            later: BTreeMap::new(),
            window: None,
            batches: 0,
            in_flight: 0,
            most_in_flight: in_flight,
            share: in_flight.div_ceil(concurrency).min(capabilities.max_batch).max(1),
            concurrency,
            strikes: HashMap::new(),
        }
    }

    pub(crate) fn enqueue(&mut self, part: PartRef) {
        self.queue.push_back(part);
    }

    /// Puts a message back that failed for the `failures`-th time in a row.
    pub(crate) fn enqueue_later(&mut self, part: PartRef, failures: u32, now: Duration) {
        self.later.insert((now + AGAIN.after(failures), part), ());
    }

    /// Puts messages back whose outcome is unknown, in their order, before all others.
    pub(crate) fn enqueue_first(&mut self, parts: Vec<PartRef>) {
        parts.into_iter().rev().for_each(|part| self.queue.push_front(part));
    }

    /// Everything that waits for it.
    pub(crate) fn take_waiting(&mut self) -> Vec<PartRef> {
        let later = std::mem::take(&mut self.later).into_keys().map(|(_, part)| part);
        self.queue.drain(..).chain(later).collect()
    }

    /// The next batch, if one may go.
    pub(crate) fn take_batch(&mut self, now: Duration) -> Vec<PartRef> {
        self.wake_later(now);
        let alone = self.window.is_some() && self.batches > 0;
        if !self.breaker.is_closed() || alone || self.batches >= self.concurrency {
            return Vec::new();
        }
        let room = self.most_in_flight.saturating_sub(self.in_flight);
        let most = self.share.min(room).min(self.window.unwrap_or(usize::MAX)).min(self.queue.len());
        if most > 0 {
            self.batches += 1;
            self.in_flight += most;
        }
        self.queue.drain(..most).collect()
    }

    fn wake_later(&mut self, now: Duration) {
        while self.later.first_key_value().is_some_and(|((at, _), ())| *at <= now) {
            self.queue.extend(self.later.pop_first().map(|((_, part), ())| part));
        }
    }

    /// Takes the answers of a batch: closes or opens the breaker, and narrows or widens the window.
    pub(crate) fn answered(&mut self, now: Duration, answers: &[(PartRef, Result<(), Failure>)], unit: f64) {
        self.batches = self.batches.saturating_sub(1);
        self.in_flight = self.in_flight.saturating_sub(answers.len());
        let failures = || answers.iter().filter_map(|(_, answer)| answer.as_ref().err());
        let unanswered = failures().any(|failure| failure.outcome != Outcome::NotDelivered);
        self.window = match (unanswered, self.window) {
            (true, _) => Some(1),
            (false, None) => None,
            (false, Some(window)) if window * 2 >= self.share => None,
            (false, Some(window)) => Some(window * 2),
        };
        if answers.iter().any(|(_, answer)| answer.is_ok()) {
            self.breaker.succeed();
        }
        let transient = |failure: &&Failure| failure.class == posthaste_core::Class::Transient;
        let pause = failures().filter_map(|failure| failure.retry_after).max();
        let all_failed = answers.iter().all(|(_, answer)| answer.is_err());
        if pause.is_some() || (all_failed && failures().any(|failure| transient(&failure))) {
            self.breaker.fail(now, pause, unit);
        }
    }

    /// How often in a row the message was lost, or had no answer, while it was alone in flight, this
    /// answer included.
    pub(crate) fn strikes(&mut self, part: &PartRef, alone: bool, answer: &Result<(), Failure>) -> u32 {
        let outcome = answer.as_ref().err().map_or(Outcome::NotDelivered, |failure| failure.outcome);
        if outcome == Outcome::NotDelivered {
            self.strikes.remove(part);
            return 0;
        }
        let before = self.strikes.get(part).map_or(0, |(before, count)| if *before == outcome { *count } else { 0 });
        if !alone {
            return before;
        }
        let strikes = before.saturating_add(1);
        self.strikes.insert(part.clone(), (outcome, strikes));
        strikes
    }

    /// When something can happen here without an answer: a wait is over.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let probe = match self.breaker.state() {
            State::Open { until } => Some(until),
            State::Closed | State::Probing => None,
        };
        probe.into_iter().chain(self.later.first_key_value().map(|((at, _), ())| *at)).min()
    }
}
