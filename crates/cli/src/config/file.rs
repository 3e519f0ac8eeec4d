//! The configuration file as it stands: its keys and their texts with the lines they are on. What
//! the texts mean is decided in [`super::resolve`].

use std::collections::BTreeMap;

use posthaste_core::options::nearest;
use serde::Deserialize;
use serde_saphyr::{Error, Spanned};

/// A value as it is written.
pub type Text = Spanned<String>;

/// The whole file.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    pub store: Option<Text>,
    pub outboxes: Option<Vec<Text>>,
    pub outbox: Option<Outbox>,
    pub coordination: Option<Coordination>,
    pub retry: Option<Retry>,
    pub publish_timeout: Option<Text>,
    pub targets: Option<BTreeMap<String, BTreeMap<String, Values>>>,
    pub routes: Option<BTreeMap<String, BTreeMap<String, Text>>>,
}

/// `outbox:`
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Outbox {
    pub interval: Option<Text>,
    pub batch: Option<Text>,
    pub retention: Option<Text>,
    pub defer: Option<Text>,
    pub max_body: Option<Text>,
    pub mark_delay: Option<Text>,
}

/// `coordination:`
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Coordination {
    pub strategy: Option<Text>,
    pub ownership: Option<Text>,
    pub interval: Option<Text>,
    pub arbiter: Option<Text>,
}

/// `retry:`
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    pub max_attempts: Option<Text>,
    pub permanent_attempts: Option<Text>,
    pub misrouted_for: Option<Text>,
}

/// One value, or a list of them.
#[derive(Deserialize, Debug)]
#[serde(untagged)]
pub enum Values {
    One(String),
    Many(Vec<String>),
}

/// Parses the text of a file.
///
/// # Errors
/// What is wrong, with its line, and for an unknown key the one that was meant.
pub fn parse(text: &str) -> Result<File, String> {
    // Some editors put a byte order mark there.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Ok(File::default());
    }
    let strict = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, strict).map_err(|error| describe(error.without_snippet()))
}

fn describe(error: &Error) -> String {
    match error {
        Error::SerdeUnknownField { field, expected, location } => {
            let meant = nearest(field, expected)
                .map_or_else(|| format!("known here: {}", expected.join(", ")), |name| format!("did you mean {name}?"));
            format!("line {}: unknown key {field}; {meant}", location.line())
        }
        Error::DuplicateMappingKey { key: Some(key), location } => {
            format!("line {}: {key} is given twice in one place", location.line())
        }
        other => {
            let text = other.render();
            other.location().map_or_else(
                || text.clone(),
                |at| {
                    let place = format!(" at line {}, column {}", at.line(), at.column());
                    format!("line {}: {}", at.line(), text.replace(&place, ""))
                },
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_one_that_was_meant() {
        let error = parse("store: sqlite:a.db\noutbox:\n  intervall: 5s\n").unwrap_err();
        assert_eq!(error, "line 3: unknown key intervall; did you mean interval?");
        let error = parse("sotre: sqlite:a.db").unwrap_err();
        assert_eq!(error, "line 1: unknown key sotre; did you mean store?");
        let error = parse("coordination: { zzzzzzzzzz: 1 }").unwrap_err();
        assert_eq!(error, "line 1: unknown key zzzzzzzzzz; known here: strategy, ownership, interval, arbiter");
    }

    #[test]
    fn texts_are_kept_as_they_are_written() {
        let file = parse("outbox: { batch: 200, retention: 1d, defer: false, interval: '5000' }").unwrap();
        let outbox = file.outbox.unwrap();
        let texts = [outbox.batch, outbox.retention, outbox.defer, outbox.interval].map(|text| text.unwrap().value);
        assert_eq!(texts, ["200", "1d", "false", "5000"]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_key() {
        assert_eq!(parse("\u{feff}store: sqlite:a.db\n").unwrap().store.unwrap().value, "sqlite:a.db");
        assert!(parse("\u{feff}").unwrap().store.is_none());
    }

    #[test]
    fn empty_sections_and_files_set_nothing() {
        assert!(parse("outbox:\ntargets:\n").unwrap().outbox.is_none());
        assert!(parse("# nothing\n").unwrap().store.is_none());
        assert!(parse("").unwrap().store.is_none());
    }

    #[test]
    fn a_key_given_twice_and_broken_yaml_are_refused_with_their_line() {
        let said = |key: &str, line| format!("line {line}: {key} is given twice in one place");
        assert_eq!(parse("store: a\nstore: b\n").unwrap_err(), said("store", 2));
        assert_eq!(parse("outbox:\n  batch: 1\n  defer: true\n  batch: 2\n").unwrap_err(), said("batch", 4));
        let error = parse("targets:\n  t: { url: \"stdout:\" }\n  t: { url: \"stdout:\" }\n").unwrap_err();
        assert_eq!(error, said("t", 3));
        let error = parse("routes:\n  r:\n    match: a\n    when: b\n    match: c\n").unwrap_err();
        assert_eq!(error, said("match", 5));
        let error = parse("store: [a\n").unwrap_err();
        assert!(error.starts_with("line "), "{error}");
    }
}
