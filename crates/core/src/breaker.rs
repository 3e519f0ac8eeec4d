//! A circuit breaker as a pure state machine; the caller brings the time.

use std::time::Duration;

use crate::Backoff;

/// Whether the thing behind the breaker may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Use it.
    Closed,
    /// Leave it alone until `until`, on the caller's own monotonic scale.
    Open {
        /// When a probe may go.
        until: Duration,
    },
    /// One probe is under way; nothing else may go.
    Probing,
}

/// Opens after a run of failures, lets one probe through after a growing wait, closes on success.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    consecutive: u32,
    openings: u32,
    threshold: u32,
    backoff: Backoff,
}

impl Breaker {
    /// Failures in a row that open it.
    pub const THRESHOLD: u32 = 5;

    /// A closed breaker.
    #[must_use]
    pub fn new(threshold: u32, backoff: Backoff) -> Breaker {
        Breaker { state: State::Closed, consecutive: 0, openings: 0, threshold, backoff }
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether anything but a probe may go.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Failures since the last success.
    #[must_use]
    pub fn consecutive_failures(&self) -> u32 {
        self.consecutive
    }

    /// Takes the right to probe, if the wait is over.
    pub fn try_probe(&mut self, now: Duration) -> bool {
        let State::Open { until } = self.state else { return false };
        if now < until {
            return false;
        }
        self.state = State::Probing;
        true
    }

    /// The probe went well: everything may go again, but one failure opens it at once, and for
    /// longer, until something has gone through.
    pub fn admit(&mut self) {
        self.state = State::Closed;
        self.consecutive = self.threshold.saturating_sub(1);
    }

    /// Something went through. Answers whether this closed an open breaker.
    pub fn succeed(&mut self) -> bool {
        let reopened = self.state != State::Closed;
        self.state = State::Closed;
        self.consecutive = 0;
        self.openings = 0;
        reopened
    }

    /// A failure of the kind this breaker counts. `pause` is what the other side asked for, if it
    /// did: it opens at once then. `unit` (0 to 1) is the jitter.
    pub fn fail(&mut self, now: Duration, pause: Option<Duration>, unit: f64) {
        self.consecutive = self.consecutive.saturating_add(1);
        let opens = pause.is_some() || self.state == State::Probing || self.consecutive >= self.threshold;
        if !opens {
            return;
        }
        // Failures of what was in flight when it opened must not lengthen the wait.
        if let (State::Open { until }, None) = (self.state, pause)
            && until > now
        {
            return;
        }
        self.openings = self.openings.saturating_add(1);
        let wait = pause.unwrap_or_else(|| self.backoff.jittered(self.openings, unit));
        self.state = State::Open { until: now.saturating_add(wait) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> Breaker {
        Breaker::new(Breaker::THRESHOLD, Backoff { base: SECOND, cap: 8 * SECOND })
    }

    #[test]
    fn report_084_opens_at_the_fifth_failure_in_a_row_not_at_the_first() {
        let mut breaker = breaker();
        for _ in 0..4 {
            breaker.fail(SECOND, None, 1.0);
        }
        breaker.succeed();
        for _ in 0..4 {
            breaker.fail(SECOND, None, 1.0);
            assert!(breaker.is_closed());
        }
        breaker.fail(SECOND, None, 1.0);
        assert_eq!(breaker.state(), State::Open { until: 2 * SECOND });
    }

    #[test]
    fn lets_one_probe_through_after_the_wait_and_waits_longer_if_it_fails() {
        let mut breaker = breaker();
        (0..5).for_each(|_| breaker.fail(Duration::ZERO, None, 1.0));
        assert!(!breaker.try_probe(SECOND / 2));
        assert!(breaker.try_probe(SECOND) && !breaker.try_probe(SECOND));
        breaker.fail(SECOND, None, 1.0);
        assert_eq!(breaker.state(), State::Open { until: 3 * SECOND });
        breaker.fail(2 * SECOND, None, 1.0);
        assert_eq!(breaker.state(), State::Open { until: 3 * SECOND }, "a straggler lengthens nothing");
        assert!(breaker.try_probe(3 * SECOND) && breaker.succeed() && breaker.is_closed());
    }

    #[test]
    fn one_failure_after_a_good_probe_opens_it_for_longer() {
        let mut breaker = breaker();
        (0..5).for_each(|_| breaker.fail(Duration::ZERO, None, 1.0));
        assert!(breaker.try_probe(SECOND));
        breaker.admit();
        assert!(breaker.is_closed());
        breaker.fail(SECOND, None, 1.0);
        assert_eq!(breaker.state(), State::Open { until: 3 * SECOND });
    }

    #[test]
    fn report_094_opens_at_once_for_as_long_as_it_was_asked() {
        let mut breaker = breaker();
        breaker.fail(SECOND, Some(30 * SECOND), 1.0);
        assert_eq!(breaker.state(), State::Open { until: 31 * SECOND });
    }
}
