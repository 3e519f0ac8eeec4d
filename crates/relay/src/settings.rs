//! What can be set on a relay, with the defaults of the configuration reference.

use std::time::Duration;

use posthaste_core::{Backoff, Event};

/// Settings of one pump.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The longest time between two full reads of the outbox. Default 5 s.
    pub interval: Duration,
    /// Most rows a read. Default 200.
    pub batch: u32,
    /// Ignore wake-ups and leave everything to the interval. Default off.
    pub defer: bool,
    /// The longest time a confirmed row waits to be marked. Default 250 ms.
    pub mark_delay: Duration,
    /// Confirmed rows that are marked without waiting longer. Default 500.
    pub mark_batch: usize,
    /// Bodies larger than this many bytes are not delivered. Default 8 MiB.
    pub max_body: u64,
    /// Every publication has its answer, or none, by then. Default 30 s.
    pub publish_timeout: Duration,
    /// How long a stop waits for publications in flight. Default 10 s.
    pub drain: Duration,
    /// How long published rows are kept; zero deletes them at once. Default 1 day.
    pub retention: Duration,
    /// Bounds on what is held in memory.
    pub bounds: Bounds,
    /// When failures become final.
    pub retry: RetryPolicy,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            interval: Duration::from_secs(5),
            batch: 200,
            defer: false,
            mark_delay: Duration::from_millis(250),
            mark_batch: 500,
            max_body: Event::DEFAULT_MAX_BODY as u64,
            publish_timeout: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            retention: Duration::from_secs(86_400),
            bounds: Bounds::default(),
            retry: RetryPolicy::default(),
        }
    }
}

/// Bounds of one pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Publications in flight to one target.
    pub in_flight: usize,
    /// Rows confirmed and not yet marked, and outcomes not yet recorded.
    pub unmarked: usize,
    /// Rows that are not due and remembered one by one.
    pub held: usize,
    /// Rows of one ordering key that wait in memory behind the one in flight.
    pub waiting_per_key: usize,
    /// Bytes of everything held: read, rendered, in flight.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { in_flight: 1_000, unmarked: 10_000, held: 10_000, waiting_per_key: 64, bytes: 64 << 20 }
    }
}

/// When failures become final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Counted failures of the unknown class that make a row `invalid`.
    pub max_attempts: u32,
    /// Counted failures of the permanent class that make a row `invalid`.
    pub permanent_attempts: u32,
    /// How long a row may be misrouted before it becomes `invalid`; at least `max_attempts` as well.
    pub misrouted_for: Duration,
    /// The waits between attempts.
    pub backoff: Backoff,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            max_attempts: 10,
            permanent_attempts: 1,
            misrouted_for: Duration::from_secs(3_600),
            backoff: Backoff::ROW,
        }
    }
}
