//! How long to wait before the next attempt.

use std::time::Duration;

/// Exponential: `base`, doubled for each further failure, at most `cap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The wait after the first failure.
    pub base: Duration,
    /// The longest wait.
    pub cap: Duration,
}

impl Backoff {
    /// Between counted attempts of a row: 1 s to 5 min.
    pub const ROW: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(300) };
    /// Between probes of a paused target: 500 ms to 30 s.
    pub const TARGET: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(30) };
    /// Between tries of a store that does not answer: 100 ms to 5 s.
    pub const STORE: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(5) };

    /// The wait after the `failures`-th failure in a row (from 1). Never zero, never above `cap`,
    /// never decreasing.
    #[must_use]
    pub fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let floor = Duration::from_nanos(1);
        self.base.max(floor).saturating_mul(1 << doublings).min(self.cap.max(floor))
    }

    /// The same with jitter: `unit` (0 to 1) picks a point in the upper half of the wait.
    #[must_use]
    pub fn jittered(self, failures: u32, unit: f64) -> Duration {
        let full = self.after(failures);
        full.mul_f64(0.5 + 0.5 * unit.clamp(0.0, 1.0))
    }

    /// How many failures in a row it takes until the waits between them add up to `span`.
    #[must_use]
    pub fn failures_within(self, span: Duration) -> u32 {
        let (mut total, mut failures) = (Duration::ZERO, 0);
        while total < span && failures < 1_000_000 {
            failures += 1;
            total += self.after(failures);
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn report_086_waits_stay_positive_bounded_and_monotone(
            base in 1u64..3_600_000, extra in 0u64..36_000_000, failures in any::<u32>(), unit in 0.0f64..=1.0,
        ) {
            let backoff = Backoff { base: Duration::from_millis(base), cap: Duration::from_millis(base + extra) };
            let wait = backoff.after(failures);
            prop_assert!(wait > Duration::ZERO && wait <= backoff.cap);
            prop_assert!(backoff.after(failures.saturating_add(1)) >= wait);
            let jittered = backoff.jittered(failures, unit);
            prop_assert!(jittered > Duration::ZERO && jittered <= wait);
        }
    }

    #[test]
    fn waits_double_up_to_the_cap() {
        let seconds: Vec<u64> = [1, 2, 3, 9, 10, 1000].map(|n| Backoff::ROW.after(n).as_secs()).into();
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300]);
    }

    #[test]
    fn an_hour_of_waits_takes_twenty_failures() {
        assert_eq!(Backoff::ROW.failures_within(Duration::from_secs(3600)), 20);
    }
}
