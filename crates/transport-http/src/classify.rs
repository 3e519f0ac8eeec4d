//! What an answer, or the lack of one, means for the row.

use std::{error::Error, time::Duration};

use posthaste_core::{Failure, failure::Class};
use reqwest::{
    StatusCode,
    header::{DATE, HeaderMap, RETRY_AFTER},
};

/// The longest pause that a target can ask for.
pub const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// Most bytes of an answer's text that a failure repeats.
const EXCERPT: usize = 200;

/// What an answer means. `now` is in seconds since 1970, used only where the answer has no date.
///
/// # Errors
/// It is not in the 200s.
pub fn answer(status: StatusCode, headers: &HeaderMap, body: &[u8], now: u64) -> Result<(), Failure> {
    if status.is_success() {
        return Ok(());
    }
    let class = class(status.as_u16());
    let pause = if class == Class::Transient { retry_after(headers, now) } else { None };
    Err(Failure::new(class, describe(status, headers, body)).retry_after(pause))
}

fn class(status: u16) -> Class {
    match status {
        // They judge the address, which a deployment may repair.
        404 | 405 => Class::Misrouted,
        // They judge the moment. 521 to 526 and 530 are a proxy's words for a dead origin.
        408 | 421 | 425 | 429 | 502..=504 | 521..=526 | 530 | 598 | 599 => Class::Transient,
        // They judge the credentials, which an operator may repair.
        401..=403 | 407 => Class::Unknown,
        // They judge the message, or say that the address is gone for good.
        400..=499 => Class::Permanent,
        _ => Class::Unknown,
    }
}

fn describe(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let mut detail = format!("HTTP {}", status.as_u16());
    if let Some(reason) = status.canonical_reason() {
        detail = format!("{detail} {reason}");
    }
    if status.is_redirection() {
        let location = headers.get("location").map(|value| excerpt(value.as_bytes())).unwrap_or_default();
        return format!(
            "{detail}: redirects are not followed; write the final URL in the target (it names {location:?})"
        );
    }
    let text = excerpt(body);
    if text.is_empty() { detail } else { format!("{detail}: {text}") }
}

/// The pause that an answer asks for: seconds or a date; nothing where it is neither, or over.
fn retry_after(headers: &HeaderMap, now: u64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are still a number.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        // By the target's own clock where it tells it: ours may differ.
        let target_now = headers.get(DATE).and_then(|date| seconds(date.to_str().ok()?)).unwrap_or(now);
        Duration::from_secs(seconds(text)?.saturating_sub(target_now))
    };
    (!pause.is_zero()).then_some(pause.min(MAX_PAUSE))
}

fn seconds(date: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(date).ok()?;
    time.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// What a failed exchange means. Only what is known to have failed before the request was sent
/// counts as not delivered.
#[must_use]
pub fn error(error: reqwest::Error) -> Failure {
    let error = error.without_url();
    let detail = chain(&error);
    if error.is_connect() || error.is_builder() {
        Failure::new(Class::Transient, format!("no connection: {detail}"))
    } else {
        Failure::lost(format!("the connection was lost before an answer came: {detail}"))
    }
}

/// An error and its causes on one line, without repetitions.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !texts.iter().any(|said| said.contains(&text)) {
            texts.push(text);
        }
        cause = error.source();
    }
    texts.join(": ")
}

/// The start of a foreign text, safe to print: one line, no control characters.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT)]);
    // What the cut left of a last character.
    let text = if bytes.len() > EXCERPT { text.trim_end_matches('\u{fffd}') } else { &text };
    let mut shown = String::with_capacity(text.len());
    for c in text.trim().chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use posthaste_core::failure::Outcome;
    use reqwest::header::HeaderValue;

    use super::*;

    const NOW: u64 = 1_767_323_045;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn failure(status: u16, pairs: &[(&'static str, &str)], body: &str) -> Failure {
        answer(StatusCode::from_u16(status).unwrap(), &headers(pairs), body.as_bytes(), NOW).unwrap_err()
    }

    #[test]
    fn report_094_every_status_has_its_class() {
        for status in [200, 201, 202, 204, 206, 299] {
            assert_eq!(answer(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), b"", NOW), Ok(()));
        }
        for (class, statuses) in [
            (Class::Permanent, &[400, 406, 409, 410, 411, 413, 414, 415, 418, 422, 431, 451][..]),
            (Class::Misrouted, &[404, 405]),
            (Class::Transient, &[408, 421, 425, 429, 502, 503, 504, 521, 522, 523, 524, 530]),
            (Class::Unknown, &[300, 301, 302, 304, 307, 308, 401, 402, 403, 407, 500, 501, 505, 508, 520, 600, 999]),
        ] {
            for status in statuses {
                let failure = failure(*status, &[], "");
                assert_eq!((failure.class, failure.outcome), (class, Outcome::NotDelivered), "{status}");
            }
        }
    }

    #[test]
    fn report_094_retry_after_in_every_form() {
        let date = |seconds: u64| httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(seconds));
        for (value, pause) in [
            ("3", Some(3)),
            (" 3 ", Some(3)),
            (date(NOW + 5).as_str(), Some(5)),
            (date(NOW - 5).as_str(), None),
            (date(NOW + 1_000_000).as_str(), Some(3600)),
            ("Friday, 02-Jan-26 03:04:10 GMT", Some(5)),
            ("-1", None),
            ("0", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
            ("999999999", Some(3600)),
            ("99999999999999999999999", Some(3600)),
        ] {
            let expected = pause.map(Duration::from_secs);
            for status in [429, 503] {
                assert_eq!(failure(status, &[("retry-after", value)], "").retry_after, expected, "{value:?}");
            }
            assert_eq!(failure(410, &[("retry-after", value)], "").retry_after, None);
        }
        let by_its_clock = [("retry-after", &*date(NOW + 905)), ("date", &*date(NOW + 900))];
        assert_eq!(failure(503, &by_its_clock, "").retry_after, Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_failure_repeats_the_answer_s_text_short_and_printable() {
        let body = format!("no such\r\ncustomer \u{1b}[31m {}", "é".repeat(500));
        let detail = failure(422, &[], &body).detail;
        assert!(detail.starts_with(r"HTTP 422 Unprocessable Entity: no such\r\ncustomer \u{1b}[31m éé"), "{detail}");
        assert!(detail.len() < 260 && !detail.contains('\u{fffd}') && !detail.contains('\u{1b}'), "{detail}");
        assert_eq!(failure(410, &[], " ").detail, "HTTP 410 Gone");
        let redirect = failure(302, &[("location", "http://127.0.0.1/")], "moved").detail;
        assert!(redirect.contains("not followed") && redirect.contains("http://127.0.0.1/"), "{redirect}");
    }
}
