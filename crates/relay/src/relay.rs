//! A relay: the pumps of one or more outboxes, what they hold, and how they stop.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_core::{
    Backoff, LaneSet, OutboxName,
    port::{Held, Store, Target, Transport, Waker},
};
use tokio::{sync::watch, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    health::{Counts, Health, Observer, Part},
    local_waker::LocalWaker,
    pulse::Pulse,
    pump::{Progress, Pump, Report, Wires},
    retention,
    route::{Routes, TargetKey},
    settings::Settings,
    telemetry::{self, Telemetry},
};

/// Between two looks at the counts of an outbox, which feed the metrics.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// How many times as long as the last look took it is at least until the next: a large outbox is not
/// counted all the time.
const STATUS_REST: u32 = 50;
/// Tries after which the wait for another relay's outbox grows no longer: 400 ms.
const TAKE_OVER_TRIES: u32 = 3;
/// How long releasing an outbox or closing a target may take at a stop.
const FAREWELL: Duration = Duration::from_secs(3);

/// Why a relay can't be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// There is nothing to pump.
    #[error("a relay needs at least one outbox")]
    NoOutbox,
    /// A route leads to a target that does not exist.
    #[error("route {route} leads to target {target}, which does not exist")]
    NoTarget {
        /// The route.
        route: String,
        /// The target.
        target: TargetKey,
    },
}

/// An outbox to pump.
struct Source {
    outbox: OutboxName,
    store: Arc<dyn Store>,
    routes: Arc<Routes>,
    settings: Settings,
}

/// Puts a relay together.
pub struct RelayBuilder {
    name: String,
    outboxes: Vec<Source>,
    targets: HashMap<TargetKey, Target>,
}

impl RelayBuilder {
    /// Adds an outbox to pump.
    #[must_use]
    pub fn outbox(mut self, name: OutboxName, store: Arc<dyn Store>, routes: Arc<Routes>, settings: Settings) -> Self {
        self.outboxes.push(Source { outbox: name, store, routes, settings });
        self
    }

    /// Adds a target.
    #[must_use]
    pub fn target(mut self, key: TargetKey, target: Target) -> Self {
        self.targets.insert(key, target);
        self
    }

    /// Checks that everything fits together. Connects to nothing.
    ///
    /// # Errors
    /// No outbox, or a route to a target that does not exist.
    pub fn build(self) -> Result<Relay, BuildError> {
        if self.outboxes.is_empty() {
            return Err(BuildError::NoOutbox);
        }
        for route in self.outboxes.iter().flat_map(|source| source.routes.all()) {
            if !self.targets.contains_key(&route.target) {
                return Err(BuildError::NoTarget { route: route.key.to_string(), target: route.target.clone() });
            }
        }
        let transports = self.targets.into_iter().map(|(key, target)| (key, target.transport)).collect();
        Ok(Relay { name: self.name, outboxes: self.outboxes, transports })
    }
}

/// A relay, ready to run.
pub struct Relay {
    name: String,
    outboxes: Vec<Source>,
    transports: HashMap<TargetKey, Arc<dyn Transport>>,
}

/// A running relay. Dropping it stops it without a drain: rows that were sent and not marked are
/// sent again by the next relay.
pub struct RelayHandle {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    transports: HashMap<TargetKey, Arc<dyn Transport>>,
    parts: Arc<[Part]>,
}

impl Relay {
    /// Starts to put a relay together. `name` is shown to operators as who holds an outbox.
    #[must_use]
    pub fn builder(name: impl Into<String>) -> RelayBuilder {
        RelayBuilder { name: name.into(), outboxes: Vec::new(), targets: HashMap::new() }
    }

    /// Starts it. Connects by and by, and for as long as it takes: a database or a broker that is
    /// down delays events, never the start.
    #[must_use]
    pub fn start(self) -> RelayHandle {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut parts = Vec::new();
        for source in self.outboxes {
            parts.push(start_outbox(&mut tasks, source, &self.transports, &self.name, &stop));
        }
        telemetry::targets(self.transports.keys());
        RelayHandle { stop, tasks, transports: self.transports, parts: parts.into() }
    }
}

fn start_outbox(
    tasks: &mut JoinSet<()>,
    source: Source,
    transports: &HashMap<TargetKey, Arc<dyn Transport>>,
    name: &str,
    stop: &CancellationToken,
) -> Part {
    let Source { outbox, store, routes, settings } = source;
    let retention = settings.retention;
    let pulse = Arc::new(Pulse::new(settings.interval));
    let transports = transports.clone();
    let pump = Pump { store: Arc::clone(&store) as _, routes, transports, seed: rand::random(), settings };
    let (owned_tx, owned) = watch::channel(LaneSet::EMPTY);
    let (progress_tx, progress) = watch::channel(Progress::default());
    let (listening_tx, listening) = watch::channel(true);
    let (counts_tx, counts) = watch::channel(None);
    let (pauses_tx, pauses) = watch::channel(BTreeMap::new());
    let waker = Arc::new(LocalWaker::default());
    let telemetry = Arc::new(Telemetry::new(&outbox));
    let wires = Wires {
        owned: Arc::new({
            let owned = owned.clone();
            move || *owned.borrow()
        }),
        owned_changed: owned.clone(),
        stop: stop.clone(),
        waker: Arc::clone(&waker),
        pulse: Arc::clone(&pulse),
        progress: progress_tx,
        listening: listening_tx,
        observe: Arc::new({
            let telemetry = Arc::clone(&telemetry);
            move |report: Report| {
                telemetry.observe(&report);
                note_pauses(&pauses_tx, report);
            }
        }),
    };
    let pumped = CancellationToken::new();
    // A pump that panics must not go on holding the outbox: another relay can have it then.
    let done = pumped.clone().drop_guard();
    tasks.spawn(async move {
        let _done = done;
        pump.run(wires).await;
    });
    tasks.spawn(hold(Arc::clone(&store), outbox.clone(), name.to_owned(), owned_tx, stop.clone(), pumped));
    tasks.spawn(watch_status(Arc::clone(&store), outbox.clone(), counts_tx, stop.clone()));
    tasks.spawn(watch_progress(telemetry, progress.clone(), owned, stop.clone()));
    if !retention.is_zero() {
        tasks.spawn(retention::run(store as _, outbox.clone(), retention, stop.clone()));
    }
    Part { outbox, waker, pulse, progress, listening, counts, pauses }
}

/// Keeps why each target was paused.
fn note_pauses(pauses: &watch::Sender<BTreeMap<TargetKey, String>>, report: Report) {
    match report {
        Report::Paused { target, detail } => pauses.send_modify(|pauses| drop(pauses.insert(target, detail))),
        Report::Resumed { target } => pauses.send_modify(|pauses| drop(pauses.remove(&target))),
        _ => {}
    }
}

/// Holds the outbox while the pump runs, and takes it again whenever it is lost.
async fn hold(
    store: Arc<dyn Store>,
    outbox: OutboxName,
    name: String,
    owned: watch::Sender<LaneSet>,
    stop: CancellationToken,
    pumped: CancellationToken,
) {
    let mut failures = 0_u32;
    while !stop.is_cancelled() {
        let held = tokio::select! {
            held = store.try_hold(&name) => held,
            () = stop.cancelled() => break,
        };
        match held {
            Ok(Some(held)) => {
                failures = 0;
                tracing::info!(%outbox, %name, "holds the outbox");
                owned.send_replace(LaneSet::ALL);
                keep(held, &outbox, &owned, &pumped).await;
                continue;
            }
            Ok(None) => {
                if failures == 0 {
                    tracing::warn!(%outbox, "another relay holds the outbox; waiting for it");
                }
                failures = failures.saturating_add(1).min(TAKE_OVER_TRIES);
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(%outbox, "the outbox can't be held: {error}");
            }
        }
        tokio::select! {
            () = sleep(Backoff::STORE.after(failures)) => {}
            () = stop.cancelled() => break,
        }
    }
    pumped.cancelled().await;
}

/// Keeps the outbox until it is lost or the pump has ended.
async fn keep(
    mut held: Box<dyn Held>,
    outbox: &OutboxName,
    owned: &watch::Sender<LaneSet>,
    pumped: &CancellationToken,
) {
    let lost = tokio::select! {
        why = held.lost() => Some(why),
        () = pumped.cancelled() => None,
    };
    owned.send_replace(LaneSet::EMPTY);
    if let Some(why) = lost {
        tracing::warn!(%outbox, "lost the outbox: {why}");
    }
    // Time-limited: a database that does not answer must not hold up a stop.
    let _ = tokio::time::timeout(FAREWELL, held.release()).await;
}

/// Reads the counts of an outbox, for the metrics and for observers.
async fn watch_status(
    store: Arc<dyn Store>,
    outbox: OutboxName,
    counts: watch::Sender<Counts>,
    stop: CancellationToken,
) {
    loop {
        let asked = Instant::now();
        let status = tokio::select! {
            status = store.status() => status,
            () = stop.cancelled() => return,
        };
        match &status {
            Ok(status) => telemetry::outbox_status(&outbox, status),
            Err(_) => telemetry::outbox_unreadable(&outbox),
        }
        counts.send_replace(Some(status.map_err(|error| error.to_string())));
        let rest = STATUS_EVERY.max(asked.elapsed() * STATUS_REST);
        tokio::select! {
            () = sleep(rest) => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn watch_progress(
    telemetry: Arc<Telemetry>,
    mut progress: watch::Receiver<Progress>,
    owned: watch::Receiver<LaneSet>,
    stop: CancellationToken,
) {
    loop {
        telemetry.progress(&progress.borrow_and_update().clone(), owned.borrow().len());
        tokio::select! {
            changed = progress.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

impl RelayHandle {
    /// What wakes the pump of an outbox of this process after a commit.
    #[must_use]
    pub fn waker(&self, outbox: &OutboxName) -> Option<Arc<dyn Waker>> {
        let part = self.parts.iter().find(|part| part.outbox == *outbox)?;
        Some(Arc::clone(&part.waker) as _)
    }

    /// How it is doing now.
    #[must_use]
    pub fn health(&self) -> Health {
        self.observer().health()
    }

    /// What sees how it is doing, and outlives it.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer(Arc::clone(&self.parts))
    }

    /// The progress of each outbox, to wait on.
    #[must_use]
    pub fn progress(&self) -> Vec<(OutboxName, watch::Receiver<Progress>)> {
        self.parts.iter().map(|part| (part.outbox.clone(), part.progress.clone())).collect()
    }

    /// Stops reading, waits for what is in flight at most `settings.drain`, records what is known,
    /// gives the outboxes back and closes the targets. A handle that is dropped while this runs
    /// stops at once.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        for transport in self.transports.values() {
            let _ = tokio::time::timeout(FAREWELL, transport.close()).await;
        }
    }
}
