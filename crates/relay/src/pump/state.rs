//! The pump as a pure state machine: what happened goes in, what to do next comes out.
//!
//! Time is a duration since the pump's start, given with every input. Nothing here waits or does
//! I/O; [`super::run`] carries out what `next_*` ask for and brings back what came of it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use posthaste_core::{
    Backoff, Lane, LaneSet, Message, RouteKey, Row, RowId, RowRef, Seq,
    breaker::Breaker,
    port::{Armed, Page, ReadRequest, Settlement, TransportCapabilities},
};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

use super::{
    cause::Cause,
    cursors::{Cursors, ReadRow},
    gates::Gates,
    held::Held,
    outcomes::Outcomes,
    report::Report,
    room::Room,
    targets::{PartRef, TargetState},
    verdict::Verdict,
};
use crate::{
    route::{Routes, TargetKey},
    settings::Settings,
};

/// Most bytes of bodies in one read.
const PAGE_BYTES: u64 = 16 << 20;
/// Rows passed over in a full pass above which the next one is put off.
const CHEAP_PASS: u64 = 1_000;
/// Intervals after which a full pass is made whatever it costs.
const DEAR_PASS_INTERVALS: u32 = 12;

/// A row under way.
pub(super) struct Work {
    pub(super) row: Arc<Row>,
    pub(super) cause: Cause,
    pub(super) key: Option<Arc<str>>,
    pub(super) parts: Vec<Part>,
    /// Routes in the row's `outstanding` that this process does not know.
    pub(super) unknown: Vec<RouteKey>,
}

/// One route of a row under way.
pub(super) struct Part {
    pub(super) target: TargetKey,
    pub(super) message: Message,
    pub(super) state: PartState,
    pub(super) failures: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PartState {
    /// Behind another row of its key.
    Waiting,
    /// In its target's queue.
    Queued,
    /// With its transport.
    InFlight,
    /// The target has it.
    Confirmed,
    /// It failed, and is not tried again from memory.
    Failed(Verdict),
    /// To be read again later.
    Passed,
}

impl PartState {
    /// Whether the part is held for its target.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, PartState::Waiting | PartState::Queued | PartState::InFlight)
    }
}

/// A batch to publish.
pub(crate) struct Batch {
    pub(crate) target: TargetKey,
    pub(crate) parts: Vec<PartRef>,
    pub(crate) messages: Vec<Message>,
}

/// How far a pump has come, for those who wait for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Full reads of the outbox completed.
    pub passes: u64,
    /// Every lane has been read to its end, and nothing read is under way.
    pub idle: bool,
    /// Publications in flight.
    pub in_flight: usize,
    /// Rows whose outcome is not in the database yet.
    pub unmarked: usize,
    /// Rows that are not due.
    pub held: usize,
    /// Rows left alone because no route of this relay takes them, by type, in the last full pass.
    pub deferred: BTreeMap<String, u64>,
    /// Targets that are paused.
    pub paused: Vec<TargetKey>,
    /// Whether this process owns lanes.
    pub owns_lanes: bool,
    /// Lanes that are owned no more, of which something is in flight or not recorded yet.
    pub draining: LaneSet,
}

pub(crate) struct State {
    pub(super) settings: Settings,
    pub(super) routes: Arc<Routes>,
    pub(super) targets: BTreeMap<TargetKey, TargetState>,
    pub(super) route_breakers: BTreeMap<RouteKey, Breaker>,
    pub(super) cursors: Cursors,
    pub(super) work: HashMap<RowId, Work>,
    pub(super) gates: Gates,
    pub(super) held: Held,
    pub(super) outcomes: Outcomes,
    /// Rows whose outcome was recorded while a read was under way: it may have seen them as they
    /// were before.
    pub(super) recorded: HashSet<RowId>,
    /// Of each route the first place in each lane that was passed over while it was paused.
    pub(super) passed: HashMap<RouteKey, BTreeMap<Lane, Seq>>,
    /// Of each route from where each lane is being read again since its target has room again.
    pub(super) caught_up_from: HashMap<RouteKey, BTreeMap<Lane, Seq>>,
    /// Rows in a row of each lane that were passed over behind a key under way.
    pub(super) crowds: BTreeMap<Lane, u32>,
    pub(super) render_failures: HashMap<RowId, u32>,
    /// Routes that have refused a row for good while others have still to get it: it becomes invalid
    /// once they have, and is not sent to these again.
    pub(super) dead: HashMap<RowId, BTreeMap<RouteKey, Verdict>>,
    pub(super) deferred: BTreeMap<String, u64>,
    pub(super) noted: u64,
    pub(super) bytes: usize,
    pub(super) in_flight: usize,
    pub(super) reports: Vec<Report>,
    pub(super) random: SmallRng,
    /// The time of the input that is being handled.
    pub(super) clock: Duration,
    owned: LaneSet,
    /// Lanes that were lost with something under way.
    draining: LaneSet,
    stopping: bool,
    reading: bool,
    read_failures: u32,
    read_not_before: Duration,
    next_tick: Duration,
    ticks_since_pass: u32,
    passed_over: u64,
    last_pass_cost: u64,
}

impl State {
    pub(crate) fn new(
        settings: Settings,
        routes: Arc<Routes>,
        targets: impl IntoIterator<Item = (TargetKey, TransportCapabilities)>,
        seed: u64,
    ) -> State {
        let bounds = settings.bounds;
        let targets: Vec<_> = targets.into_iter().collect();
        let room = || match targets.len() {
            0 | 1 => Room::unlimited(),
            many => Room::new(bounds.in_flight * 2, bounds.bytes / 2 / many),
        };
        let target = |(key, capabilities): &(TargetKey, TransportCapabilities)| {
            (key.clone(), TargetState::new(*capabilities, bounds.in_flight, room()))
        };
        State {
            targets: targets.iter().map(target).collect(),
            route_breakers: routes
                .keys()
                .map(|key| (key.clone(), Breaker::new(Breaker::THRESHOLD, Backoff::TARGET)))
                .collect(),
            cursors: Cursors::new(),
            work: HashMap::new(),
            gates: Gates::new(bounds.waiting_per_key),
            held: Held::new(bounds.held),
            outcomes: Outcomes::new(),
            recorded: HashSet::new(),
            passed: HashMap::new(),
            caught_up_from: HashMap::new(),
            crowds: BTreeMap::new(),
            render_failures: HashMap::new(),
            dead: HashMap::new(),
            deferred: BTreeMap::new(),
            noted: 0,
            bytes: 0,
            in_flight: 0,
            reports: Vec::new(),
            random: SmallRng::seed_from_u64(seed),
            clock: Duration::ZERO,
            owned: LaneSet::EMPTY,
            draining: LaneSet::EMPTY,
            stopping: false,
            reading: false,
            read_failures: 0,
            read_not_before: Duration::ZERO,
            next_tick: Duration::ZERO,
            ticks_since_pass: 0,
            passed_over: 0,
            last_pass_cost: 0,
            settings,
            routes,
        }
    }

    /// Which lanes this process owns from now on. What is lost is forgotten, except what is in
    /// flight; what is gained is read from its start.
    pub(crate) fn own(&mut self, owned: LaneSet) {
        if owned == self.owned {
            return;
        }
        let lost = self.owned.difference(owned);
        let gained = owned.difference(self.owned);
        self.owned = owned;
        self.draining = self.draining.union(lost).difference(owned);
        if !lost.is_empty() {
            self.cursors.forget(lost);
            self.dead.clear();
            self.forget(lost);
        }
        if !gained.is_empty() {
            self.forget_shut(gained);
            self.cursors.rewind_all(gained, Cause::Interval);
        }
    }

    /// Nothing new is read or sent from now on.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        self.forget(LaneSet::ALL);
    }

    /// Rows may have been written.
    pub(crate) fn wake(&mut self, lanes: LaneSet, cause: Cause) {
        if !self.settings.defer || cause == Cause::Interval {
            self.cursors.wake(lanes.intersection(self.owned), cause);
        }
    }

    /// Rows behind the cursors may have changed.
    pub(crate) fn rewind(&mut self) {
        // An operator's retry is for every route.
        self.dead.clear();
        self.begin_pass();
    }

    /// Does what is due of itself: the interval's full pass, rows that have become due.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.clock = now;
        for held in self.held.take_due(now) {
            self.release_held(&held);
        }
        for (lane, seq) in self.held.take_due_lanes(now) {
            self.cursors.rewind(lane, seq);
        }
        self.admit_routes(now);
        self.relieve();
        if now >= self.next_tick {
            self.next_tick = now + self.settings.interval;
            self.ticks_since_pass = self.ticks_since_pass.saturating_add(1);
            let cheap = self.last_pass_cost <= CHEAP_PASS && self.passed_over <= CHEAP_PASS;
            // One that takes longer than the interval must be able to get to the end.
            if (cheap && !self.cursors.is_passing()) || self.ticks_since_pass >= DEAR_PASS_INTERVALS {
                self.begin_pass();
            } else {
                self.cursors.wake(self.owned, Cause::Interval);
            }
        }
    }

    fn begin_pass(&mut self) {
        self.ticks_since_pass = 0;
        self.last_pass_cost = std::mem::take(&mut self.passed_over);
        self.deferred.clear();
        self.forget_shut(self.owned);
        self.cursors.rewind_all(self.owned, Cause::Interval);
    }

    /// What keeps keys shut in lanes that are read from their start now: rows that are not due are met
    /// again, before anything later of their keys, unless they are gone.
    fn forget_shut(&mut self, lanes: LaneSet) {
        self.held.forget(lanes);
        let known = |id| self.work.contains_key(&id) || self.outcomes.contains(id);
        for (gate, waiting) in self.gates.abandon(lanes, known) {
            for row in waiting {
                self.pass(&PartRef { row, route: gate.route.clone() });
                self.conclude(row);
            }
        }
    }

    pub(super) fn owns(&self, lane: Lane) -> bool {
        self.owned.contains(lane)
    }

    /// What to read now, if anything: there are rows to be expected, and room for them.
    pub(crate) fn next_read(&mut self, now: Duration) -> Option<ReadRequest> {
        let full = self.work.len() >= self.settings.bounds.in_flight * 2 * self.targets.len().max(1)
            || self.outcomes.len() >= self.settings.bounds.unmarked
            || (self.bytes > self.settings.bounds.bytes / 2 && !self.work.is_empty());
        if self.stopping || self.reading || full || now < self.read_not_before || !self.any_usable() {
            return None;
        }
        let free = self.settings.bounds.bytes.saturating_sub(self.bytes) as u64;
        let mut request = self.cursors.request(self.owned, self.settings.batch, free.min(PAGE_BYTES))?;
        request.max_body = self.settings.max_body;
        self.reading = true;
        Some(request)
    }

    /// A read ended.
    pub(crate) fn page_read(&mut self, now: Duration, page: posthaste_core::Result<Page>) {
        self.clock = now;
        self.reading = false;
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                self.cursors.read_failed();
                self.recorded.clear();
                self.read_failures = self.read_failures.saturating_add(1);
                self.read_not_before = now + Backoff::STORE.after(self.read_failures);
                self.reports.push(Report::StoreFailed { detail: error.to_string() });
                return;
            }
        };
        self.read_failures = 0;
        let database_now = page.now;
        let rows = self.cursors.accept(page);
        let recorded = std::mem::take(&mut self.recorded);
        if self.stopping {
            return;
        }
        // A lane may have been lost while it was read.
        let ours = |read: &ReadRow| self.owned.contains(read.row.lane) && !recorded.contains(&read.row.id);
        let rows: Vec<ReadRow> = rows.into_iter().filter(ours).collect();
        for read in rows {
            self.admit(now, database_now, read);
        }
    }

    /// The batches to publish now.
    pub(crate) fn next_batches(&mut self, now: Duration) -> Vec<Batch> {
        let mut batches = Vec::new();
        if self.stopping || self.outcomes.len() >= self.settings.bounds.unmarked {
            return batches;
        }
        let keys: Vec<TargetKey> = self.targets.keys().cloned().collect();
        for key in keys {
            while let Some(batch) = self.next_batch(now, &key) {
                batches.push(batch);
            }
        }
        batches
    }

    fn next_batch(&mut self, now: Duration, key: &TargetKey) -> Option<Batch> {
        let parts = self.targets.get_mut(key)?.take_batch(now);
        if parts.is_empty() {
            return None;
        }
        let mut messages = Vec::with_capacity(parts.len());
        for part in &parts {
            let part = self.part_mut(part)?;
            part.state = PartState::InFlight;
            messages.push(part.message.clone());
        }
        self.in_flight += parts.len();
        Some(Batch { target: key.clone(), parts, messages })
    }

    /// Rows to mark now.
    pub(crate) fn next_mark(&mut self, now: Duration) -> Option<Vec<RowRef>> {
        let flush = self.stopping && self.in_flight == 0;
        self.outcomes.next_mark(now, self.settings.mark_batch, self.settings.mark_delay, flush)
    }

    /// Outcomes to record now.
    pub(crate) fn next_settle(&mut self, now: Duration) -> Option<Vec<Settlement>> {
        self.outcomes.next_settle(now)
    }

    /// Targets to probe now.
    pub(crate) fn next_probes(&mut self, now: Duration) -> Vec<TargetKey> {
        if self.stopping {
            return Vec::new();
        }
        let due = |(key, target): (&TargetKey, &mut TargetState)| target.breaker.try_probe(now).then(|| key.clone());
        self.targets.iter_mut().filter_map(due).collect()
    }

    /// When to call [`State::tick`] at the latest.
    pub(crate) fn next_deadline(&self) -> Duration {
        let targets = self.targets.values().filter_map(TargetState::next_deadline);
        let routes = self.route_breakers.values().filter_map(|breaker| match breaker.state() {
            posthaste_core::breaker::State::Open { until } => Some(until),
            _ => None,
        });
        let read = (self.read_failures > 0).then_some(self.read_not_before);
        let held = self.held.next_due();
        let marks = self.outcomes.next_deadline(self.settings.mark_delay);
        // What is due already and was not done waits for something else than time.
        let waits = targets.chain(routes).chain(read).chain(held).chain(marks).filter(|at| *at > self.clock);
        waits.fold(self.next_tick, Duration::min)
    }

    /// Whether everything that was begun has ended and been recorded.
    pub(crate) fn is_drained(&self) -> bool {
        self.in_flight == 0 && self.outcomes.is_empty()
    }

    /// Whether reading more is pointless until something happens.
    pub(crate) fn is_idle(&self) -> bool {
        self.cursors.is_idle()
    }

    /// Whether the last read left rows behind.
    pub(crate) fn has_backlog(&self) -> bool {
        self.cursors.has_backlog()
    }

    /// Lanes that were lost and have something under way still.
    fn still_draining(&mut self) -> LaneSet {
        if !self.draining.is_empty() {
            let work = self.work.values().map(|work| work.row.lane);
            let under_way: LaneSet = work.chain(self.outcomes.lanes()).collect();
            self.draining = self.draining.intersection(under_way);
        }
        self.draining
    }

    pub(crate) fn progress(&mut self) -> Progress {
        Progress {
            passes: self.cursors.passes(),
            idle: self.cursors.is_idle() && self.work.is_empty() && self.outcomes.is_empty(),
            in_flight: self.in_flight,
            unmarked: self.outcomes.len(),
            held: self.held.len() + usize::from(self.held.has_overflow()),
            deferred: self.deferred.clone(),
            paused: self.targets.iter().filter(|(_, t)| !t.breaker.is_closed()).map(|(key, _)| key.clone()).collect(),
            owns_lanes: !self.owned.is_empty(),
            draining: self.still_draining(),
        }
    }

    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// The store's answer to arming: once armed, everything is read once more.
    pub(crate) fn armed(&mut self, armed: Armed) {
        match armed {
            Armed::Yes => self.wake(self.owned, Cause::Wake),
            Armed::WriterUnderWay => {}
        }
    }

    /// Remembers rows whose outcome has just been recorded, while a read is under way.
    pub(super) fn record(&mut self, ids: impl IntoIterator<Item = RowId>) {
        if self.reading {
            self.recorded.extend(ids);
        }
    }

    pub(super) fn part_mut(&mut self, part: &PartRef) -> Option<&mut Part> {
        let work = self.work.get_mut(&part.row)?;
        work.parts.iter_mut().find(|candidate| candidate.message.route == part.route)
    }

    pub(super) fn unit(&mut self) -> f64 {
        self.random.random()
    }

    pub(super) fn count_passed_over(&mut self) {
        self.passed_over += 1;
    }

    pub(super) fn is_usable(&self, target: &TargetKey, route: &RouteKey) -> bool {
        self.targets.get(target).is_some_and(|target| target.breaker.is_closed())
            && self.route_breakers.get(route).is_none_or(Breaker::is_closed)
    }

    /// Whether rows that are read may go there.
    pub(super) fn takes_more(&self, target: &TargetKey, route: &RouteKey) -> bool {
        self.is_usable(target, route) && self.targets.get(target).is_some_and(|target| !target.room.is_full())
    }

    fn any_usable(&self) -> bool {
        let usable = |target: &TargetState| target.breaker.is_closed() && !target.room.is_full();
        self.targets.is_empty() || self.targets.values().any(usable)
    }
}
