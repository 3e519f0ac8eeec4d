//! Logs and metrics of the relay: the one place that writes either.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use metrics::{counter, gauge};
use posthaste_core::{OutboxName, Status, port::OutboxStatus};

use crate::{
    pump::{Progress, Report},
    route::TargetKey,
};

/// Between two log lines of one kind.
const QUIET: Duration = Duration::from_secs(10);

/// Writes the logs and metrics of one outbox. A kind of failure that repeats is logged once each
/// ten seconds, with the number of those left out.
pub(crate) struct Telemetry {
    outbox: String,
    said: Mutex<HashMap<String, (Instant, u64)>>,
}

impl Telemetry {
    pub(crate) fn new(outbox: &OutboxName) -> Telemetry {
        Telemetry { outbox: outbox.to_string(), said: Mutex::new(HashMap::new()) }
    }

    pub(crate) fn observe(&self, report: &Report) {
        let outbox = &self.outbox;
        match report {
            Report::Published { route, cause, count } => {
                let labels =
                    [("outbox", outbox.clone()), ("route", route.to_string()), ("path", cause.as_str().to_owned())];
                counter!("posthaste_published_total", &labels).increment(*count);
            }
            Report::Failed { id, route, class, detail, dead } => {
                self.count_failure(route.as_str(), class.as_str());
                let key = format!("{route} {} {dead}", class.as_str());
                if let Some(left_out) = self.may_say(&key) {
                    let class = class.as_str();
                    tracing::warn!(%outbox, %id, %route, class, dead, left_out, "not published: {detail}");
                }
            }
            Report::Unrenderable { id, detail } => {
                self.count_failure("", "render");
                if let Some(left_out) = self.may_say("render") {
                    tracing::warn!(%outbox, %id, left_out, "can't be rendered: {detail}");
                }
            }
            Report::Deferred { id, event_type, detail } => {
                self.count_failure("", "deferred");
                if let Some(left_out) = self.may_say(&format!("deferred {event_type}")) {
                    tracing::warn!(%outbox, %id, event_type, left_out, "left pending: {detail}");
                }
            }
            Report::Paused { target, detail } => {
                gauge!("posthaste_target_paused", "target" => target.to_string()).set(1.0);
                tracing::warn!(%outbox, %target, "target paused: {detail}");
            }
            Report::Resumed { target } => {
                gauge!("posthaste_target_paused", "target" => target.to_string()).set(0.0);
                tracing::info!(%outbox, %target, "target resumed");
            }
            Report::StoreFailed { detail } => {
                counter!("posthaste_store_errors_total", "outbox" => outbox.clone()).increment(1);
                if let Some(left_out) = self.may_say("store") {
                    tracing::warn!(%outbox, left_out, "database: {detail}");
                }
            }
        }
    }

    pub(crate) fn progress(&self, progress: &Progress, lanes: u32) {
        let outbox = &self.outbox;
        gauge!("posthaste_in_flight", "outbox" => outbox.clone()).set(progress.in_flight as f64);
        gauge!("posthaste_unmarked", "outbox" => outbox.clone()).set(progress.unmarked as f64);
        gauge!("posthaste_lanes_owned", "outbox" => outbox.clone()).set(f64::from(lanes));
    }

    /// Says whether a line of this kind may be logged, and how many were left out since the last.
    fn may_say(&self, kind: &str) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match said.get_mut(kind) {
            Some((at, left_out)) if now.duration_since(*at) < QUIET => {
                *left_out += 1;
                None
            }
            Some(entry) => Some(std::mem::replace(entry, (now, 0)).1),
            None => {
                said.insert(kind.to_owned(), (now, 0));
                Some(0)
            }
        }
    }

    fn count_failure(&self, route: &str, class: &'static str) {
        let labels = [("outbox", self.outbox.clone()), ("route", route.to_owned()), ("class", class.to_owned())];
        counter!("posthaste_failures_total", &labels).increment(1);
    }
}

/// Shows targets as not paused, before the first of them is.
pub(crate) fn targets<'a>(targets: impl Iterator<Item = &'a TargetKey>) {
    for target in targets {
        gauge!("posthaste_target_paused", "target" => target.to_string()).set(0.0);
    }
}

/// Sets the gauges of an outbox from what was read, or counts that it could not be read: a figure
/// that is not known is never shown as zero.
pub(crate) fn outbox_status(outbox: &OutboxName, status: &OutboxStatus) {
    let outbox = outbox.to_string();
    let counts = [
        (Status::Pending, status.pending),
        (Status::Processing, status.processing),
        (Status::Failed, status.failed),
        (Status::Published, status.published),
        (Status::Invalid, status.invalid),
    ];
    for (status, count) in counts {
        let labels = [("outbox", outbox.clone()), ("status", status.as_str().to_owned())];
        gauge!("posthaste_rows", &labels).set(count as f64);
    }
    let oldest = status.oldest_pending.unwrap_or_default().as_secs_f64();
    gauge!("posthaste_oldest_pending_seconds", "outbox" => outbox).set(oldest);
}

/// Withdraws the gauges of an outbox whose status could not be read.
pub(crate) fn outbox_unreadable(outbox: &OutboxName) {
    let outbox = outbox.to_string();
    counter!("posthaste_read_errors_total", "outbox" => outbox.clone()).increment(1);
    for status in Status::ALL {
        let labels = [("outbox", outbox.clone()), ("status", status.as_str().to_owned())];
        gauge!("posthaste_rows", &labels).set(f64::NAN);
    }
    gauge!("posthaste_oldest_pending_seconds", "outbox" => outbox).set(f64::NAN);
}
