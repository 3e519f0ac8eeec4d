//! The name of an outbox, and of the table that holds it.

use std::{fmt, str::FromStr};

/// The name of an outbox; may be empty (the unnamed outbox). A name is accepted only if every
/// store can hold it, so that all commands refuse the same names with the same words.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OutboxName(String);

/// Why a text is no outbox name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "outbox name {0:?} can't be used: 1 to {max} of the characters A-Z a-z 0-9 _ - . and space, not starting or ending with a space",
    max = OutboxName::MAX_BYTES
)]
pub struct BadOutboxName(String);

impl OutboxName {
    /// Longest name, so that every table and index name derived from it fits in every store.
    pub const MAX_BYTES: usize = 40;

    /// The unnamed outbox, whose table is `outbox`.
    #[must_use]
    pub fn unnamed() -> OutboxName {
        OutboxName::default()
    }

    /// The name; empty for the unnamed outbox.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The table's name, unquoted: `{name}_outbox`, or `outbox`.
    #[must_use]
    pub fn table(&self) -> String {
        if self.0.is_empty() { "outbox".to_owned() } else { format!("{}_outbox", self.0) }
    }
}

impl FromStr for OutboxName {
    type Err = BadOutboxName;

    fn from_str(name: &str) -> Result<OutboxName, BadOutboxName> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
        let fits = (1..=OutboxName::MAX_BYTES).contains(&name.len());
        if !fits || !name.chars().all(allowed) || name.trim() != name {
            return Err(BadOutboxName(name.to_owned()));
        }
        Ok(OutboxName(name.to_owned()))
    }
}

/// The name, or `outbox` for the unnamed one.
impl fmt::Display for OutboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "outbox" } else { &self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_145_names_are_refused_up_front_or_used_as_they_stand() {
        for good in ["Outbox", "my-schema", "order", "a b"] {
            assert_eq!(good.parse::<OutboxName>().unwrap().table(), format!("{good}_outbox"));
        }
        for bad in ["schéma", &"x".repeat(60), "", " a", "a\0b", "a\"b"] {
            assert!(bad.parse::<OutboxName>().unwrap_err().to_string().contains("can't be used"), "{bad}");
        }
        assert_eq!(OutboxName::unnamed().table(), "outbox");
    }
}
