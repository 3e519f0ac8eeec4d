//! Where each lane is read from next.
//!
//! A cursor spares reading again what is in memory already; it is never trusted to have seen
//! everything behind it. What a transaction in progress at some read may still bring to light is
//! remembered as a doubt, and the lane is read again from there once that transaction has ended,
//! before anything that was read after it goes out. Where the store has no snapshots the rows behind
//! the cursor say so themselves: one that no earlier read has seen is late. A full pass from the start
//! is the safety net.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use posthaste_core::{
    LANES, Lane, LaneSet, Proof, Row, Seq,
    port::{Page, ReadRequest},
};

use super::cause::Cause;

/// Lanes read in one statement while there is a backlog in more of them.
const LANES_PER_READ: usize = 32;
/// Bytes of bodies that may be read once more to settle a doubt without throwing a page away.
const NEAR_BYTES: u64 = 1 << 20;
/// Transactions of this relay's own that are remembered.
const OWN_TRANSACTIONS: usize = 64;

/// The cursors of all lanes.
pub(crate) struct Cursors {
    lanes: Vec<LaneCursor>,
    dirty: LaneSet,
    doubts: BTreeMap<u64, Doubt>,
    /// Of each lane the undelivered rows that reads have seen; kept for [`Proof::Behind`] alone.
    seen: BTreeMap<Lane, BTreeSet<Seq>>,
    own: VecDeque<u64>,
    reading: Option<Reading>,
    next_lane: u8,
    backlog: bool,
    pass: Option<LaneSet>,
    passes: u64,
}

#[derive(Clone, Copy)]
struct LaneCursor {
    at: Seq,
    /// Up to here everything was read that nobody but a target that was full still waits for; 0 is nowhere.
    ahead: Seq,
    cause: Cause,
    /// Counts the rewinds: a page that was asked for before one is not used for this lane.
    rewinds: u64,
}

/// A transaction that was in progress at some read, and where each lane read then must be read
/// again from once it has ended.
#[derive(Default)]
struct Doubt {
    low: BTreeMap<Lane, Seq>,
    rows_since: u32,
    bytes_since: u64,
}

struct Reading {
    lanes: Vec<ReadLane>,
    woken: LaneSet,
}

#[derive(Clone, Copy)]
struct ReadLane {
    lane: Lane,
    start: Seq,
    rewinds: u64,
}

/// A row that was read, and what made it be read.
pub(crate) struct ReadRow {
    pub(crate) row: Row,
    pub(crate) cause: Cause,
}

impl Cursors {
    pub(crate) fn new() -> Cursors {
        Cursors {
            lanes: vec![LaneCursor { at: 0, ahead: 0, cause: Cause::Interval, rewinds: 0 }; usize::from(LANES)],
            dirty: LaneSet::EMPTY,
            doubts: BTreeMap::new(),
            seen: BTreeMap::new(),
            own: VecDeque::new(),
            reading: None,
            next_lane: 0,
            backlog: false,
            pass: None,
            passes: 0,
        }
    }

    /// There may be rows behind the cursors of these lanes.
    pub(crate) fn wake(&mut self, lanes: LaneSet, cause: Cause) {
        for lane in lanes.iter() {
            let fresh = !self.dirty.contains(lane);
            if fresh {
                self.lane_mut(lane).cause = cause;
            }
        }
        self.dirty = self.dirty.union(lanes);
        if let Some(reading) = &mut self.reading {
            reading.woken = reading.woken.union(lanes);
        }
    }

    /// Reads the lane again from just before `seq`.
    pub(crate) fn rewind(&mut self, lane: Lane, seq: Seq) {
        let cursor = self.lane_mut(lane);
        cursor.at = cursor.at.min(seq - 1);
        cursor.ahead = 0;
        cursor.rewinds += 1;
        self.dirty.insert(lane);
    }

    /// The same for a target that has room again. What lies between need not be read a second time if
    /// it is full before; see [`Cursors::leap`].
    pub(crate) fn catch_up(&mut self, lane: Lane, seq: Seq) {
        let LaneCursor { at, ahead, .. } = self.lanes[usize::from(lane.number())];
        self.rewind(lane, seq);
        self.lane_mut(lane).ahead = at.max(ahead);
    }

    /// Nobody waits for what [`Cursors::catch_up`] goes back for any longer. Answers whether anything
    /// is left out.
    pub(crate) fn leap(&mut self, lane: Lane) -> bool {
        let cursor = self.lane_mut(lane);
        let leaps = cursor.ahead > cursor.at;
        cursor.at = cursor.at.max(cursor.ahead);
        cursor.ahead = 0;
        leaps
    }

    /// The lane is not read on until it is rewound or woken.
    pub(crate) fn rest(&mut self, lane: Lane) {
        self.dirty.remove(lane);
    }

    /// Starts a full pass: every lane in `lanes` is read from its start.
    pub(crate) fn rewind_all(&mut self, lanes: LaneSet, cause: Cause) {
        for lane in lanes.iter() {
            let rewinds = self.lane_mut(lane).rewinds + 1;
            *self.lane_mut(lane) = LaneCursor { at: 0, ahead: 0, cause, rewinds };
        }
        self.dirty = self.dirty.union(lanes);
        self.pass = Some(self.pass.map_or(lanes, |pass| pass.union(lanes)));
        // A full pass sees whatever has ended; what is still in progress is doubted again.
        self.forget_doubts(lanes);
    }

    /// These lanes are not read any more.
    pub(crate) fn forget(&mut self, lanes: LaneSet) {
        self.dirty = self.dirty.difference(lanes);
        self.forget_doubts(lanes);
        self.seen.retain(|lane, _| !lanes.contains(*lane));
        self.pass = self.pass.map(|pass| pass.difference(lanes));
        // What was left of a pass may have been these alone.
        self.finish_pass();
    }

    fn forget_doubts(&mut self, lanes: LaneSet) {
        for doubt in self.doubts.values_mut() {
            doubt.low.retain(|lane, _| !lanes.contains(*lane));
        }
        self.doubts.retain(|_, doubt| !doubt.low.is_empty());
    }

    /// Whether a full pass has not come to its end yet.
    pub(crate) fn is_passing(&self) -> bool {
        self.pass.is_some()
    }

    /// Full passes completed so far.
    pub(crate) fn passes(&self) -> u64 {
        self.passes
    }

    /// Whether every lane has been read to its end.
    pub(crate) fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.reading.is_none()
    }

    /// Whether the last read left rows behind.
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog
    }

    /// A transaction of this relay's own: it inserts no rows, so it leaves no doubt.
    pub(crate) fn own_transaction(&mut self, transaction: u64) {
        self.doubts.remove(&transaction);
        self.own.push_back(transaction);
        if self.own.len() > OWN_TRANSACTIONS {
            self.own.pop_front();
        }
    }

    /// What to read next, if anything, of the lanes that are owned. One read at a time.
    pub(crate) fn request(&mut self, owned: LaneSet, batch: u32, max_bytes: u64) -> Option<ReadRequest> {
        self.dirty = self.dirty.intersection(owned);
        if self.reading.is_some() || self.dirty.is_empty() {
            return None;
        }
        let chosen = self.choose();
        let (mut again, mut lanes) = (false, Vec::with_capacity(chosen.len()));
        for lane in chosen {
            let LaneCursor { at, rewinds, .. } = self.lanes[usize::from(lane.number())];
            let low = self.near_doubts(batch).filter_map(|doubt| doubt.low.get(&lane)).min().copied();
            let start = low.map_or(at, |low| low.min(at));
            again |= start < at;
            lanes.push(ReadLane { lane, start, rewinds });
        }
        // What is read again comes on top, so that the read gets past it.
        let (rows, bytes) = if again {
            let near = self.near_doubts(batch).map(|doubt| (doubt.rows_since, doubt.bytes_since));
            near.fold((0, 0), |most, this| (most.0.max(this.0), most.1.max(this.1)))
        } else {
            (0, 0)
        };
        let request = ReadRequest {
            from: lanes.iter().map(|read| (read.lane, read.start)).collect(),
            per_lane: batch.div_ceil(u32::try_from(lanes.len()).unwrap_or(u32::MAX)).max(1) + rows,
            max_rows: batch + rows,
            max_bytes: max_bytes + bytes,
            max_body: 0,
        };
        self.reading = Some(Reading { lanes, woken: LaneSet::EMPTY });
        Some(request)
    }

    /// The read failed; its lanes are read again.
    pub(crate) fn read_failed(&mut self) {
        self.reading = None;
    }

    /// Takes a page and answers the rows that may be acted on, in order.
    pub(crate) fn accept(&mut self, page: Page) -> Vec<ReadRow> {
        let Some(reading) = self.reading.take() else { return Vec::new() };
        self.backlog = !page.more.is_empty();
        let refused = self.resolve(&reading, &page);
        let mut last: BTreeMap<Lane, Seq> = BTreeMap::new();
        for row in &page.rows {
            let seq = last.entry(row.lane).or_insert(row.seq);
            *seq = row.seq.max(*seq);
        }
        let accepted = self.advance(&reading, refused, &last, page.more);
        self.doubt(&reading, &page, accepted);
        self.see(&reading, &page, accepted);
        let rows: Vec<ReadRow> = page
            .rows
            .into_iter()
            .filter(|row| accepted.contains(row.lane))
            .map(|row| ReadRow { cause: self.lanes[usize::from(row.lane.number())].cause, row })
            .collect();
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let bytes: u64 = rows.iter().map(|read| read.row.body.len() as u64).sum();
        for doubt in self.doubts.values_mut() {
            doubt.rows_since = doubt.rows_since.saturating_add(count);
            doubt.bytes_since = doubt.bytes_since.saturating_add(bytes);
        }
        self.finish_pass();
        rows
    }

    /// Ends the doubts whose transactions have ended. Lanes that must be read again from before
    /// this page are rewound, and answered: their part of the page is not to be used.
    fn resolve(&mut self, reading: &Reading, page: &Page) -> LaneSet {
        let mut refused = self.find_late(reading, page);
        let Some(snapshot) = page.proof.snapshot() else { return refused };
        let ended = |transaction: &u64, _: &mut Doubt| !snapshot.sees_in_progress(*transaction);
        let ended: Vec<Doubt> = self.doubts.extract_if(.., ended).map(|(_, doubt)| doubt).collect();
        for (lane, low) in ended.into_iter().flat_map(|doubt| doubt.low) {
            let covers = |read: &ReadLane| read.lane == lane && read.start <= low && !self.is_rewound(read);
            let covered = reading.lanes.iter().any(covers);
            self.lane_mut(lane).ahead = 0;
            if !covered {
                self.rewind(lane, low + 1);
                refused.insert(lane);
            }
        }
        refused
    }

    /// Lanes in which a row stands behind the cursor that no read has seen: they are rewound to before it.
    fn find_late(&mut self, reading: &Reading, page: &Page) -> LaneSet {
        let Proof::Behind(behind) = &page.proof else { return LaneSet::EMPTY };
        let mut late: BTreeMap<Lane, Seq> = BTreeMap::new();
        for (lane, seq) in behind {
            if !self.seen.get(lane).is_some_and(|seen| seen.contains(seq)) {
                let low = late.entry(*lane).or_insert(*seq);
                *low = (*low).min(*seq);
            }
        }
        late.retain(|lane, _| reading.lanes.iter().any(|read| read.lane == *lane && !self.is_rewound(read)));
        for (lane, low) in &late {
            self.rewind(*lane, *low);
        }
        late.into_keys().collect()
    }

    /// Remembers what this page has shown of each lane.
    fn see(&mut self, reading: &Reading, page: &Page, accepted: LaneSet) {
        let Proof::Behind(behind) = &page.proof else { return };
        let mut shown: BTreeMap<Lane, BTreeSet<Seq>> = BTreeMap::new();
        let rows = page.rows.iter().map(|row| (row.lane, row.seq));
        for (lane, seq) in behind.iter().copied().chain(rows) {
            shown.entry(lane).or_default().insert(seq);
        }
        for read in reading.lanes.iter().filter(|read| accepted.contains(read.lane)) {
            let mut shown = shown.remove(&read.lane).unwrap_or_default();
            if page.more.contains(read.lane) {
                let end = shown.last().copied().unwrap_or(read.start).max(read.start);
                // Beyond the page an earlier read may have been further.
                shown.extend(self.seen.get(&read.lane).into_iter().flat_map(|seen| seen.range(end + 1..)));
            }
            self.seen.insert(read.lane, shown);
        }
    }

    /// Moves the cursors of the lanes whose part of the page may be used, and answers those lanes.
    fn advance(&mut self, reading: &Reading, refused: LaneSet, last: &BTreeMap<Lane, Seq>, more: LaneSet) -> LaneSet {
        let mut accepted = LaneSet::EMPTY;
        for read in &reading.lanes {
            // Rewound while it was read: read again.
            if self.is_rewound(read) || refused.contains(read.lane) {
                continue;
            }
            accepted.insert(read.lane);
            let end = last.get(&read.lane).copied().unwrap_or(read.start);
            let has_more = more.contains(read.lane);
            let cursor = self.lane_mut(read.lane);
            // Without more the whole lane was seen, also where a smaller `seq` ended the page.
            cursor.at = if has_more { end } else { end.max(cursor.at) };
            if !has_more && !reading.woken.contains(read.lane) {
                self.dirty.remove(read.lane);
            }
            if !has_more && let Some(pass) = &mut self.pass {
                pass.remove(read.lane);
            }
        }
        accepted
    }

    fn is_rewound(&self, read: &ReadLane) -> bool {
        self.lanes[usize::from(read.lane.number())].rewinds != read.rewinds
    }

    /// Remembers the transactions in progress at this page.
    fn doubt(&mut self, reading: &Reading, page: &Page, accepted: LaneSet) {
        let Some(snapshot) = page.proof.snapshot() else { return };
        for transaction in snapshot.in_progress.iter().filter(|id| !self.own.contains(id)) {
            let doubt = self.doubts.entry(*transaction).or_default();
            for read in reading.lanes.iter().filter(|read| accepted.contains(read.lane)) {
                let low = doubt.low.entry(read.lane).or_insert(read.start);
                *low = (*low).min(read.start);
            }
        }
    }

    fn finish_pass(&mut self) {
        if self.pass.is_some_and(LaneSet::is_empty) {
            self.pass = None;
            self.passes += 1;
        }
    }

    /// Doubts so young that reading their rows again costs less than throwing a page away later.
    fn near_doubts(&self, batch: u32) -> impl Iterator<Item = &Doubt> {
        self.doubts.values().filter(move |doubt| doubt.rows_since <= batch / 2 && doubt.bytes_since <= NEAR_BYTES)
    }

    /// The dirty lanes of the next read, in turns where a backlog makes them too many.
    fn choose(&mut self) -> Vec<Lane> {
        let most = if self.backlog { LANES_PER_READ } else { usize::from(LANES) };
        let (before, after): (Vec<Lane>, Vec<Lane>) =
            self.dirty.iter().partition(|lane| lane.number() < self.next_lane);
        let chosen: Vec<Lane> = after.into_iter().chain(before).take(most).collect();
        self.next_lane = chosen.last().map_or(0, |lane| (lane.number() + 1) % LANES);
        chosen
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut LaneCursor {
        &mut self.lanes[usize::from(lane.number())]
    }
}
