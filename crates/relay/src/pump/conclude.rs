//! When every route of a row has ended: what is recorded of it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use posthaste_core::{RouteKey, RowId, RowRef, port::Settlement};

use super::{
    gates::{Entry, GateKey},
    outcomes::{Settling, Then},
    state::{Part, PartState, State, Work},
    targets::PartRef,
    verdict::Verdict,
};

impl State {
    pub(super) fn end(&mut self, part: &PartRef, state: PartState) {
        let Some(work) = self.work.get_mut(&part.row) else { return };
        let Some(part) = work.parts.iter_mut().find(|candidate| candidate.message.route == part.route) else { return };
        if part.state.is_under_way()
            && let Some(target) = self.targets.get_mut(&part.target)
        {
            target.room.leave(work.row.weight());
        }
        part.state = state;
    }

    /// A part is left to be read again later.
    pub(super) fn pass(&mut self, part: &PartRef) {
        self.end(part, PartState::Passed);
    }

    /// Records the outcome of a row if all its parts have ended.
    pub(super) fn conclude(&mut self, id: RowId) {
        if self.work.get(&id).is_none_or(|work| work.parts.iter().any(|part| part.state.is_under_way())) {
            return;
        }
        let Some(work) = self.work.remove(&id) else { return };
        self.bytes = self.bytes.saturating_sub(work.row.weight());
        let outcome = outcome(&work);
        self.remember_dead(&work, &outcome);
        match outcome {
            Outcome::Published => self.outcomes.confirm(work.row.reference(), self.clock),
            Outcome::Settle(settlement, then) => self.settle(work, settlement, then),
            Outcome::Nothing => {
                for part in work.parts.iter().filter(|part| part.state == PartState::Passed) {
                    self.revisit(&part.message.route, work.row.reference(), work.key.as_ref());
                }
            }
        }
    }

    fn settle(&mut self, work: Work, settlement: Settlement, then: Then) {
        let place = work.row.reference();
        // A row that is not due keeps its place on every route that it has not left.
        let holds = matches!(then, Then::Hold { .. });
        let keeps = |part: &Part| match &part.state {
            PartState::Failed(Verdict::Leave { .. }) => holds,
            PartState::Failed(_) => true,
            PartState::Passed => holds,
            _ => false,
        };
        let gates: Vec<GateKey> = work
            .key
            .iter()
            .flat_map(|key| {
                let parts = work.parts.iter().filter(|part| keeps(part));
                parts.map(|part| GateKey { route: part.message.route.clone(), key: Arc::clone(key) })
            })
            .collect();
        if holds {
            gates.iter().for_each(|gate| self.shut(gate, place));
        }
        self.outcomes.settle(Settling { settlement, place, key: work.key, gates, then });
    }

    /// What a route has refused for good is not sent to it again while the row waits for other routes,
    /// and nothing later of its key goes there before the row is invalid.
    fn remember_dead(&mut self, work: &Work, outcome: &Outcome) {
        let id = work.row.id;
        let waits = matches!(outcome, Outcome::Nothing | Outcome::Settle(_, Then::Revisit { .. }));
        let dead: BTreeMap<RouteKey, Verdict> = work.parts.iter().filter_map(dead).collect();
        if !waits || dead.is_empty() {
            self.dead.remove(&id);
            return;
        }
        for route in dead.keys() {
            self.shut_for_dead(work, route);
        }
        if self.dead.len() >= self.settings.bounds.held {
            self.dead.clear();
        }
        self.dead.insert(id, dead);
    }

    pub(super) fn shut_for_dead(&mut self, work: &Work, route: &RouteKey) {
        if let Some(key) = &work.key {
            self.shut(&GateKey { route: route.clone(), key: Arc::clone(key) }, work.row.reference());
        }
    }

    /// Sees to it that a row which was passed over on a route is read again when that can help.
    pub(super) fn revisit(&mut self, route: &RouteKey, at: RowRef, key: Option<&Arc<str>>) {
        let gate = key.map(|key| GateKey { route: route.clone(), key: Arc::clone(key) });
        if let Some(gate) = &gate {
            self.leave_gate(gate, at.id);
        }
        let takes_more = self.routes.target_of(route).is_some_and(|target| self.takes_more(target, route));
        if !takes_more {
            return self.pass_paused(route, at.lane, at.seq);
        }
        if gate.is_some_and(|gate| self.gates.pass_if_shut(&gate, at) == Entry::PassedOver) {
            return;
        }
        self.cursors.rewind(at.lane, at.seq);
    }
}

fn dead(part: &Part) -> Option<(RouteKey, Verdict)> {
    match &part.state {
        PartState::Failed(verdict @ Verdict::Dead { .. }) => Some((part.message.route.clone(), verdict.clone())),
        _ => None,
    }
}

enum Outcome {
    Published,
    Settle(Settlement, Then),
    Nothing,
}

/// What a row whose parts have all ended comes to.
fn outcome(work: &Work) -> Outcome {
    let id = work.row.id;
    let keys = |wanted: fn(&PartState) -> bool| -> Vec<RouteKey> {
        let parts = work.parts.iter().filter(|part| wanted(&part.state));
        parts.map(|part| part.message.route.clone()).collect()
    };
    let mut open = keys(|state| *state != PartState::Confirmed);
    open.extend(work.unknown.iter().cloned());
    if open.is_empty() {
        return Outcome::Published;
    }
    let outstanding = (open.len() < work.parts.len() + work.unknown.len()).then(|| open.clone());
    let verdicts = || {
        work.parts.iter().filter_map(|part| match &part.state {
            PartState::Failed(verdict) => Some(verdict),
            _ => None,
        })
    };
    if let Some(settlement) = retry(id, verdicts(), outstanding.as_ref()) {
        let due_in = match &settlement {
            Settlement::Retry { due_in, .. } => *due_in,
            _ => Duration::ZERO,
        };
        return Outcome::Settle(settlement, Then::Hold { due_in });
    }
    let passed = keys(|state| *state == PartState::Passed);
    if passed.is_empty() && work.unknown.is_empty() {
        if let Some(Verdict::Dead { counted, reason }) = verdicts().find(|v| matches!(v, Verdict::Dead { .. })) {
            let error = reason.clone();
            return Outcome::Settle(Settlement::Invalid { id, counted: *counted, error, outstanding }, Then::Open);
        }
        if let Some(Verdict::Leave { reason }) = verdicts().next() {
            return Outcome::Settle(Settlement::Note { id, error: reason.clone() }, Then::Open);
        }
    }
    match outstanding {
        Some(outstanding) => Outcome::Settle(Settlement::Progress { id, outstanding }, Then::Revisit { parts: passed }),
        None => Outcome::Nothing,
    }
}

/// The retry of the parts that want one: due with the last of them.
fn retry<'a>(
    id: RowId,
    verdicts: impl Iterator<Item = &'a Verdict>,
    outstanding: Option<&Vec<RouteKey>>,
) -> Option<Settlement> {
    let retries = verdicts.filter_map(|verdict| match verdict {
        Verdict::Retry { counted, due_in, reason } => Some((*due_in, *counted, reason)),
        _ => None,
    });
    let (due_in, counted, reason) = retries.max()?;
    Some(Settlement::Retry { id, due_in, counted, error: reason.clone(), outstanding: outstanding.cloned() })
}
