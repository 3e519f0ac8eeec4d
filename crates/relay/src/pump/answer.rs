//! What came of publications, probes, marks and settlements.

use std::{sync::Arc, time::Duration};

use posthaste_core::{
    Class, Failure, LaneSet, RouteKey, RowId, RowRef,
    port::{Marked, Settled},
};

use super::{
    cause::Cause,
    gates::{GateKey, Next},
    held::HeldRow,
    outcomes::{Settling, Then},
    report::Report,
    state::{Batch, PartState, State},
    targets::PartRef,
    verdict::{self, Verdict},
};
use crate::route::TargetKey;

/// What a batch tells about each of its messages.
#[derive(Clone, Copy)]
struct Sent {
    /// It was the only one.
    alone: bool,
    /// The target confirmed some of them, so it works.
    answers: bool,
}

impl State {
    /// A batch was published, or not.
    pub(crate) fn answered(&mut self, now: Duration, batch: Batch, answers: Vec<Result<(), Failure>>) {
        self.clock = now;
        let Batch { target, parts, messages: _ } = batch;
        self.in_flight = self.in_flight.saturating_sub(parts.len());
        let sent = Sent { alone: parts.len() == 1, answers: answers.iter().any(Result::is_ok) };
        let answers: Vec<(PartRef, Result<(), Failure>)> = parts.into_iter().zip(answers).collect();
        let was_closed = self.targets.get(&target).is_some_and(|target| target.breaker.is_closed());
        let unit = self.unit();
        if let Some(state) = self.targets.get_mut(&target) {
            state.answered(now, &answers, unit);
        }
        if !was_closed {
            self.resume_if_closed(&target);
        }
        let mut unanswered = Vec::new();
        let mut reason = String::new();
        for (part, answer) in answers {
            match answer {
                Ok(()) => self.confirmed(&target, &part),
                Err(failure) => {
                    reason.clone_from(&failure.detail);
                    unanswered.extend(self.failed(now, &target, part, &failure, sent));
                }
            }
        }
        if let Some(state) = self.targets.get_mut(&target) {
            state.enqueue_first(unanswered);
        }
        self.after_breaker(&target, was_closed, &reason);
    }

    fn confirmed(&mut self, target: &TargetKey, part: &PartRef) {
        if let Some(target) = self.targets.get_mut(target) {
            target.strikes(part, true, &Ok(()));
        }
        if self.route_breakers.get_mut(&part.route).is_some_and(posthaste_core::breaker::Breaker::succeed) {
            self.read_passed_again(&part.route);
        }
        let Some(cause) = self.work.get(&part.row).map(|work| work.cause) else { return };
        self.report_published(&part.route, cause);
        self.end(part, PartState::Confirmed);
        self.open_gate(part);
        self.conclude(part.row);
    }

    /// One report for a run of equal ones: a batch has thousands.
    fn report_published(&mut self, route: &RouteKey, cause: Cause) {
        if let Some(Report::Published { route: last, cause: of, count }) = self.reports.last_mut()
            && last == route
            && *of == cause
        {
            *count += 1;
            return;
        }
        self.reports.push(Report::Published { route: route.clone(), cause, count: 1 });
    }

    /// Answers the part if it is to be sent again before all others.
    fn failed(
        &mut self,
        now: Duration,
        target: &TargetKey,
        part: PartRef,
        failure: &Failure,
        sent: Sent,
    ) -> Option<PartRef> {
        let strikes = self.targets.get_mut(target)?.strikes(&part, sent.alone, &Err(failure.clone()));
        let attempts = self.work.get(&part.row)?.row.attempts;
        let tries = self.part_mut(&part)?.failures.saturating_add(1);
        let verdict = match verdict::on_failure(failure, attempts, strikes, &self.settings.retry) {
            Verdict::Again => verdict::again(failure, tries, strikes, sent.answers),
            verdict => verdict,
        };
        self.reports.push(Report::Failed {
            id: part.row,
            route: part.route.clone(),
            class: failure.class,
            detail: failure.detail.clone(),
            dead: matches!(verdict, Verdict::Dead { .. }),
        });
        if failure.class == Class::Misrouted {
            let unit = self.unit();
            if let Some(breaker) = self.route_breakers.get_mut(&part.route) {
                breaker.fail(now, None, unit);
            }
        }
        match verdict {
            Verdict::Again => return self.again(now, target, part, failure),
            Verdict::Retry { .. } => {
                self.end(&part, PartState::Failed(verdict));
                if let Some((gate, place)) = self.gate_of(&part) {
                    self.shut(&gate, place);
                }
            }
            // Nothing later of the key goes before this is recorded; see `settled`.
            Verdict::Dead { .. } => self.end(&part, PartState::Failed(verdict)),
            Verdict::Leave { .. } => {
                self.end(&part, PartState::Failed(verdict));
                self.open_gate(&part);
            }
        }
        self.conclude(part.row);
        None
    }

    fn again(&mut self, now: Duration, target: &TargetKey, part: PartRef, failure: &Failure) -> Option<PartRef> {
        if !self.work.get(&part.row).is_some_and(|work| self.owns(work.row.lane)) {
            // Another relay's by now: it has sent it, or will.
            self.pass(&part);
            self.conclude(part.row);
            return None;
        }
        let entry = self.part_mut(&part)?;
        entry.state = PartState::Queued;
        entry.failures = entry.failures.saturating_add(1);
        let failures = entry.failures;
        if failure.outcome != posthaste_core::failure::Outcome::NotDelivered {
            return Some(part);
        }
        self.targets.get_mut(target)?.enqueue_later(part, failures, now);
        None
    }

    /// A probe of a paused target ended.
    pub(crate) fn probed(&mut self, now: Duration, target: &TargetKey, answer: Result<(), Failure>) {
        let unit = self.unit();
        let Some(state) = self.targets.get_mut(target) else { return };
        match answer {
            Ok(()) => {
                state.breaker.admit();
                self.resume_if_closed(target);
            }
            Err(failure) => state.breaker.fail(now, failure.retry_after, unit),
        }
    }

    /// A target takes messages again: by a probe, or because something that was in flight when it
    /// was paused has arrived after all.
    fn resume_if_closed(&mut self, target: &TargetKey) {
        if !self.targets.get(target).is_some_and(|target| target.breaker.is_closed()) {
            return;
        }
        self.reports.push(Report::Resumed { target: target.clone() });
        for route in self.routes.keys_for_target(target) {
            self.read_passed_again(&route);
        }
    }

    /// Lets routes that were paused as misrouted be tried again.
    pub(super) fn admit_routes(&mut self, now: Duration) {
        let due: Vec<RouteKey> = self
            .route_breakers
            .iter_mut()
            .filter_map(|(route, breaker)| breaker.try_probe(now).then(|| route.clone()))
            .collect();
        for route in due {
            if let Some(breaker) = self.route_breakers.get_mut(&route) {
                breaker.admit();
            }
            self.read_passed_again(&route);
        }
    }

    /// Targets that were full and have room again get what was passed over.
    pub(super) fn relieve(&mut self) {
        let read_all = self.cursors.is_idle();
        let mut relieved = Vec::new();
        for (key, target) in &mut self.targets {
            if target.room.relieve() {
                relieved.push(key.clone());
            } else if read_all {
                target.room.caught_up();
            }
        }
        if read_all {
            self.caught_up_from.clear();
        }
        for route in relieved.iter().flat_map(|target| self.routes.keys_for_target(target)) {
            let passed = self.passed.remove(&route).unwrap_or_default();
            let from = self.caught_up_from.entry(route).or_default();
            for (lane, seq) in passed {
                self.cursors.catch_up(lane, seq);
                let low = from.entry(lane).or_insert(seq);
                *low = seq.min(*low);
            }
        }
    }

    fn read_passed_again(&mut self, route: &RouteKey) {
        for (lane, seq) in self.passed.remove(route).unwrap_or_default() {
            self.cursors.rewind(lane, seq);
        }
    }

    /// What waits for a target or a route that has just been paused is passed over.
    fn after_breaker(&mut self, target: &TargetKey, was_closed: bool, detail: &str) {
        let Some(state) = self.targets.get_mut(target) else { return };
        let closed = state.breaker.is_closed();
        if was_closed && !closed {
            self.reports.push(Report::Paused { target: target.clone(), detail: detail.to_owned() });
        }
        let unusable: Vec<&RouteKey> =
            self.route_breakers.iter().filter(|(_, breaker)| !breaker.is_closed()).map(|(route, _)| route).collect();
        if closed && unusable.is_empty() {
            return;
        }
        let (stays, passed): (Vec<PartRef>, Vec<PartRef>) =
            state.take_waiting().into_iter().partition(|part| closed && !unusable.contains(&&part.route));
        stays.into_iter().for_each(|part| state.enqueue(part));
        passed.iter().for_each(|part| self.pass_over_paused(part));
    }

    /// Marks were written, or not.
    pub(crate) fn marked(&mut self, now: Duration, answer: posthaste_core::Result<Marked>) {
        self.clock = now;
        match answer {
            Ok(marked) => {
                marked.transaction.into_iter().for_each(|transaction| self.cursors.own_transaction(transaction));
                let rows = self.outcomes.marked(now, None);
                self.record(rows.into_iter().map(|row| row.id));
            }
            Err(error) => {
                self.reports.push(Report::StoreFailed { detail: error.to_string() });
                self.outcomes.marked(now, Some(error.kind()));
            }
        }
    }

    /// Settlements were written, or not.
    pub(crate) fn settled(&mut self, now: Duration, answer: posthaste_core::Result<Vec<Settled>>) {
        self.clock = now;
        let done = match answer {
            Ok(answers) => answers,
            Err(error) => {
                self.reports.push(Report::StoreFailed { detail: error.to_string() });
                self.outcomes.settled(now, Some(error.kind()));
                return;
            }
        };
        let ended = self.outcomes.settled(now, None);
        self.record(ended.iter().map(|settling| settling.place.id));
        for (settling, settled) in ended.into_iter().zip(done) {
            self.after_settlement(now, settling, settled);
        }
    }

    fn after_settlement(&mut self, now: Duration, settling: Settling, settled: Settled) {
        let Settling { place, key, gates, then, .. } = settling;
        match then {
            Then::Hold { due_in } if settled == Settled::Done => {
                // Its gates may have been forgotten with its lane meanwhile, and the page that is being read
                // will be taken without it.
                gates.iter().for_each(|gate| self.shut(gate, place));
                self.held.insert(now + due_in, HeldRow { place, gates });
            }
            Then::Revisit { parts } if settled == Settled::Done => {
                parts.iter().for_each(|route| self.revisit(route, place, key.as_ref()));
            }
            Then::Hold { .. } | Then::Revisit { .. } | Then::Open => {
                gates.iter().for_each(|gate| self.leave_gate(gate, place.id));
            }
        }
    }

    /// A row has become due: it is read again, and everything of its key after it.
    pub(super) fn release_held(&mut self, held: &HeldRow) {
        self.cursors.rewind(held.place.lane, held.place.seq);
        for gate in &held.gates {
            self.leave_gate(gate, held.place.id);
        }
    }

    fn gate_of(&self, part: &PartRef) -> Option<(GateKey, RowRef)> {
        let work = self.work.get(&part.row)?;
        let key = Arc::clone(work.key.as_ref()?);
        Some((GateKey { route: part.route.clone(), key }, work.row.reference()))
    }

    fn open_gate(&mut self, part: &PartRef) {
        if let Some((gate, place)) = self.gate_of(part) {
            self.leave_gate(&gate, place.id);
        }
    }

    /// A row leaves a gate; the next one goes, or is read again.
    pub(super) fn leave_gate(&mut self, gate: &GateKey, id: RowId) {
        let mut leaving = id;
        loop {
            let Next { row, read_from } = self.gates.leave(gate, leaving);
            if let Some((lane, seq)) = read_from {
                self.cursors.rewind(lane, seq);
            }
            let Some(next) = row else { return };
            if self.promote(&PartRef { row: next, route: gate.route.clone() }) {
                return;
            }
            leaving = next;
        }
    }

    /// Queues a part whose turn has come. Answers false if it was passed over instead.
    fn promote(&mut self, part: &PartRef) -> bool {
        let Some(entry) = self.part_mut(part) else { return false };
        let target = entry.target.clone();
        if self.is_usable(&target, &part.route) {
            if let Some(entry) = self.part_mut(part) {
                entry.state = PartState::Queued;
            }
            if let Some(target) = self.targets.get_mut(&target) {
                target.enqueue(part.clone());
            }
            return true;
        }
        self.pass_for_pause(part);
        self.conclude(part.row);
        false
    }

    fn pass_over_paused(&mut self, part: &PartRef) {
        self.pass_for_pause(part);
        self.open_gate(part);
        self.conclude(part.row);
    }

    /// The row may be under way on other routes for long: this one is read again from its place as
    /// soon as it can take messages.
    fn pass_for_pause(&mut self, part: &PartRef) {
        self.pass(part);
        if let Some(work) = self.work.get(&part.row) {
            let place = work.row.reference();
            self.pass_paused(&part.route, place.lane, place.seq);
        }
    }

    /// Everything of these lanes that is not in flight is forgotten; it stays in the database.
    pub(super) fn forget(&mut self, lanes: LaneSet) {
        for target in self.targets.values_mut() {
            for part in target.take_waiting() {
                if !self.work.get(&part.row).is_some_and(|work| lanes.contains(work.row.lane)) {
                    target.enqueue(part);
                }
            }
        }
        let in_flight = |state: &PartState| matches!(state, PartState::InFlight);
        let mut bytes = 0;
        self.work.retain(|_, work| {
            let stays = !lanes.contains(work.row.lane);
            for part in &mut work.parts {
                if !stays && matches!(part.state, PartState::Queued | PartState::Waiting) {
                    part.state = PartState::Passed;
                }
            }
            let kept = stays || work.parts.iter().any(|part| in_flight(&part.state));
            bytes += if kept { 0 } else { work.row.weight() };
            kept
        });
        self.bytes = self.bytes.saturating_sub(bytes);
        self.held.forget(lanes);
        self.count_again();
        self.rebuild_gates(lanes);
    }

    fn count_again(&mut self) {
        self.targets.values_mut().for_each(|target| target.room.clear());
        for work in self.work.values() {
            for part in work.parts.iter().filter(|part| part.state.is_under_way()) {
                if let Some(target) = self.targets.get_mut(&part.target) {
                    target.room.enter(work.row.weight());
                }
            }
        }
    }

    /// Order must hold between what is still in flight there and what is read once they are won again.
    fn rebuild_gates(&mut self, lanes: LaneSet) {
        self.gates.clear(lanes);
        let mut in_flight: Vec<(RowRef, GateKey)> = Vec::new();
        for work in self.work.values().filter(|work| lanes.contains(work.row.lane)) {
            let Some(key) = &work.key else { continue };
            let parts = work.parts.iter().filter(|part| part.state == PartState::InFlight);
            let gate = |route: &RouteKey| GateKey { route: route.clone(), key: Arc::clone(key) };
            in_flight.extend(parts.map(|part| (work.row.reference(), gate(&part.message.route))));
        }
        in_flight.sort_by_key(|(place, _)| *place);
        for (place, gate) in in_flight {
            self.gates.enter(&gate, place);
        }
    }
}
