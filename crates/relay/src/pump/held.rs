//! Rows that are not due: remembered by place, never by body.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use posthaste_core::{Lane, LaneSet, RowId, RowRef, Seq};

use super::gates::GateKey;

/// A row that is not due, and the gates it keeps shut.
pub(crate) struct HeldRow {
    pub(crate) place: RowRef,
    pub(crate) gates: Vec<GateKey>,
}

/// Rows that are not due, at most so many; of what is over, each lane remembers where to read
/// again and when.
pub(crate) struct Held {
    rows: HashMap<RowId, (Duration, HeldRow)>,
    due: BTreeMap<(Duration, RowId), ()>,
    overflow: BTreeMap<Lane, Overflow>,
    most: usize,
}

#[derive(Clone, Copy)]
struct Overflow {
    due: Duration,
    seq: Seq,
    keyed: bool,
}

impl Held {
    pub(crate) fn new(most: usize) -> Held {
        Held { rows: HashMap::new(), due: BTreeMap::new(), overflow: BTreeMap::new(), most }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn has_overflow(&self) -> bool {
        !self.overflow.is_empty()
    }

    /// Remembers a row until it is due. Answers false where there is no room: the lane is read
    /// again when the first of such rows is due, and until then no keyed row of it may pass
    /// (see [`Held::bars`]).
    pub(crate) fn insert(&mut self, due: Duration, row: HeldRow) -> bool {
        self.remove(row.place.id);
        if self.rows.len() >= self.most {
            let keyed = !row.gates.is_empty();
            let this = Overflow { due, seq: row.place.seq, keyed };
            let lane = self.overflow.entry(row.place.lane).or_insert(this);
            *lane = Overflow { due: lane.due.min(due), seq: lane.seq.min(this.seq), keyed: lane.keyed || keyed };
            return false;
        }
        self.due.insert((due, row.place.id), ());
        self.rows.insert(row.place.id, (due, row));
        true
    }

    /// Whether a keyed row at this place may have a predecessor that there was no room for.
    pub(crate) fn bars(&self, place: RowRef) -> bool {
        self.overflow.get(&place.lane).is_some_and(|overflow| overflow.keyed && place.seq > overflow.seq)
    }

    /// Notes that a row was barred: it is read again with the others of its lane.
    pub(crate) fn bar(&mut self, place: RowRef) {
        if let Some(overflow) = self.overflow.get_mut(&place.lane) {
            overflow.seq = overflow.seq.min(place.seq);
        }
    }

    /// Forgets a row.
    pub(crate) fn remove(&mut self, id: RowId) -> Option<HeldRow> {
        let (due, row) = self.rows.remove(&id)?;
        self.due.remove(&(due, id));
        Some(row)
    }

    /// When the next row is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let row = self.due.keys().next().map(|(due, _)| *due);
        let overflow = self.overflow.values().map(|overflow| overflow.due).min();
        row.into_iter().chain(overflow).min()
    }

    /// Takes out what is due.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<HeldRow> {
        let mut taken = Vec::new();
        while let Some((&(due, id), ())) = self.due.first_key_value() {
            if due > now {
                break;
            }
            taken.extend(self.remove(id));
        }
        taken
    }

    /// Takes out the lanes that must be read again from a place, because a row that there was no
    /// room for is due.
    pub(crate) fn take_due_lanes(&mut self, now: Duration) -> Vec<(Lane, Seq)> {
        let due: Vec<Lane> =
            self.overflow.iter().filter(|(_, overflow)| overflow.due <= now).map(|(lane, _)| *lane).collect();
        due.into_iter().filter_map(|lane| self.overflow.remove(&lane).map(|overflow| (lane, overflow.seq))).collect()
    }

    /// Forgets the rows of these lanes.
    pub(crate) fn forget(&mut self, lanes: LaneSet) {
        let lost: Vec<RowId> =
            self.rows.values().map(|(_, row)| row.place).filter(|p| lanes.contains(p.lane)).map(|p| p.id).collect();
        lost.into_iter().for_each(|id| {
            self.remove(id);
        });
        self.overflow.retain(|lane, _| !lanes.contains(*lane));
    }
}
