//! The suite of the store port.
//!
//! A store's `tests/conformance.rs` (without libtest's harness) implements [`StoreHarness`] and
//! [`Place`] and calls [`main`] or [`main_or_skip`].

mod encode;
mod enqueue;
mod hold;
mod inspect;
mod mark;
mod names;
mod operate;
mod prune;
mod read;
mod remote;
mod scene;
mod schema;
mod settle;
mod snapshot;
mod wake;

use std::{process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_core::{
    Event, OutboxName, Seq,
    port::{EnqueueError, Receipt, Store},
};

pub use remote::{RemoteTx, TxCommand, remote_tx};
pub use scene::Scene;

use scene::Places;

use super::case::{self, Case, Gap, Need, Planned, Verdict};

/// What a store's test supplies.
#[async_trait]
pub trait StoreHarness: Send + Sync + 'static {
    /// The store's name in the list of trials.
    fn name(&self) -> &'static str;

    /// What the store is like.
    fn facts(&self) -> Facts;

    /// Cases that it can't pass for reasons outside this project.
    fn known_gaps(&self) -> &'static [Gap] {
        &[]
    }

    /// An isolated place for one outbox of this name, in which nothing has been made yet.
    async fn place(&self, outbox: OutboxName) -> Arc<dyn Place>;
}

/// Facts about a store that decide which cases mean something.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Two transactions may write at once.
    pub concurrent_writers: bool,
    /// A page comes with the transactions under way.
    pub snapshots: bool,
    /// Rows stand in many lanes, by their key or as a plain INSERT says.
    pub many_lanes: bool,
    /// The database holds nothing but the outbox.
    pub database_of_its_own: bool,
}

impl Facts {
    fn has(self, need: Need) -> bool {
        match need {
            Need::ConcurrentWriters => self.concurrent_writers,
            Need::Snapshots => self.snapshots,
            Need::ManyLanes => self.many_lanes,
            Need::Network | Need::Refusals => false,
        }
    }
}

/// Where one outbox lives. Its methods panic when the database fails them.
#[async_trait]
pub trait Place: Send + Sync {
    /// A store object of its own, with connections of its own. Does no I/O.
    fn open(&self, retention: Duration) -> Arc<dyn Store>;

    /// Begins a transaction of an application, on a connection of its own.
    async fn begin(&self) -> Box<dyn WriterTx>;

    /// Runs one or more statements outside any transaction; the rows of the last one, as text.
    ///
    /// # Errors
    /// The database refused.
    async fn sql(&self, statements: &str) -> Result<Vec<Vec<Option<String>>>, String>;

    /// A literal of the type of `body`.
    fn literal(&self, bytes: &[u8]) -> String;

    /// Moves `created_at`, and `published_at` if it is set, of the row back in time.
    async fn age(&self, seq: Seq, by: Duration);

    /// Records that the schema is of a version that no build knows yet.
    async fn make_newer(&self);

    /// Removes all that was made.
    async fn teardown(&self);

    /// Names what of this place is still there.
    async fn leftovers(&self) -> Vec<String>;
}

/// An open transaction of an application that enqueues through the store's own `Outbox`.
/// Dropped, it is rolled back.
#[async_trait]
pub trait WriterTx: Send {
    /// Enqueues in this transaction, with the default limits.
    async fn enqueue(&mut self, events: &[Event]) -> Result<Receipt, EnqueueError>;

    /// Runs a statement in this transaction.
    ///
    /// # Errors
    /// The database refused.
    async fn execute(&mut self, statement: &str) -> Result<(), String>;

    /// The database's number for this transaction, where it has snapshots. It has written before.
    async fn transaction(&mut self) -> Option<u64>;

    /// Commits.
    async fn commit(self: Box<Self>);

    /// Rolls back.
    async fn rollback(self: Box<Self>);
}

/// All cases, topic by topic.
#[must_use]
pub fn cases() -> Vec<Case<Scene>> {
    [
        enqueue::cases(),
        encode::cases(),
        read::cases(),
        snapshot::cases(),
        mark::cases(),
        settle::cases(),
        inspect::cases(),
        operate::cases(),
        prune::cases(),
        schema::cases(),
        hold::cases(),
        wake::cases(),
        names::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Runs the case of this name once, in a place of its own.
///
/// # Errors
/// What did not hold.
///
/// # Panics
/// There is no such case.
pub async fn check(harness: Arc<dyn StoreHarness>, name: &str) -> Result<(), String> {
    let case = cases().into_iter().find(|case| case.name == name);
    play(harness, case.unwrap_or_else(|| panic!("no case is called {name}"))).await
}

/// The `main` of a store's conformance test.
pub fn main(harness: impl StoreHarness) -> ExitCode {
    main_or_skip(Some(harness), "")
}

/// The same for a store whose server may be `missing`: then every case is shown as ignored.
pub fn main_or_skip(harness: Option<impl StoreHarness>, missing: &str) -> ExitCode {
    let Some(harness) = harness else {
        let skip = |case: Case<Scene>| Planned { name: case.name, run: Err(missing.to_owned()) };
        return case::run("store", cases().into_iter().map(skip).collect());
    };
    let harness: Arc<dyn StoreHarness> = Arc::new(harness);
    let cases = cases();
    case::check_gaps(harness.known_gaps(), &cases);
    let planned = cases.into_iter().map(|case| plan(&harness, case)).collect();
    case::run(harness.name(), planned)
}

fn plan(harness: &Arc<dyn StoreHarness>, case: Case<Scene>) -> Planned {
    let facts = harness.facts();
    if let Some(reason) = case::left_out(&case, harness.known_gaps(), |need| facts.has(need)) {
        return Planned { name: case.name, run: Err(reason) };
    }
    let harness = Arc::clone(harness);
    Planned { name: case.name, run: Ok(Box::new(move || Box::pin(play(harness, case)))) }
}

/// Runs a case, and tears down what it used however it ended.
async fn play(harness: Arc<dyn StoreHarness>, case: Case<Scene>) -> Verdict {
    let places = Places::default();
    let told = async {
        let scene = Scene::set(harness, places.clone()).await;
        (case.run)(&scene).await;
    };
    let verdict = case::verdict(told).await;
    let cleaned = case::verdict(places.teardown()).await;
    verdict.and(cleaned.map_err(|error| format!("teardown: {error}")))
}
