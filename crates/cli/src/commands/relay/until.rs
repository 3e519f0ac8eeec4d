//! When a relay ends of itself: nothing left, everything read once, or out of time.

use std::{collections::BTreeMap, future::pending, io::IsTerminal as _, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use posthaste_core::port::OutboxStatus;
use posthaste_relay::{Health, Progress, RelayHandle};
use tokio::{sync::watch, time::Instant};

use super::Source;
use crate::{
    args::Relay as Arguments,
    exit::{Done, Fault, say},
};

/// Longest wait for the last counts.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two questions to a database that did not answer.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Between two lines on the terminal.
const LINE_EVERY: Duration = Duration::from_millis(500);

/// How a relay ended.
pub enum Ended {
    /// By a signal.
    Stopped,
    /// Nobody reads its standard output.
    Closed,
    /// Everything was read once.
    Once,
    /// Nothing is left to deliver, but for rows of these types, which no route takes.
    Empty {
        /// How many rows became `invalid` meanwhile.
        invalid: u64,
        /// Types left alone, with their counts.
        deferred: BTreeMap<String, u64>,
    },
    /// It took too long; what it waited for.
    TimedOut(Vec<String>),
}

/// Waits until the relay may end of itself; for ever if it may not.
/// `dead_letters` is how many there were before the relay started.
pub async fn wait(args: &Arguments, handle: &RelayHandle, sources: &[Source], dead_letters: u64) -> Ended {
    if args.until_empty {
        tokio::select! {
            ended = empty(handle, sources, dead_letters) => return ended,
            () = show(handle) => {}
        }
    }
    if args.once {
        for (_, mut progress) in handle.progress() {
            let _ = progress.wait_for(|progress| progress.passes > 0 && progress.idle).await;
        }
        return Ended::Once;
    }
    pending().await
}

/// The counts of one outbox, asked for until the database answers.
async fn status(source: &Source) -> OutboxStatus {
    loop {
        if let Ok(status) = source.1.status().await {
            return status;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// How many rows wait, over all outboxes; `None` where nobody asks or the database does not answer.
pub async fn left(args: &Arguments, sources: &[Source]) -> Option<u64> {
    if !args.until_empty {
        return None;
    }
    let count = async {
        let mut left = 0;
        for source in sources {
            let status = status(source).await;
            left += status.pending + status.processing + status.failed;
        }
        left
    };
    tokio::time::timeout(PATIENCE, count).await.ok()
}

/// What the command answers when a signal ended it: one that runs for ever has done its work, one that was
/// to come to an end has not, unless nothing is `left`.
pub fn interrupted(args: &Arguments, left: Option<u64>) -> Done {
    let unfinished = match left {
        _ if args.once => "interrupted before everything was read once".to_owned(),
        Some(0) => return Done::Clean,
        Some(left) => format!("interrupted: {left} rows are left"),
        None if args.until_empty => "interrupted before it was known that nothing is left".to_owned(),
        None => return Done::Clean,
    };
    say(&format!("{unfinished}; nothing is lost, the next run goes on"));
    Done::WithFindings
}

/// How many rows are `invalid`, over all outboxes.
pub async fn dead_letters(sources: &[Source]) -> u64 {
    let mut invalid = 0;
    for source in sources {
        invalid += status(source).await.invalid;
    }
    invalid
}

async fn empty(handle: &RelayHandle, sources: &[Source], before: u64) -> Ended {
    let (mut after, mut deferred) = (0, BTreeMap::new());
    for (source, (_, mut progress)) in sources.iter().zip(handle.progress()) {
        let (invalid, left) = outbox_empty(source, &mut progress).await;
        after += invalid;
        deferred.extend(left);
    }
    Ended::Empty { invalid: after.saturating_sub(before), deferred }
}

/// Waits until one outbox has nothing left but deferred rows. Answers its dead letters and those.
async fn outbox_empty(source: &Source, progress: &mut watch::Receiver<Progress>) -> (u64, BTreeMap<String, u64>) {
    loop {
        // Only a full pass that began after the last look shows everything there is.
        let at_rest =
            |now: &Progress| now.passes > 0 && now.owns_lanes && now.idle && now.held == 0 && now.paused.is_empty();
        let Ok(rest) = progress.wait_for(at_rest).await.map(|rest| rest.clone()) else { return pending().await };
        let status = status(source).await;
        let left = status.pending + status.processing + status.failed;
        if left == rest.deferred.values().sum::<u64>() {
            return (status.invalid, rest.deferred);
        }
        if progress.changed().await.is_err() {
            return pending().await;
        }
    }
}

/// Shows how far it is, on a terminal; from what the relay knows anyway.
async fn show(handle: &RelayHandle) {
    if !std::io::stderr().is_terminal() {
        return pending().await;
    }
    let style = ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    let line = ProgressBar::new_spinner().with_style(style);
    loop {
        tokio::time::sleep(LINE_EVERY).await;
        line.set_message(progress_line(&handle.health()));
        line.tick();
    }
}

fn progress_line(health: &Health) -> String {
    let counts: Option<Vec<&OutboxStatus>> = health.outboxes.iter().map(|outbox| outbox.status.as_ref()).collect();
    let counts = counts.map_or_else(
        || "counting".to_owned(),
        |counts| {
            let left: u64 = counts.iter().map(|status| status.pending + status.processing + status.failed).sum();
            format!("{left} left, {} published", counts.iter().map(|status| status.published).sum::<u64>())
        },
    );
    let in_flight: usize = health.outboxes.iter().map(|outbox| outbox.progress.in_flight).sum();
    let waits = health.reasons().first().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{counts}, {in_flight} in flight{waits}")
}

/// Ends at the deadline, if there is one.
pub async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}

/// The fault of a relay that ran out of time.
pub fn gave_up(reasons: &[String]) -> Fault {
    let why = if reasons.is_empty() { "rows are still waiting".to_owned() } else { reasons.join("; ") };
    Fault::Failed {
        code: 3,
        error: format!("gave up at --timeout: {why}"),
        hint: Some("nothing is lost; the rows stay pending. `posthaste status` and `explain ID` say more".to_owned()),
    }
}

/// What the command answers.
pub fn conclude(ended: Ended) -> Result<Done, Fault> {
    match ended {
        Ended::Stopped | Ended::Once => Ok(Done::Clean),
        Ended::Closed => Err(Fault::ClosedPipe),
        Ended::TimedOut(reasons) => Err(gave_up(&reasons)),
        Ended::Empty { invalid, deferred } => {
            if invalid > 0 {
                say(&format!("{invalid} rows became invalid: see `posthaste list --status invalid`"));
            }
            for (event_type, count) in &deferred {
                say(&format!("{count} rows of type {event_type:?} are left: no route of this relay takes them"));
            }
            Ok(if invalid > 0 || !deferred.is_empty() { Done::WithFindings } else { Done::Clean })
        }
    }
}
