//! The options of a webhook target.

use std::{sync::Arc, time::Duration};

use posthaste_core::options::{ConfigError, Options};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::{guard::Guard, request, signature::Signer};

const NAMES: [&str; 6] = ["secret", "allow", "timeout", "connect_timeout", "mode", "header"];

/// How a CloudEvent stands in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The body is the event's own, the attributes are `ce-` headers.
    #[default]
    Binary,
    /// The body is one JSON object with the attributes and the data.
    Structured,
}

/// What the options say.
#[derive(Clone)]
pub struct Settings {
    /// Signs with each `secret`.
    pub signer: Signer,
    /// What `allow` opens.
    pub guard: Arc<Guard>,
    /// The longest wait for an answer, where it is shorter than the deadline of a publication.
    pub timeout: Option<Duration>,
    /// The longest wait for a connection.
    pub connect_timeout: Duration,
    /// The form of a request.
    pub mode: Mode,
    /// Sent with every request: each `header`.
    pub headers: HeaderMap,
    /// Texts that must not show in what is logged.
    pub secrets: Vec<String>,
}

impl Settings {
    /// Reads all options.
    ///
    /// # Errors
    /// One that is unknown, given twice, or can't be used.
    pub fn read(mut options: Options) -> Result<Settings, ConfigError> {
        let mut secrets = options.take_all("secret");
        let signer = Signer::new(&secrets)?;
        let mut headers = HeaderMap::new();
        for line in options.take_all("header") {
            let (name, value) = header(&line)?;
            headers.append(name, value);
            secrets.extend(line.split_once(':').map(|(_, value)| value.trim().to_owned()));
        }
        let settings = Settings {
            signer,
            guard: Arc::new(Guard::parse(&options.take_all("allow"))?),
            timeout: duration("timeout", options.take("timeout")?)?,
            connect_timeout: duration("connect_timeout", options.take("connect_timeout")?)?
                .unwrap_or(Duration::from_secs(5)),
            mode: mode(options.take("mode")?)?,
            headers,
            secrets,
        };
        options.finish(&NAMES)?;
        Ok(settings)
    }
}

fn mode(value: Option<String>) -> Result<Mode, ConfigError> {
    match value.as_deref() {
        None | Some("binary") => Ok(Mode::Binary),
        Some("structured") => Ok(Mode::Structured),
        Some(other) => Err(bad("mode", format!("{other:?} is neither binary nor structured"))),
    }
}

/// `Name: value`. The value may be a secret, so no error shows it.
fn header(line: &str) -> Result<(HeaderName, HeaderValue), ConfigError> {
    let (name, value) = line.split_once(':').ok_or_else(|| bad("header", "write it as `Name: value`".to_owned()))?;
    let name = name.trim();
    let unusable = |what: &str| bad("header", format!("{name:?} {what}"));
    let parsed = HeaderName::try_from(name).map_err(|_| unusable("is no header name"))?;
    if request::is_ours(&parsed) {
        return Err(unusable("is set by Posthaste or by the HTTP connection"));
    }
    let mut value =
        HeaderValue::try_from(value.trim()).map_err(|_| unusable("has a value that a header can't carry"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

/// `500ms`, `5s`, `1m`; a bare number is seconds.
fn duration(name: &str, value: Option<String>) -> Result<Option<Duration>, ConfigError> {
    let Some(text) = value else { return Ok(None) };
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let millis = unit.zip(digits.parse::<u64>().ok()).and_then(|(unit, number)| number.checked_mul(unit));
    match millis {
        Some(millis) if millis > 0 => Ok(Some(Duration::from_millis(millis))),
        _ => Err(bad(name, format!("{text:?} is no duration above zero; write 500ms, 5s or 1m"))),
    }
}

fn bad(name: &str, detail: String) -> ConfigError {
    ConfigError::Option { name: name.to_owned(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        let mut options = Options::default();
        pairs.iter().for_each(|(name, value)| options.add(*name, *value));
        Settings::read(options)
    }

    #[test]
    fn options_and_their_defaults() {
        let default = read(&[]).unwrap();
        assert_eq!((default.timeout, default.connect_timeout), (None, Duration::from_secs(5)));
        assert_eq!((default.mode, default.headers.len()), (Mode::Binary, 0));
        let set = read(&[("timeout", "500ms"), ("connect_timeout", "2"), ("mode", "structured"), ("header", "X-A: 1")]);
        let set = set.unwrap();
        assert_eq!((set.timeout, set.connect_timeout), (Some(Duration::from_millis(500)), Duration::from_secs(2)));
        assert_eq!(set.mode, Mode::Structured);
        assert_eq!(set.headers["x-a"], "1");
    }

    #[test]
    fn what_can_t_be_used_is_refused_by_name_and_no_secret_shows() {
        for (name, value, text) in [
            ("timeout", "5 parsecs", "5s"),
            ("timeout", "0", "above zero"),
            ("timeout", "99999999999999999999", "timeout"),
            ("mode", "batched", "structured"),
            ("header", "no colon", "Name: value"),
            ("header", "ce-id: hunter2", "set by Posthaste"),
            ("header", "Content-Length: hunter2", "set by Posthaste"),
            ("header", "A B: hunter2", "no header name"),
            ("header", "X-A: hunter2\r\nX-B: 1", "can't carry"),
            ("allow", "localhost", "10.0.0.0/8"),
            ("secrt", "hunter2", "did you mean secret?"),
        ] {
            let error = read(&[(name, value)]).err().unwrap().to_string();
            assert!(error.contains(text) && !error.contains("hunter2"), "{name}={value}: {error}");
        }
    }
}
