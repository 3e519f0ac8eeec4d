//! A model of a database with concurrent transactions, and of targets that fail: small enough to
//! be checked by reading, and driven one step at a time.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use posthaste_core::{
    AddressTemplate, Body, Failure, Lane, LaneSet, Proof, RouteKey, Row, RowId, RowRef, Seq, Snapshot, Status,
    Timestamp,
    port::{Marked, Page, ReadRequest, Settled, Settlement, TransportCapabilities},
};
use uuid::Uuid;

use crate::{
    pump::{
        cause::Cause,
        state::{Batch, State},
    },
    route::{Route, Routes, TargetKey, TypePattern},
    settings::Settings,
};

pub(super) struct Stored {
    pub(super) row: Row,
    pub(super) transaction: u64,
    pub(super) enqueued: u64,
    pub(super) committed: Option<u64>,
}

/// The database: rows, and the transactions that are open.
#[derive(Default)]
pub(super) struct Database {
    pub(super) rows: BTreeMap<Seq, Stored>,
    pub(super) open: Vec<u64>,
    next_transaction: u64,
    next_seq: Seq,
    pub(super) down: bool,
    /// Rows of which the database takes no outcome, whatever the time.
    pub(super) refused: HashSet<RowId>,
    /// Whether pages tell of the rows behind them, as a store without snapshots does.
    pub(super) tells_behind: bool,
    /// How many lanes there are for rows without a key; 0 stands for all.
    pub(super) lanes: u8,
}

impl Database {
    pub(super) fn begin(&mut self) -> u64 {
        self.next_transaction += 1;
        self.open.push(self.next_transaction);
        self.next_transaction
    }

    pub(super) fn insert(&mut self, transaction: u64, key: Option<&str>, due: Duration, step: u64) -> RowId {
        self.next_seq += 1;
        let id = RowId::from(Uuid::from_u128(self.next_seq as u128));
        let row = Row {
            id,
            seq: self.next_seq,
            lane: key.map_or_else(|| self.lane(id), Lane::of_key),
            event_type: "order.placed".into(),
            key: key.map(Into::into),
            tenant: None,
            priority: 0,
            headers: BTreeMap::new(),
            content_type: "application/json".into(),
            body: Body::Bytes(b"{}"[..].into()),
            due_at: instant(due),
            status: Status::Pending,
            attempts: 0,
            last_error: None,
            outstanding: None,
            created_at: instant(Duration::ZERO),
            published_at: None,
            defect: None,
        };
        self.rows.insert(self.next_seq, Stored { row, transaction, enqueued: step, committed: None });
        id
    }

    fn lane(&self, id: RowId) -> Lane {
        let lane = Lane::of_id(id);
        if self.lanes == 0 { lane } else { Lane::new(lane.number() % self.lanes).expect("smaller than before") }
    }

    pub(super) fn commit(&mut self, transaction: u64, step: u64) {
        self.open.retain(|open| *open != transaction);
        for stored in self.rows.values_mut().filter(|stored| stored.transaction == transaction) {
            stored.committed = Some(step);
        }
    }

    pub(super) fn rollback(&mut self, transaction: u64) {
        self.open.retain(|open| *open != transaction);
        self.rows.retain(|_, stored| stored.transaction != transaction);
    }

    /// An operator drops a row for good.
    pub(super) fn discard(&mut self, id: RowId) {
        self.rows.retain(|_, stored| stored.row.id != id || stored.row.status == Status::Published);
    }

    /// An operator has a row delivered again; a dead letter goes to the end.
    pub(super) fn retry(&mut self, id: RowId, now: Duration, step: u64) {
        let found = self.rows.iter().find(|(_, stored)| stored.row.id == id).map(|(seq, _)| *seq);
        let Some(mut stored) = found.and_then(|seq| self.rows.remove(&seq)) else { return };
        if stored.row.status == Status::Invalid {
            self.next_seq += 1;
            self.next_transaction += 1;
            (stored.row.seq, stored.transaction) = (self.next_seq, self.next_transaction);
            (stored.enqueued, stored.committed) = (step, Some(step));
        }
        if stored.row.status != Status::Published {
            (stored.row.status, stored.row.attempts, stored.row.due_at) = (Status::Pending, 0, instant(now));
        }
        self.rows.insert(stored.row.seq, stored);
    }

    /// Gives a row a body of so many bytes.
    pub(super) fn fill(&mut self, id: RowId, size: usize) {
        if let Some(row) = self.row_mut(id) {
            row.body = Body::Bytes(vec![b'x'; size].into());
        }
    }

    pub(super) fn row(&self, id: RowId) -> &Row {
        &self.stored(id).row
    }

    pub(super) fn stored(&self, id: RowId) -> &Stored {
        self.rows.values().find(|stored| stored.row.id == id).expect("the row is there")
    }

    fn row_mut(&mut self, id: RowId) -> Option<&mut Row> {
        self.rows.values_mut().map(|stored| &mut stored.row).find(|row| row.id == id)
    }

    pub(super) fn read(&self, request: &ReadRequest, now: Duration) -> Page {
        let mut rows: Vec<Row> = Vec::new();
        let mut bytes = 0;
        let mut more = LaneSet::EMPTY;
        for rank in 0..request.per_lane as usize {
            for (lane, after) in &request.from {
                let mut lane_rows = self.undelivered(*lane, *after);
                let Some(row) = lane_rows.nth(rank) else { continue };
                let full = bytes + row.body.len() as u64 > request.max_bytes && !rows.is_empty();
                if rows.len() >= request.max_rows as usize || full {
                    // Nothing after the first row that has no room: each lane is read as a prefix.
                    bytes = u64::MAX / 2;
                    more.insert(*lane);
                    continue;
                }
                bytes += row.body.len() as u64;
                rows.push(row.clone());
                if rank + 1 == request.per_lane as usize && lane_rows.next().is_some() {
                    more.insert(*lane);
                }
            }
        }
        if self.tells_behind {
            return Page { rows, more, now: instant(now), proof: Proof::Behind(self.behind(request)) };
        }
        let xmax = self.next_transaction + 1;
        let mut in_progress = self.open.clone();
        in_progress.sort_unstable();
        let xmin = in_progress.first().copied().unwrap_or(xmax);
        Page { rows, more, now: instant(now), proof: Proof::Snapshot(Snapshot { xmin, xmax, in_progress }) }
    }

    fn behind(&self, request: &ReadRequest) -> Vec<(Lane, Seq)> {
        let at_or_behind = |(lane, cursor): &(Lane, Seq)| {
            let (lane, cursor) = (*lane, *cursor);
            self.undelivered(lane, 0).map(move |row| (lane, row.seq)).filter(move |(_, seq)| *seq <= cursor)
        };
        request.from.iter().flat_map(at_or_behind).collect()
    }

    fn undelivered(&self, lane: Lane, after: Seq) -> impl Iterator<Item = &Row> {
        self.rows
            .range(after + 1..)
            .filter(move |(_, stored)| stored.committed.is_some() && stored.row.lane == lane)
            .map(|(_, stored)| &stored.row)
            .filter(|row| row.status.is_undelivered())
    }

    pub(super) fn mark(&mut self, rows: &[RowRef]) -> Marked {
        self.next_transaction += 1;
        let mut changed = 0;
        for marked in rows {
            let same = |row: &&mut Row| row.seq == marked.seq && row.status != Status::Published;
            if let Some(row) = self.row_mut(marked.id).filter(same) {
                (row.status, row.outstanding, row.last_error) = (Status::Published, None, None);
                changed += 1;
            }
        }
        Marked { changed, transaction: Some(self.next_transaction) }
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, now: Duration) -> Settled {
        let Some(row) = self.row_mut(settlement.id()).filter(|row| row.status.is_undelivered()) else {
            return Settled::Stale;
        };
        match settlement {
            Settlement::Progress { outstanding, .. } => row.outstanding = Some(outstanding.clone()),
            Settlement::Retry { due_in, counted, error, outstanding, .. } => {
                row.status = Status::Failed;
                row.due_at = instant(now + *due_in);
                row.attempts += u32::from(*counted);
                row.last_error = Some(error.clone());
                row.outstanding = outstanding.clone().or(row.outstanding.take());
            }
            Settlement::Invalid { counted, error, outstanding, .. } => {
                row.status = Status::Invalid;
                row.attempts += u32::from(*counted);
                row.last_error = Some(error.clone());
                row.outstanding = outstanding.clone().or(row.outstanding.take());
            }
            Settlement::Note { error, .. } => row.last_error = Some(error.clone()),
        }
        Settled::Done
    }
}

fn instant(at: Duration) -> Timestamp {
    Timestamp::from_micros(i64::try_from(at.as_micros()).unwrap())
}

/// A pump over the model, one step at a time.
pub(super) struct World {
    pub(super) database: Database,
    pub(super) state: State,
    pub(super) now: Duration,
    pub(super) step: u64,
    pub(super) reads: VecDeque<(ReadRequest, Option<Page>)>,
    pub(super) batches: Vec<Batch>,
    pub(super) marks: VecDeque<(Vec<RowRef>, Option<Marked>)>,
    pub(super) settles: VecDeque<(Vec<Settlement>, Option<Vec<Settled>>)>,
    pub(super) probes: VecDeque<TargetKey>,
    /// The lanes that this process owns.
    pub(super) owned: LaneSet,
    /// The step at which each message first reached its target.
    pub(super) delivered: HashMap<(RowId, RouteKey), u64>,
    pub(super) copies: HashMap<(RowId, RouteKey), u32>,
    pub(super) down: HashSet<TargetKey>,
    pub(super) rows_read: usize,
    settings: Settings,
    routes: Arc<Routes>,
}

impl World {
    pub(super) fn new(settings: Settings, routes: &[&str]) -> World {
        let routes = Arc::new(routes_to(routes));
        let state = start(&settings, &routes);
        World {
            database: Database::default(),
            state,
            now: Duration::ZERO,
            step: 0,
            reads: VecDeque::new(),
            batches: Vec::new(),
            marks: VecDeque::new(),
            settles: VecDeque::new(),
            probes: VecDeque::new(),
            owned: LaneSet::ALL,
            delivered: HashMap::new(),
            copies: HashMap::new(),
            down: HashSet::new(),
            rows_read: 0,
            settings,
            routes,
        }
    }

    /// The process dies and another takes over: nothing in memory is left.
    pub(super) fn crash(&mut self) {
        self.state = start(&self.settings, &self.routes);
        self.owned = LaneSet::ALL;
        self.reads.clear();
        self.batches.clear();
        self.marks.clear();
        self.settles.clear();
        self.probes.clear();
        self.now += Duration::from_millis(1);
    }

    /// One row in a transaction of its own.
    pub(super) fn enqueue(&mut self, key: Option<&str>) -> RowId {
        self.step += 1;
        let transaction = self.database.begin();
        let id = self.database.insert(transaction, key, Duration::ZERO, self.step);
        self.database.commit(transaction, self.step);
        id
    }

    /// Lets the state start whatever it wants to start.
    pub(super) fn pull(&mut self) {
        self.step += 1;
        self.state.tick(self.now);
        for batch in self.state.next_batches(self.now) {
            let owned = self.owned;
            let mine = |part: &crate::pump::targets::PartRef| {
                let stored = self.database.rows.values().find(|stored| stored.row.id == part.row);
                stored.is_none_or(|stored| owned.contains(stored.row.lane))
            };
            assert!(batch.parts.iter().all(mine), "sent without owning the lane");
            self.check_order(&batch);
            self.batches.push(batch);
        }
        self.probes.extend(self.state.next_probes(self.now));
        self.reads.extend(self.state.next_read(self.now).map(|request| (request, None)));
        self.marks.extend(self.state.next_mark(self.now).map(|ids| (ids, None)));
        self.settles.extend(self.state.next_settle(self.now).map(|settlements| (settlements, None)));
    }

    /// Product promise: if B was enqueued after A of its key had committed, A is with the target,
    /// or settled as invalid, before B is sent; and one row of a key at a time.
    fn check_order(&self, batch: &Batch) {
        for part in &batch.parts {
            // A row that was discarded while it waited may go out still.
            let Some(stored) = self.database.rows.values().find(|stored| stored.row.id == part.row) else { continue };
            assert!(stored.committed.is_some(), "{} was sent before it was committed", part.row);
            let Some(key) = &stored.row.key else { continue };
            for other in self.database.rows.values().filter(|other| other.row.key.as_ref() == Some(key)) {
                let before = other.committed.is_some_and(|committed| committed < stored.enqueued);
                let there = self.delivered.contains_key(&(other.row.id, part.route.clone()));
                assert!(
                    !before || there || other.row.status == Status::Invalid,
                    "{} was sent on {} before {} of key {key}",
                    part.row,
                    part.route,
                    other.row.id
                );
            }
            let in_flight = self.batches.iter().flat_map(|batch| &batch.parts).chain(&batch.parts);
            let of_key = |id| {
                self.database.rows.values().any(|stored| stored.row.id == id && stored.row.key.as_ref() == Some(key))
            };
            let same = in_flight.filter(|other| other.route == part.route && of_key(other.row));
            assert_eq!(same.count(), 1, "two rows of key {key} in flight on {}", part.route);
        }
    }

    pub(super) fn deliver(&mut self, id: RowId, route: &RouteKey) {
        self.delivered.entry((id, route.clone())).or_insert(self.step);
        *self.copies.entry((id, route.clone())).or_insert(0) += 1;
    }

    /// Answers the `n`-th batch in flight: `answer` decides each message.
    pub(super) fn answer(&mut self, n: usize, mut answer: impl FnMut(&RowId, &RouteKey) -> Result<(), Failure>) {
        let batch = self.batches.remove(n);
        let down = self.down.contains(&batch.target);
        let mut answers = Vec::new();
        for part in &batch.parts {
            let answer = if down {
                Err(Failure::new(posthaste_core::Class::Transient, "down"))
            } else {
                answer(&part.row, &part.route)
            };
            if answer.is_ok() {
                self.deliver(part.row, &part.route);
            }
            answers.push(answer);
        }
        self.state.answered(self.now, batch, answers);
    }

    /// Reads what was asked for, without handing it over yet.
    pub(super) fn execute_read(&mut self) {
        let now = self.now;
        if let Some((request, page)) = self.reads.iter_mut().find(|(_, page)| page.is_none()) {
            let read = self.database.read(request, now);
            self.rows_read += read.rows.len();
            *page = Some(read);
        }
    }

    pub(super) fn finish_read(&mut self) {
        self.execute_read();
        let Some((_, Some(page))) = self.reads.pop_front() else { return };
        let page = if self.database.down { Err(unavailable()) } else { Ok(page) };
        self.state.page_read(self.now, page);
    }

    pub(super) fn finish_mark(&mut self) {
        let Some((ids, _)) = self.marks.pop_front() else { return };
        let answer = if self.database.down {
            Err(unavailable())
        } else if ids.iter().any(|row| self.database.refused.contains(&row.id)) {
            Err(refusal())
        } else {
            Ok(self.database.mark(&ids))
        };
        self.state.marked(self.now, answer);
    }

    pub(super) fn finish_settle(&mut self) {
        let Some((settlements, _)) = self.settles.pop_front() else { return };
        let now = self.now;
        let answer = if self.database.down {
            Err(unavailable())
        } else if settlements.iter().any(|settlement| self.database.refused.contains(&settlement.id())) {
            Err(refusal())
        } else {
            Ok(settlements.iter().map(|settlement| self.database.settle(settlement, now)).collect())
        };
        self.state.settled(now, answer);
    }

    pub(super) fn finish_probe(&mut self) {
        let Some(target) = self.probes.pop_front() else { return };
        let down = self.down.contains(&target);
        let answer = if down { Err(Failure::new(posthaste_core::Class::Transient, "down")) } else { Ok(()) };
        self.state.probed(self.now, &target, answer);
    }

    /// Runs with everything working until nothing is left to do, letting time pass as needed.
    pub(super) fn settle_down(&mut self) {
        self.down.clear();
        self.database.down = false;
        self.own(true);
        for _ in 0..20_000 {
            self.pull();
            if !self.finish_something() {
                if self.undelivered() == 0 && self.state.is_drained() {
                    return;
                }
                self.now = self.state.next_deadline().max(self.now + Duration::from_millis(1));
            }
        }
        panic!("{} rows are still undelivered: {:?}", self.undelivered(), self.state.progress());
    }

    /// Finishes one thing that was started; answers whether there was one.
    pub(super) fn finish_something(&mut self) -> bool {
        if !self.batches.is_empty() {
            self.answer(0, |_, _| Ok(()));
        } else if !self.reads.is_empty() {
            self.finish_read();
        } else if !self.marks.is_empty() {
            self.finish_mark();
        } else if !self.settles.is_empty() {
            self.finish_settle();
        } else if !self.probes.is_empty() {
            self.finish_probe();
        } else {
            return false;
        }
        true
    }

    /// Runs until nothing can happen without time passing.
    pub(super) fn run(&mut self) {
        loop {
            self.pull();
            if !self.finish_something() {
                return;
            }
        }
    }

    pub(super) fn own(&mut self, owns: bool) {
        self.own_only(if owns { LaneSet::ALL } else { LaneSet::EMPTY });
    }

    pub(super) fn own_only(&mut self, lanes: LaneSet) {
        self.owned = lanes;
        self.state.own(lanes);
    }

    pub(super) fn wake(&mut self) {
        self.state.wake(LaneSet::ALL, Cause::Wake);
    }

    pub(super) fn undelivered(&self) -> usize {
        let rows = self.database.rows.values().filter(|stored| stored.committed.is_some());
        rows.filter(|stored| stored.row.status.is_undelivered()).count()
    }
}

fn start(settings: &Settings, routes: &Arc<Routes>) -> State {
    let capabilities = TransportCapabilities { max_batch: 16, concurrency: 4, max_body: None };
    let targets = routes.all().iter().map(|route| (route.target.clone(), capabilities)).collect::<HashMap<_, _>>();
    let mut state = State::new(settings.clone(), Arc::clone(routes), targets, 7);
    state.own(LaneSet::ALL);
    state
}

/// One route to a target of its own for each name.
pub(super) fn routes_to(names: &[&str]) -> Routes {
    let routes = names.iter().map(|name| Route {
        key: RouteKey::from(*name),
        pattern: "*".parse::<TypePattern>().unwrap(),
        when: None,
        payload: None,
        target: TargetKey::from(*name),
        address: AddressTemplate::default(),
    });
    Routes::new(routes.collect(), Vec::new(), "/posthaste/test".into(), 1 << 20).unwrap()
}

fn refusal() -> posthaste_core::Error {
    posthaste_core::Error::new(posthaste_core::ErrorKind::Unknown, "a trigger of the user's refuses this row")
}

fn unavailable() -> posthaste_core::Error {
    posthaste_core::Error::new(posthaste_core::ErrorKind::Unavailable, "the model is down")
}
