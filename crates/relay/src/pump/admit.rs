//! Rows that were read: what is done with each, and what is passed over for now.

use std::{sync::Arc, time::Duration};

use posthaste_core::{Lane, LaneSet, Message, RouteKey, Row, RowRef, Seq, Timestamp, port::Settlement};

use super::{
    cause::Cause,
    cursors::ReadRow,
    gates::{Entry, GateKey},
    held::HeldRow,
    outcomes::{Settling, Then},
    report::Report,
    state::{Part, PartState, State, Work},
    targets::PartRef,
    verdict::{self, Verdict},
};
use crate::route::{Rendered, TargetKey};

/// Deferred rows of one pump that get a note in the database; more would be a write a row.
const MOST_NOTES: u64 = 1_000;
/// Rows in a row of one lane that may be passed over behind keys under way before it is read on later.
const CROWD: u32 = 256;

impl State {
    /// Decides what is done with a row that was read.
    pub(super) fn admit(&mut self, now: Duration, database_now: Timestamp, read: ReadRow) {
        let row = Arc::new(read.row);
        let key: Option<Arc<str>> = row.key.as_deref().map(Arc::from);
        if self.work.contains_key(&row.id) || self.outcomes.contains(row.id) {
            return self.meet_again(&row, key.as_ref());
        }
        if key.is_some() && self.held.bars(row.reference()) {
            self.held.bar(row.reference());
            return self.count_passed_over();
        }
        if row.due_at > database_now {
            return self.hold(now + row.due_at.since(database_now), &row, key.as_ref());
        }
        let returned = self.held.remove(row.id).map(|held| held.gates).unwrap_or_default();
        match self.routes.render(&row) {
            Rendered::Messages { messages, unknown } => {
                let work =
                    Work { row: Arc::clone(&row), cause: read.cause, key: key.clone(), parts: Vec::new(), unknown };
                self.begin(now, work, messages);
            }
            Rendered::Deferred { reason } => self.leave_alone(&row, reason),
            Rendered::Invalid { reason } => self.refuse(&row, key.clone(), reason),
            Rendered::RenderFailed { reason } => self.cannot_render(&row, key.clone(), &reason),
        }
        self.leave_gates_not_entered(returned, &row, key.as_ref());
    }

    /// A row that is under way was read again. On routes that it has not left it keeps its place:
    /// nothing later of its key may go there before it.
    fn meet_again(&mut self, row: &Row, key: Option<&Arc<str>>) {
        let Some(key) = key else { return };
        let mut routes = self.outcomes.kept_routes(row.id).to_vec();
        let parts = self.work.get(&row.id).into_iter().flat_map(|work| &work.parts);
        let kept = parts.filter(|part| match &part.state {
            PartState::Passed => true,
            PartState::Failed(verdict) => !matches!(verdict, Verdict::Leave { .. }),
            _ => false,
        });
        routes.extend(kept.map(|part| part.message.route.clone()));
        for route in routes {
            self.shut(&GateKey { route, key: Arc::clone(key) }, row.reference());
        }
    }

    /// A row that was held may have come back with other routes than it left with.
    fn leave_gates_not_entered(&mut self, returned: Vec<GateKey>, row: &Row, key: Option<&Arc<str>>) {
        let entered: Vec<GateKey> = match (self.work.get(&row.id), key) {
            (Some(work), Some(key)) => work
                .parts
                .iter()
                .filter(|part| part.state != PartState::Passed)
                .map(|part| GateKey { route: part.message.route.clone(), key: Arc::clone(key) })
                .collect(),
            _ => Vec::new(),
        };
        let settling = self.outcomes.contains(row.id);
        for gate in returned {
            if !settling && !entered.contains(&gate) {
                self.leave_gate(&gate, row.id);
            }
        }
    }

    /// Remembers a row that is not due; it holds back its key.
    fn hold(&mut self, due: Duration, row: &Row, key: Option<&Arc<str>>) {
        let gates = self.gate_keys(row, key);
        for gate in &gates {
            self.shut(gate, row.reference());
        }
        if !self.held.insert(due, HeldRow { place: row.reference(), gates }) {
            self.count_passed_over();
        }
    }

    /// Shuts a gate for a row that is not due; rows that waited behind it are passed over.
    pub(super) fn shut(&mut self, gate: &GateKey, place: RowRef) {
        // What was not read on because of this key is no longer about to be read anyway.
        self.cursors.wake(LaneSet::from_iter([place.lane]), Cause::Interval);
        for id in self.gates.hold(gate, place) {
            self.pass(&PartRef { row: id, route: gate.route.clone() });
            self.conclude(id);
        }
    }

    pub(super) fn gate_keys(&self, row: &Row, key: Option<&Arc<str>>) -> Vec<GateKey> {
        let Some(key) = key else { return Vec::new() };
        self.routes.keys_of(row).into_iter().map(|route| GateKey { route, key: Arc::clone(key) }).collect()
    }

    /// Puts the messages of a row on their way.
    fn begin(&mut self, now: Duration, mut work: Work, messages: Vec<(TargetKey, Message)>) {
        let (id, place, weight) = (work.row.id, work.row.reference(), work.row.weight());
        self.render_failures.remove(&id);
        if messages.is_empty() && work.unknown.is_empty() {
            // Every route's condition was false: done without a message.
            return self.outcomes.confirm(place, now);
        }
        for (target, message) in messages {
            let route = message.route.clone();
            if let Some(verdict) = self.dead.get(&id).and_then(|dead| dead.get(&route)).cloned() {
                self.shut_for_dead(&work, &route);
                work.parts.push(Part { target, message, state: PartState::Failed(verdict), failures: 0 });
                continue;
            }
            let state = match self.finds_room(&target, &route, place, weight) {
                true => self.enter(&target, &route, place, work.key.as_ref()),
                false => PartState::Passed,
            };
            if let Some(target) = self.targets.get_mut(&target).filter(|_| state != PartState::Passed) {
                target.room.enter(weight);
                if state == PartState::Queued {
                    target.enqueue(PartRef { row: id, route });
                }
            }
            work.parts.push(Part { target, message, state, failures: 0 });
        }
        self.bytes += weight;
        self.work.insert(id, work);
        self.conclude(id);
    }

    /// Whether a slow target has room for one more. If not, the row is passed over for it; what comes
    /// after it in its lane need not be read a second time either, unless another target waits for that.
    fn finds_room(&mut self, target: &TargetKey, route: &RouteKey, place: RowRef, weight: usize) -> bool {
        if !self.is_usable(target, route)
            || self.targets.get_mut(target).is_none_or(|target| target.room.admits(weight))
        {
            return true;
        }
        self.pass_paused(route, place.lane, place.seq);
        if !self.targets.values().any(|target| target.room.is_catching_up()) && self.cursors.leap(place.lane) {
            self.leave_out(place);
        }
        false
    }

    /// What comes after `place` in its lane is not read again now: routes for which it would have been
    /// have still not had it.
    fn leave_out(&mut self, place: RowRef) {
        let missed = self.caught_up_from.iter_mut();
        let missed: Vec<(RouteKey, Seq)> =
            missed.filter_map(|(route, lanes)| Some((route.clone(), lanes.remove(&place.lane)?))).collect();
        for (route, from) in missed {
            self.pass_paused(&route, place.lane, from.max(place.seq));
        }
    }

    fn enter(&mut self, target: &TargetKey, route: &RouteKey, place: RowRef, key: Option<&Arc<str>>) -> PartState {
        if !self.is_usable(target, route) {
            self.pass_paused(route, place.lane, place.seq);
            return PartState::Passed;
        }
        let Some(key) = key else { return PartState::Queued };
        let gate = GateKey { route: route.clone(), key: Arc::clone(key) };
        match self.gates.enter(&gate, place) {
            Entry::Open => {
                self.crowds.remove(&place.lane);
                PartState::Queued
            }
            Entry::Waits => PartState::Waiting,
            Entry::PassedOver => {
                self.meet_crowd(&gate, place.lane);
                PartState::Passed
            }
        }
    }

    /// A lane that brings nothing but rows behind one key under way is not read on until that key
    /// has moved: each would be read again for every few that go.
    fn meet_crowd(&mut self, gate: &GateKey, lane: Lane) {
        if self.gates.is_held(gate) {
            return;
        }
        let crowd = self.crowds.entry(lane).or_insert(0);
        *crowd += 1;
        if *crowd >= CROWD {
            self.crowds.remove(&lane);
            self.cursors.rest(lane);
        }
    }

    /// Remembers where a route must be read from again once it is no longer paused.
    pub(super) fn pass_paused(&mut self, route: &RouteKey, lane: Lane, seq: Seq) {
        let lanes = self.passed.entry(route.clone()).or_default();
        let low = lanes.entry(lane).or_insert(seq);
        *low = seq.min(*low);
        self.count_passed_over();
    }

    fn leave_alone(&mut self, row: &Row, reason: String) {
        *self.deferred.entry(row.event_type.clone()).or_insert(0) += 1;
        self.count_passed_over();
        let error = verdict::cut(&format!("deferred: {reason}"));
        if row.last_error.as_ref() == Some(&error) || self.noted >= MOST_NOTES {
            return;
        }
        self.noted += 1;
        self.reports.push(Report::Deferred { id: row.id, event_type: row.event_type.clone(), detail: reason });
        let settlement = Settlement::Note { id: row.id, error };
        self.outcomes.settle(Settling {
            settlement,
            place: row.reference(),
            key: None,
            gates: Vec::new(),
            then: Then::Open,
        });
    }

    fn refuse(&mut self, row: &Row, key: Option<Arc<str>>, reason: String) {
        let error = verdict::cut(&format!("permanent: {reason}"));
        self.reports.push(Report::Unrenderable { id: row.id, detail: reason });
        let settlement =
            Settlement::Invalid { id: row.id, counted: false, error, outstanding: row.outstanding.clone() };
        let gates = self.gate_keys(row, key.as_ref());
        self.outcomes.settle(Settling { settlement, place: row.reference(), key, gates, then: Then::Open });
    }

    fn cannot_render(&mut self, row: &Row, key: Option<Arc<str>>, reason: &str) {
        if self.render_failures.len() > self.settings.bounds.held {
            self.render_failures.clear();
        }
        let failures = self.render_failures.entry(row.id).or_insert(0);
        let verdict = verdict::on_render_failure(reason, *failures, &self.settings.retry);
        *failures = failures.saturating_add(1);
        self.reports.push(Report::Unrenderable { id: row.id, detail: reason.to_owned() });
        let Verdict::Retry { due_in, reason, .. } = verdict else { return };
        let gates = self.gate_keys(row, key.as_ref());
        for gate in &gates {
            self.shut(gate, row.reference());
        }
        let settlement = Settlement::Retry {
            id: row.id,
            due_in,
            counted: false,
            error: reason,
            outstanding: row.outstanding.clone(),
        };
        self.outcomes.settle(Settling { settlement, place: row.reference(), key, gates, then: Then::Hold { due_in } });
    }
}
