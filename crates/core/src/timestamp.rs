//! Instants as stores give them: microseconds since the Unix epoch, UTC.

use std::{fmt, time::Duration};

use chrono::{DateTime, SecondsFormat, Utc};

/// Microseconds since the Unix epoch by the database's clock. Never taken from this process's wall clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Timestamp {
        Timestamp(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down; the unit of the AMQP timestamp property.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// RFC 3339, UTC, microseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_micros(self.0) {
            Some(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::Micros, true)),
            None => write!(f, "{} µs since 1970", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_075_seconds_and_full_precision_of_one_instant() {
        let time = Timestamp::from_micros(1_767_323_045_678_000);
        assert_eq!(time.seconds(), 1_767_323_045);
        assert_eq!(time.to_string(), "2026-01-02T03:04:05.678000Z");
    }

    #[test]
    fn report_083_years_after_2038_print() {
        assert_eq!(Timestamp::from_micros(2_208_988_800_000_000).to_string(), "2040-01-01T00:00:00.000000Z");
    }
}
