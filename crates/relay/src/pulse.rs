//! Whether a task that should come round again and again still does.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// How long a pump may be busy with one round, beyond its interval. A round waits for nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// When a task came round last.
pub(crate) struct Pulse {
    started: Instant,
    /// Milliseconds since the start.
    last: AtomicU64,
    longest: Duration,
}

impl Pulse {
    /// Of a task that comes round at least once an interval.
    pub(crate) fn new(interval: Duration) -> Pulse {
        Pulse { started: Instant::now(), last: AtomicU64::new(0), longest: interval + PATIENCE }
    }

    pub(crate) fn beat(&self) {
        self.last.store(millis(self.started.elapsed()), Relaxed);
    }

    pub(crate) fn is_felt(&self) -> bool {
        self.is_felt_after(self.started.elapsed())
    }

    fn is_felt_after(&self, elapsed: Duration) -> bool {
        millis(elapsed).saturating_sub(self.last.load(Relaxed)) <= millis(self.longest)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_8_a_pump_that_hangs_is_not_alive() {
        let pulse = Pulse::new(Duration::from_secs(5));
        pulse.beat();
        assert!(pulse.is_felt_after(Duration::from_secs(34)));
        assert!(!pulse.is_felt_after(Duration::from_secs(37)));
    }
}
