//! Cases, and how they become trials of a test program.
//!
//! A case that does not apply is shown as ignored with the reason; none is left out silently.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;

/// Longest time a case may take; one that hangs fails by it instead of stopping the run.
const CASE_DEADLINE: Duration = Duration::from_secs(90);

/// One statement about a port, told to a `Scene`: the fresh place that it plays in.
pub struct Case<Scene: 'static> {
    /// Cites the clause: `port_l2_…`.
    pub name: &'static str,
    /// What the backend must have for the case to mean anything.
    pub needs: &'static [Need],
    /// Panics where the statement does not hold.
    pub run: for<'a> fn(&'a Scene) -> BoxFuture<'a, ()>,
}

/// What not every backend has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Two transactions may write at once.
    ConcurrentWriters,
    /// A page comes with the transactions under way.
    Snapshots,
    /// Rows stand in many lanes, by their key or as a plain INSERT says.
    ManyLanes,
    /// Reached through a socket.
    Network,
    /// The target can be made to refuse one message and take the next.
    Refusals,
}

impl Need {
    /// Why a backend without it leaves out the case.
    #[must_use]
    pub const fn missing(self) -> &'static str {
        match self {
            Need::ConcurrentWriters => "one transaction writes at a time",
            Need::Snapshots => "has no snapshots of the transactions under way",
            Need::ManyLanes => "one process owns all lanes",
            Need::Network => "not reached through a network",
            Need::Refusals => "never refuses a single message",
        }
    }
}

/// A case that a backend is known to fail for a reason outside this project.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// The case.
    pub case: &'static str,
    /// The reason, with a link.
    pub reason: &'static str,
}

/// Makes a list of cases of functions that take the scene.
macro_rules! cases {
    ($scene:ty; $($name:ident $(needs $need:ident)?),* $(,)?) => {
        /// The cases of this topic.
        pub(super) fn cases() -> Vec<$crate::suite::Case<$scene>> {
            vec![$($crate::suite::Case {
                name: stringify!($name),
                needs: &[$($crate::suite::Need::$need)?],
                run: |scene| Box::pin($name(scene)),
            }),*]
        }
    };
}
pub(super) use cases;

/// The end of a case: `Err` says what did not hold.
pub(super) type Verdict = Result<(), String>;

/// Runs `case` to its end, a panic, or the deadline.
pub(super) async fn verdict(case: impl Future<Output = ()>) -> Verdict {
    match tokio::time::timeout(CASE_DEADLINE, AssertUnwindSafe(case).catch_unwind()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(panic)) => Err(panic_text(&*panic)),
        Err(_) => Err(format!("no end after {} s", CASE_DEADLINE.as_secs())),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
}

/// A case by name, ready to run, or the reason why it is not run.
pub(super) struct Planned {
    pub(super) name: &'static str,
    pub(super) run: Result<Box<dyn FnOnce() -> BoxFuture<'static, Verdict> + Send>, String>,
}

/// Runs all as the trials of a test program on one runtime.
pub(super) fn run(kind: &str, planned: Vec<Planned>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("error: no runtime for the trials: {error}");
            return ExitCode::FAILURE;
        }
    };
    let trials = planned.into_iter().map(|planned| trial(kind, planned, &runtime)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(kind: &str, planned: Planned, runtime: &Arc<Runtime>) -> Trial {
    let runtime = Arc::clone(runtime);
    let run = planned.run;
    Trial::ignorable_test(planned.name, move || match run {
        Err(reason) => Ok(Completion::ignored_with(reason)),
        Ok(start) => catch_unwind(AssertUnwindSafe(|| runtime.block_on(start())))
            .unwrap_or_else(|panic| Err(panic_text(&*panic)))
            .map(|()| Completion::Completed)
            .map_err(Failed::from),
    })
    .with_kind(kind)
}

/// Panics unless every gap names a case.
pub(super) fn check_gaps<Scene>(gaps: &[Gap], cases: &[Case<Scene>]) {
    for gap in gaps {
        assert!(cases.iter().any(|case| case.name == gap.case), "known gap {:?} is no case", gap.case);
    }
}

/// Why a case is not run, if so.
pub(super) fn left_out<Scene>(case: &Case<Scene>, gaps: &[Gap], has: impl Fn(Need) -> bool) -> Option<String> {
    if let Some(gap) = gaps.iter().find(|gap| gap.case == case.name) {
        return Some(format!("known gap: {}", gap.reason));
    }
    case.needs.iter().find(|need| !has(**need)).map(|need| need.missing().to_owned())
}
