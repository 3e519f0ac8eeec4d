//! Instants as stores give them: microseconds since the Unix epoch, UTC.

use std::{fmt, time::Duration};

use chrono::{DateTime, SecondsFormat, Utc};

/// Microseconds since the Unix epoch by the database's clock. Never taken from this process's wall clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(i64);

/// 0001-01-01T00:00:00Z
const FIRST: i64 = -62_135_596_800_000_000;
/// 9999-12-31T23:59:59.999999Z
const LAST: i64 = 253_402_300_799_999_999;

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

/// RFC 3339, UTC, microseconds. What lies outside the years that it can write, 0001 to 9999, is shown as
/// the first or last instant of them.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = DateTime::<Utc>::from_timestamp_micros(self.0.clamp(FIRST, LAST)).unwrap_or_default();
        f.write_str(&written.to_rfc3339_opts(SecondsFormat::Micros, true))
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
    fn what_rfc_3339_cannot_write_is_shown_as_its_first_or_last_instant() {
        let (first, last) = ("0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z");
        for (micros, written) in [
            (i64::MIN, first),
            (-211_813_488_000_000_000, first),
            (FIRST, first),
            (FIRST + 1, "0001-01-01T00:00:00.000001Z"),
            (LAST, last),
            (LAST + 1, last),
            (i64::MAX, last),
        ] {
            assert_eq!(Timestamp::from_micros(micros).to_string(), written, "{micros}");
        }
    }

    #[test]
    fn report_083_years_after_2038_print() {
        assert_eq!(Timestamp::from_micros(2_208_988_800_000_000).to_string(), "2040-01-01T00:00:00.000000Z");
    }
}
