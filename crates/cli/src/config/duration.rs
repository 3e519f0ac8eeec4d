//! Durations as people write them: `5s`, `1h30m`, `1.5 s`, `1d`, or a bare number.

use std::time::Duration;

/// What a bare number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bare {
    /// Milliseconds: intervals.
    Millis,
    /// Seconds: retention, delays.
    Seconds,
}

const UNITS: [(&str, f64); 12] = [
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("sec", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
    ("w", 604_800.0),
    ("day", 86_400.0),
    ("days", 86_400.0),
];

/// Parses a duration of at most a thousand years.
///
/// # Errors
/// What is wrong with the text, and what may be written.
pub fn parse(text: &str, bare: Bare) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no duration; write 250ms, 5s, 10m, 1h30m or 7d");
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        let unit = if bare == Bare::Millis { 1e-3 } else { 1.0 };
        return in_range(number * unit).ok_or_else(bad);
    }
    let (mut seconds, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[..letters]).ok_or_else(bad)?;
        seconds += number * unit;
        rest = rest[letters..].trim_start();
    }
    if text.is_empty() { Err(bad()) } else { in_range(seconds).ok_or_else(bad) }
}

fn in_range(seconds: f64) -> Option<Duration> {
    const LONGEST: f64 = 1_000.0 * 366.0 * 86_400.0;
    if !(0.0..=LONGEST).contains(&seconds) {
        return None;
    }
    // Whole microseconds, the finest unit of the stores; 0.1 s must not become 99,999 µs.
    Some(Duration::from_micros((seconds * 1e6).round() as u64))
}

/// A duration in the form that [`parse`] reads, in the largest unit that leaves a whole number.
pub fn show(duration: Duration) -> String {
    let micros = duration.as_micros();
    let units = [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    let whole = units.iter().find(|(size, _)| micros >= *size && micros.is_multiple_of(*size));
    whole.map_or_else(
        || if micros == 0 { "0s".to_owned() } else { format!("{micros}us") },
        |(size, unit)| format!("{}{unit}", micros / size),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        for (text, millis) in [
            ("5s", 5_000),
            ("250ms", 250),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("0.1 s", 100),
            ("1h 30m", 5_400_000),
            ("1d", 86_400_000),
            ("2w", 1_209_600_000),
            (" 10min ", 600_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse(text, Bare::Seconds), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn rows_r47_a_bare_number_takes_the_unit_of_its_source() {
        assert_eq!(parse("5000", Bare::Millis), Ok(Duration::from_secs(5)));
        assert_eq!(parse("3600", Bare::Seconds), Ok(Duration::from_secs(3_600)));
    }

    #[test]
    fn tw_27_what_is_no_duration_is_refused_with_what_may_be_written() {
        for text in ["", " ", "abc", "5x", "-5s", "-1", "5s3", "1e99d", "NaN", "inf", "s", "1..5s", "999999d"] {
            let error = parse(text, Bare::Seconds).unwrap_err();
            assert!(error.contains("1h30m"), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        for micros in [0, 1, 250_000, 1_500_000, 5_000_000, 90_000_000, 86_400_000_000] {
            let duration = Duration::from_micros(micros);
            assert_eq!(parse(&show(duration), Bare::Seconds), Ok(duration), "{}", show(duration));
        }
    }
}
