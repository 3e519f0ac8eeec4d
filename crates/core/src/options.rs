//! Options of a target, from its URL and its entry in the configuration.

use std::collections::BTreeMap;

use crate::address::BadTemplate;

/// Options by name, each with one or more values, taken out one by one by the transport that knows
/// them; what is left over is an error.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options(BTreeMap<String, Vec<String>>);

/// What is wrong with a target's or a store's configuration. Never shows a secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The URL can't be used.
    #[error("{url}: {detail}")]
    Url {
        /// The URL, redacted.
        url: String,
        /// What is wrong with it, and what to write instead.
        detail: String,
    },
    /// An option has a value that can't be used.
    #[error("option {name}: {detail}")]
    Option {
        /// The option.
        name: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Nobody knows the option.
    #[error("unknown option {name}{}", suggestion.as_ref().map(|s| format!("; did you mean {s}?")).unwrap_or_default())]
    Unknown {
        /// The option.
        name: String,
        /// The nearest one that exists.
        suggestion: Option<String>,
    },
    /// A template has a placeholder that does not exist.
    #[error(transparent)]
    Template(#[from] BadTemplate),
}

impl Options {
    /// Adds a value.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.entry(name.into()).or_default().push(value.into());
    }

    /// Takes out an option that may be given once.
    ///
    /// # Errors
    /// It was given more than once.
    pub fn take(&mut self, name: &str) -> Result<Option<String>, ConfigError> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(mut values) if values.len() == 1 => Ok(values.pop()),
            Some(_) => Err(ConfigError::Option { name: name.to_owned(), detail: "given more than once".to_owned() }),
        }
    }

    /// Takes out an option that may be given often.
    pub fn take_all(&mut self, name: &str) -> Vec<String> {
        self.0.remove(name).unwrap_or_default()
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// An option is left that nobody took; `known` is what it may have meant.
    pub fn finish(self, known: &[&str]) -> Result<(), ConfigError> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(ConfigError::Unknown { suggestion: nearest(&name, known), name }),
        }
    }
}

/// The candidate that differs least from `word`, if any is near enough to be meant.
#[must_use]
pub fn nearest(word: &str, candidates: &[&str]) -> Option<String> {
    let limit = (word.len() / 3).max(1) + 1;
    candidates
        .iter()
        .map(|candidate| (strsim::levenshtein(word, candidate), *candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_nobody_knows_is_refused_with_the_one_that_was_meant() {
        let mut options = Options::default();
        options.add("exchnage", "e");
        options.add("allow", "10.0.0.0/8");
        options.add("allow", "127.0.0.0/8");
        assert_eq!(options.take_all("allow").len(), 2);
        let error = options.finish(&["exchange", "routing_key"]).unwrap_err().to_string();
        assert_eq!(error, "unknown option exchnage; did you mean exchange?");
        assert_eq!(nearest("zzz", &["exchange"]), None);
    }
}
