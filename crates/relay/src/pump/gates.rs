//! Order: per ordering key and route at most one row is under way, the next only after it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use posthaste_core::{Lane, LaneSet, RouteKey, RowId, RowRef, Seq};

/// What a gate guards.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct GateKey {
    pub(crate) route: RouteKey,
    pub(crate) key: Arc<str>,
}

/// Whether a row may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// It may.
    Open,
    /// It waits in memory and is named by `leave` when its turn comes.
    Waits,
    /// It is to be forgotten and read again later.
    PassedOver,
}

/// What happens now that a row has left its gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Next {
    /// The row whose turn it is.
    pub(crate) row: Option<RowId>,
    /// Rows were passed over from here on: read again.
    pub(crate) read_from: Option<(Lane, Seq)>,
}

struct Gate {
    holder: RowRef,
    held: bool,
    waiting: BTreeMap<RowRef, ()>,
    passed: Option<(Seq, Lane)>,
}

/// All gates that are not open.
pub(crate) struct Gates {
    gates: HashMap<GateKey, Gate>,
    most_waiting: usize,
}

impl Gates {
    pub(crate) fn new(most_waiting: usize) -> Gates {
        Gates { gates: HashMap::new(), most_waiting }
    }

    /// A row wants to go.
    pub(crate) fn enter(&mut self, key: &GateKey, place: RowRef) -> Entry {
        let Some(gate) = self.gates.get_mut(key) else {
            let gate = Gate { holder: place, held: false, waiting: BTreeMap::new(), passed: None };
            self.gates.insert(key.clone(), gate);
            return Entry::Open;
        };
        if gate.held && place < gate.holder {
            // An earlier row came back while a later one was waited for.
            gate.pass_over(gate.holder);
            gate.holder = place;
        }
        if gate.holder.id == place.id {
            gate.held = false;
            return Entry::Open;
        }
        let behind_passed = gate.passed.is_some_and(|(seq, _)| place.seq >= seq);
        if gate.held || behind_passed || gate.waiting.len() >= self.most_waiting {
            gate.pass_over(place);
            return Entry::PassedOver;
        }
        gate.waiting.insert(place, ());
        Entry::Waits
    }

    /// A row that is not due holds its key back. Answers the rows that waited in memory behind
    /// another holder and must be forgotten, if the gate is this row's.
    pub(crate) fn hold(&mut self, key: &GateKey, place: RowRef) -> Vec<RowId> {
        let gate = self.gates.entry(key.clone()).or_insert_with(|| Gate {
            holder: place,
            held: true,
            waiting: BTreeMap::new(),
            passed: None,
        });
        if gate.held && place < gate.holder {
            gate.pass_over(gate.holder);
            gate.holder = place;
        }
        if gate.holder.id != place.id {
            // An earlier row is under way; this one is read again when that has left.
            gate.pass_over(place);
            return Vec::new();
        }
        gate.held = true;
        let waiting = std::mem::take(&mut gate.waiting);
        for place in waiting.keys() {
            gate.pass_over(*place);
        }
        waiting.into_keys().map(|place| place.id).collect()
    }

    /// A row that was passed over wants to be read again: if another row is under way, that waits
    /// until the gate opens.
    pub(crate) fn pass_if_shut(&mut self, key: &GateKey, place: RowRef) -> Entry {
        match self.gates.get_mut(key) {
            Some(gate) if gate.holder.id != place.id => {
                gate.pass_over(place);
                Entry::PassedOver
            }
            _ => Entry::Open,
        }
    }

    /// Whether a row that is not due keeps this gate shut.
    pub(crate) fn is_held(&self, key: &GateKey) -> bool {
        self.gates.get(key).is_some_and(|gate| gate.held)
    }

    /// Forgets the gates in these lanes whose holder is not known any more. Answers them with the rows
    /// that waited there, which must be forgotten too.
    pub(crate) fn abandon(&mut self, lanes: LaneSet, known: impl Fn(RowId) -> bool) -> Vec<(GateKey, Vec<RowId>)> {
        let abandoned = |gate: &Gate| lanes.contains(gate.holder.lane) && !known(gate.holder.id);
        let gates = self.gates.extract_if(|_, gate| abandoned(gate));
        gates.map(|(key, gate)| (key, gate.waiting.into_keys().map(|place| place.id).collect())).collect()
    }

    /// Forgets every gate in these lanes.
    pub(crate) fn clear(&mut self, lanes: LaneSet) {
        self.gates.retain(|_, gate| !lanes.contains(gate.holder.lane));
    }

    /// The row is done with this gate, or has been forgotten.
    pub(crate) fn leave(&mut self, key: &GateKey, id: RowId) -> Next {
        let Some(gate) = self.gates.get_mut(key) else { return Next::default() };
        if gate.holder.id != id {
            gate.waiting.retain(|place, ()| place.id != id);
            return Next::default();
        }
        if let Some((place, ())) = gate.waiting.pop_first() {
            gate.holder = place;
            gate.held = false;
            return Next { row: Some(place.id), read_from: None };
        }
        let read_from = gate.passed.map(|(seq, lane)| (lane, seq));
        self.gates.remove(key);
        Next { row: None, read_from }
    }
}

impl Gate {
    fn pass_over(&mut self, place: RowRef) {
        let place = (place.seq, place.lane);
        self.passed = Some(self.passed.map_or(place, |passed| passed.min(place)));
    }
}
