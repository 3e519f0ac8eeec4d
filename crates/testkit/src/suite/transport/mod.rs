//! The suite of the transport port.
//!
//! A transport's `tests/conformance.rs` (without libtest's harness) implements
//! [`TransportHarness`] and [`Destination`] and calls [`main`] or [`main_or_skip`].

mod answers;
mod bodies;
mod lifecycle;
mod outage;
mod round_trip;
mod scene;

use std::{collections::BTreeMap, net::SocketAddr, process::ExitCode, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use posthaste_core::{Message, port::Target};

pub use scene::Scene;

use super::case::{self, Case, Gap, Need, Planned, Verdict};

/// What a transport's test supplies.
#[async_trait]
pub trait TransportHarness: Send + Sync + 'static {
    /// The transport's name in the list of trials.
    fn name(&self) -> &'static str;

    /// What the transport is like.
    fn facts(&self) -> Facts;

    /// Cases that it can't pass for reasons outside this project.
    fn known_gaps(&self) -> &'static [Gap] {
        &[]
    }

    /// A fresh, isolated destination that receives nothing but what the case publishes.
    async fn destination(&self) -> Arc<dyn Destination>;

    /// A target that can't take anything, with nothing behind it that could.
    fn unreachable(&self) -> Target;

    /// A target at this address, for transports that are reached through a network.
    fn at(&self, address: SocketAddr) -> Option<Target>;
}

/// Facts about a transport that decide which cases mean something.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Reached through a socket: `at` answers.
    pub network: bool,
    /// The target can be made to refuse one message and take the next.
    pub refuses: bool,
    /// The target keeps one of several messages with one id.
    pub deduplicates: bool,
}

impl Facts {
    fn has(self, need: Need) -> bool {
        match need {
            Need::Network => self.network,
            Need::Refusals => self.refuses,
            Need::ConcurrentWriters | Need::Snapshots | Need::ManyLanes => false,
        }
    }
}

/// Where messages arrive. Its methods panic when the target's own side fails them.
#[async_trait]
pub trait Destination: Send + Sync {
    /// A target of its own that leads here. Does no I/O.
    fn open(&self) -> Target;

    /// Waits until at least `count` messages are here; all that are, in the order of arrival.
    async fn received(&self, count: usize) -> Vec<Received>;

    /// Makes of a message one that the target will refuse.
    fn refused(&self, message: Message) -> Message;

    /// Removes all that was made.
    async fn teardown(&self);

    /// Names what is still there.
    async fn leftovers(&self) -> Vec<String>;
}

/// A message as its consumer sees it, in the terms of the event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The message id.
    pub id: String,
    /// The type.
    pub event_type: String,
    /// The ordering key.
    pub key: Option<String>,
    /// The tenant.
    pub tenant: Option<String>,
    /// The user's headers and the trace context.
    pub headers: BTreeMap<String, String>,
    /// The media type of the body.
    pub content_type: String,
    /// The bytes; `None` where the message says that the body is NULL.
    pub body: Option<Bytes>,
    /// Everything else that must be equal on every attempt: source, time, properties.
    pub attributes: BTreeMap<String, String>,
}

/// All cases, topic by topic.
#[must_use]
pub fn cases() -> Vec<Case<Scene>> {
    [round_trip::cases(), bodies::cases(), answers::cases(), outage::cases(), lifecycle::cases()]
        .into_iter()
        .flatten()
        .collect()
}

/// Runs the case of this name once, with a destination of its own.
///
/// # Errors
/// What did not hold.
///
/// # Panics
/// There is no such case.
pub async fn check(harness: Arc<dyn TransportHarness>, name: &str) -> Result<(), String> {
    let case = cases().into_iter().find(|case| case.name == name);
    play(harness, case.unwrap_or_else(|| panic!("no case is called {name}"))).await
}

/// The `main` of a transport's conformance test.
pub fn main(harness: impl TransportHarness) -> ExitCode {
    main_or_skip(Some(harness), "")
}

/// The same for a transport whose server may be `missing`: then every case is shown as ignored.
pub fn main_or_skip(harness: Option<impl TransportHarness>, missing: &str) -> ExitCode {
    let Some(harness) = harness else {
        let skip = |case: Case<Scene>| Planned { name: case.name, run: Err(missing.to_owned()) };
        return case::run("transport", cases().into_iter().map(skip).collect());
    };
    let harness: Arc<dyn TransportHarness> = Arc::new(harness);
    let cases = cases();
    case::check_gaps(harness.known_gaps(), &cases);
    let planned = cases.into_iter().map(|case| plan(&harness, case)).collect();
    case::run(harness.name(), planned)
}

fn plan(harness: &Arc<dyn TransportHarness>, case: Case<Scene>) -> Planned {
    let facts = harness.facts();
    if let Some(reason) = case::left_out(&case, harness.known_gaps(), |need| facts.has(need)) {
        return Planned { name: case.name, run: Err(reason) };
    }
    let harness = Arc::clone(harness);
    Planned { name: case.name, run: Ok(Box::new(move || Box::pin(play(harness, case)))) }
}

/// Runs a case, and tears down its destination however it ended.
async fn play(harness: Arc<dyn TransportHarness>, case: Case<Scene>) -> Verdict {
    let scene = Scene::set(harness).await;
    let verdict = case::verdict((case.run)(&scene)).await;
    let cleaned = case::verdict(scene.strike()).await;
    verdict.and(cleaned.map_err(|error| format!("teardown: {error}")))
}
