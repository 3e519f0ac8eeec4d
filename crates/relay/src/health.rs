//! How a running relay is doing: read from what its tasks last said, never from a database.

use std::{collections::BTreeMap, sync::Arc};

use posthaste_core::{OutboxName, port::OutboxStatus};
use tokio::sync::watch;

use crate::{local_waker::LocalWaker, pulse::Pulse, pump::Progress, route::TargetKey};

/// How a relay is doing.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Each outbox.
    pub outboxes: Vec<OutboxHealth>,
}

impl Health {
    /// Why events may not be going out; empty when all is well.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        self.outboxes.iter().flat_map(OutboxHealth::reasons).collect()
    }

    /// Whether every outbox is being recovered from the database by this relay.
    #[must_use]
    pub fn recovers(&self) -> bool {
        self.outboxes.iter().all(|outbox| outbox.progress.owns_lanes)
    }
}

/// How one outbox is doing.
#[derive(Clone, Debug)]
pub struct OutboxHealth {
    /// The outbox.
    pub outbox: OutboxName,
    /// How far its pump is.
    pub progress: Progress,
    /// Whether the store's wake-ups work; without them the interval decides.
    pub listening: bool,
    /// Its counts, as they were read within the last seconds; absent if they could not be read.
    pub status: Option<OutboxStatus>,
    /// Why its status could not be read, if it could not.
    pub unreadable: Option<String>,
    /// Why targets that are paused were paused.
    pub pauses: BTreeMap<TargetKey, String>,
}

impl OutboxHealth {
    fn reasons(&self) -> Vec<String> {
        let outbox = &self.outbox;
        let mut reasons = Vec::new();
        if !self.progress.owns_lanes {
            reasons.push(format!("{outbox}: another relay holds it, or the database can't be reached"));
        }
        if !self.listening {
            reasons.push(format!("{outbox}: the wake-up connection is down"));
        }
        reasons.extend(self.unreadable.iter().map(|why| format!("{outbox}: its status can't be read: {why}")));
        for target in &self.progress.paused {
            let why = self.pauses.get(target).map(|why| format!(": {why}")).unwrap_or_default();
            reasons.push(format!("{outbox}: target {target} is paused{why}"));
        }
        reasons
    }
}

/// Sees how a relay is doing, for as long as one likes: it keeps no relay running and holds up no
/// stop.
#[derive(Clone)]
pub struct Observer(pub(crate) Arc<[Part]>);

/// One outbox of a running relay, seen from outside.
pub(crate) struct Part {
    pub(crate) outbox: OutboxName,
    pub(crate) waker: Arc<LocalWaker>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) listening: watch::Receiver<bool>,
    pub(crate) counts: watch::Receiver<Counts>,
    pub(crate) pauses: watch::Receiver<BTreeMap<TargetKey, String>>,
}

/// The last look at the counts of an outbox; `None` before the first.
pub(crate) type Counts = Option<Result<OutboxStatus, String>>;

impl Observer {
    /// Whether every pump still runs, and comes round.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.iter().all(|part| part.progress.has_changed().is_ok() && part.pulse.is_felt())
    }

    /// How the relay is doing now.
    #[must_use]
    pub fn health(&self) -> Health {
        Health { outboxes: self.0.iter().map(Part::health).collect() }
    }
}

impl Part {
    fn health(&self) -> OutboxHealth {
        let (status, unreadable) = match self.counts.borrow().clone() {
            None => (None, None),
            Some(Ok(status)) => (Some(status), None),
            Some(Err(why)) => (None, Some(why)),
        };
        OutboxHealth {
            outbox: self.outbox.clone(),
            progress: self.progress.borrow().clone(),
            listening: *self.listening.borrow(),
            status,
            unreadable,
            pauses: self.pauses.borrow().clone(),
        }
    }
}
