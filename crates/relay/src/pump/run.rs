//! Carries out what the pump's state asks for: one task that owns every read, publication and
//! write it started.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use posthaste_core::{
    Failure, LaneSet, Message,
    port::{Armed, Lanes, Marked, Page, Settled, Transport, Wakeups},
};
use tokio::{
    sync::watch,
    task::{Id, JoinSet},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    cause::Cause,
    doze::{Doze, Move},
    report::Report,
    state::{Batch, Progress, State},
};
use crate::{
    local_waker::LocalWaker,
    pulse::Pulse,
    route::{Routes, TargetKey},
    settings::Settings,
};

/// Between two tries while nothing can be read or sent for want of room.
const TARGET_PROBE: Duration = Duration::from_secs(5);
/// How much longer than its deadline a transport may take before its answer is taken as none.
const GRACE: Duration = Duration::from_secs(2);
/// How long a stop tries to record what is known after the drain.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// What a pump works on.
pub(crate) struct Pump {
    pub(crate) store: Arc<dyn Lanes>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) transports: HashMap<TargetKey, Arc<dyn Transport>>,
    pub(crate) settings: Settings,
    pub(crate) seed: u64,
}

/// How a pump is told things, and tells them.
pub(crate) struct Wires {
    /// The lanes that are ours at this moment; asked before every read, at its end, and before every
    /// publication.
    pub(crate) owned: Arc<dyn Fn() -> LaneSet + Send + Sync>,
    /// Says when to ask again at once.
    pub(crate) owned_changed: watch::Receiver<LaneSet>,
    pub(crate) stop: CancellationToken,
    pub(crate) waker: Arc<LocalWaker>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) listening: watch::Sender<bool>,
    pub(crate) observe: Arc<dyn Fn(Report) + Send + Sync>,
}

enum Effect {
    Page(posthaste_core::Result<Page>),
    Answers(Vec<Result<(), Failure>>),
    Probed(TargetKey, Result<(), Failure>),
    Marked(posthaste_core::Result<Marked>),
    Settled(posthaste_core::Result<Vec<Settled>>),
    Armed(posthaste_core::Result<Armed>),
    Disarmed(posthaste_core::Result<()>),
}

struct Running {
    pump: Pump,
    wires: Wires,
    state: State,
    doze: Doze,
    wakeups: Arc<dyn Wakeups>,
    tasks: JoinSet<Effect>,
    batches: HashMap<Id, Batch>,
    started: Instant,
    drain_until: Option<Instant>,
}

impl Pump {
    /// Pumps until told to stop, then drains: publications in flight get `settings.drain`, what is
    /// known by then is recorded. Dropping it instead leaves rows unmarked that may have been sent.
    pub(crate) async fn run(self, wires: Wires) {
        let capabilities =
            self.transports.iter().map(|(key, transport)| (key.clone(), transport.capabilities())).collect::<Vec<_>>();
        let state = State::new(self.settings.clone(), Arc::clone(&self.routes), capabilities, self.seed);
        let wakeups = self.store.wakeups();
        let running = Running {
            state,
            wakeups,
            doze: Doze::new(),
            tasks: JoinSet::new(),
            batches: HashMap::new(),
            started: Instant::now(),
            drain_until: None,
            pump: self,
            wires,
        };
        running.run().await;
    }
}

impl Running {
    async fn run(mut self) {
        loop {
            let now = self.started.elapsed();
            self.wires.pulse.beat();
            self.own();
            self.state.tick(now);
            self.start_effects(now);
            self.tell();
            if self.is_over() {
                break;
            }
            self.wait().await;
        }
        self.tasks.shutdown().await;
    }

    fn own(&mut self) {
        if self.drain_until.is_none() {
            self.state.own((self.wires.owned)());
        }
    }

    fn is_over(&self) -> bool {
        let Some(until) = self.drain_until else { return false };
        self.state.is_drained() || Instant::now() >= until + LAST_WRITES
    }

    /// Waits until something happens, and takes it in.
    async fn wait(&mut self) {
        let idle = self.state.is_idle();
        let now = self.started.elapsed();
        let deadline = self.state.next_deadline().max(now);
        let deadline = self.doze.next_deadline(idle).map_or(deadline, |at| deadline.min(at.max(now)));
        let mut until = self.started + deadline;
        if let Some(drain) = self.drain_until {
            until = until.min(if self.batches.is_empty() { drain + LAST_WRITES } else { drain });
        }
        let stopping = self.drain_until.is_some();
        tokio::select! {
            Some(effect) = self.tasks.join_next_with_id() => self.ended(effect),
            wake = self.wakeups.next(), if self.doze.is_healthy() && !self.pump.settings.defer => {
                let now = self.started.elapsed();
                self.doze.woken(now);
                if !wake.healthy {
                    self.doze.broke(now);
                }
                if wake.rewind {
                    self.state.rewind();
                }
                self.state.wake(wake.lanes, Cause::Wake);
            }
            lanes = self.wires.waker.woken() => self.state.wake(lanes, Cause::Immediate),
            // What it says now is asked for at the beginning of the next round.
            Ok(()) = self.wires.owned_changed.changed(), if !stopping => {}
            () = self.wires.stop.cancelled(), if !stopping => {
                self.state.stop();
                self.drain_until = Some(Instant::now() + self.pump.settings.drain);
            }
            () = sleep_until(until) => self.give_up_after_drain(),
        }
    }

    /// After the drain nobody waits for publications any more: their rows stay as they are.
    fn give_up_after_drain(&mut self) {
        if self.drain_until.is_none_or(|until| Instant::now() < until) || self.batches.is_empty() {
            return;
        }
        let now = self.started.elapsed();
        for (_, batch) in self.batches.drain() {
            let none = batch.parts.iter().map(|_| Err(Failure::no_answer("stopped while in flight"))).collect();
            self.state.answered(now, batch, none);
        }
        self.state.stop();
    }

    fn start_effects(&mut self, now: Duration) {
        for batch in self.state.next_batches(now) {
            self.publish(batch);
        }
        for target in self.state.next_probes(now) {
            self.probe(target);
        }
        // First: what a poll wakes is read in this round.
        if !self.pump.settings.defer && self.drain_until.is_none() {
            self.doze(now);
        }
        if let Some(request) = self.state.next_read(now) {
            let store = Arc::clone(&self.pump.store);
            self.spawn(async move { Effect::Page(store.read(request).await) }, || Effect::Page(Err(panicked())));
        }
        if let Some(rows) = self.state.next_mark(now) {
            let store = Arc::clone(&self.pump.store);
            self.spawn(async move { Effect::Marked(store.mark(&rows).await) }, || Effect::Marked(Err(panicked())));
        }
        if let Some(settlements) = self.state.next_settle(now) {
            let store = Arc::clone(&self.pump.store);
            let settling = async move { Effect::Settled(store.settle(&settlements).await) };
            self.spawn(settling, || Effect::Settled(Err(panicked())));
        }
    }

    fn doze(&mut self, now: Duration) {
        let wakeups = Arc::clone(&self.wakeups);
        match self.doze.next(now, self.state.is_idle()) {
            Move::Stay => {}
            Move::Poll => self.state.wake(LaneSet::ALL, Cause::Poll),
            Move::Arm => {
                self.spawn(async move { Effect::Armed(wakeups.arm().await) }, || Effect::Armed(Err(panicked())));
            }
            Move::Disarm => {
                let disarming = async move { Effect::Disarmed(wakeups.disarm().await) };
                self.spawn(disarming, || Effect::Disarmed(Err(panicked())));
            }
        }
    }

    fn publish(&mut self, mut batch: Batch) {
        let Some(transport) = self.pump.transports.get(&batch.target).map(Arc::clone) else { return };
        let deadline = self.pump.settings.publish_timeout;
        let messages: Vec<Message> = std::mem::take(&mut batch.messages);
        let count = messages.len();
        let publishing = async move {
            let answers = tokio::time::timeout(deadline + GRACE, transport.publish(messages, deadline)).await;
            Effect::Answers(answers.unwrap_or_else(|_| no_answers(count, "the transport did not answer in time")))
        };
        let lost = move || (0..count).map(|_| Err(Failure::lost("the transport panicked"))).collect();
        let task = self.spawn(publishing, move || Effect::Answers(lost()));
        self.batches.insert(task, batch);
    }

    fn probe(&mut self, target: TargetKey) {
        let Some(transport) = self.pump.transports.get(&target).map(Arc::clone) else { return };
        let probed = target.clone();
        let probing = async move {
            let answer = tokio::time::timeout(TARGET_PROBE + GRACE, transport.probe(TARGET_PROBE)).await;
            let answer = answer.unwrap_or_else(|_| Err(Failure::no_answer("the probe did not end in time")));
            Effect::Probed(target, answer)
        };
        self.spawn(probing, || Effect::Probed(probed, Err(Failure::lost("the transport panicked"))));
    }

    /// Starts something. A transport or a store that panics has failed: what waits for it goes on.
    fn spawn(
        &mut self,
        effect: impl Future<Output = Effect> + Send + 'static,
        panicked: impl FnOnce() -> Effect + Send + 'static,
    ) -> Id {
        let effect = AssertUnwindSafe(effect).catch_unwind();
        self.tasks.spawn(async move { effect.await.unwrap_or_else(|_| panicked()) }).id()
    }

    fn ended(&mut self, ended: Result<(Id, Effect), tokio::task::JoinError>) {
        let now = self.started.elapsed();
        match ended {
            Ok((id, Effect::Answers(mut answers))) => {
                let Some(batch) = self.batches.remove(&id) else { return };
                let missing = batch.parts.len().saturating_sub(answers.len());
                answers.extend(no_answers(missing, "the transport gave no answer for this message"));
                self.state.answered(now, batch, answers);
            }
            Ok((_, Effect::Page(page))) => {
                let rows = page.as_ref().map_or(0, |page| page.rows.len());
                self.own();
                self.state.page_read(now, page);
                self.doze.read(rows, self.state.has_backlog());
            }
            Ok((_, Effect::Probed(target, answer))) => self.state.probed(now, &target, answer),
            Ok((_, Effect::Marked(answer))) => self.state.marked(now, answer),
            Ok((_, Effect::Settled(answer))) => self.state.settled(now, answer),
            Ok((_, Effect::Armed(answer))) => self.armed(now, answer),
            Ok((_, Effect::Disarmed(answer))) => match answer {
                Ok(()) => self.doze.disarmed(now),
                Err(_) => self.doze.broke(now),
            },
            // Nothing is aborted before the end, and panics are caught.
            Err(_) => {}
        }
    }

    fn armed(&mut self, now: Duration, answer: posthaste_core::Result<Armed>) {
        match answer {
            Ok(armed) => {
                self.doze.armed(now, armed);
                self.state.armed(armed);
            }
            Err(error) => {
                (self.wires.observe)(Report::StoreFailed { detail: error.to_string() });
                self.doze.broke(now);
                self.state.wake(LaneSet::ALL, Cause::Poll);
            }
        }
    }

    fn tell(&mut self) {
        for report in self.state.take_reports() {
            (self.wires.observe)(report);
        }
        let progress = self.state.progress();
        self.wires.progress.send_if_modified(|known| {
            let changed = *known != progress;
            *known = progress;
            changed
        });
        let healthy = self.doze.is_healthy();
        self.wires.listening.send_if_modified(|known| std::mem::replace(known, healthy) != healthy);
    }
}

fn panicked() -> posthaste_core::Error {
    posthaste_core::Error::new(posthaste_core::ErrorKind::Unknown, "a call of the store panicked")
}

fn no_answers(count: usize, detail: &str) -> Vec<Result<(), Failure>> {
    (0..count).map(|_| Err(Failure::no_answer(detail))).collect()
}
