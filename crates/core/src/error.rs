//! Errors of stores.

use std::{error::Error as StdError, fmt};

/// What kind of thing went wrong, and so who can do something about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// The URL, an option, or the rights of the user are wrong.
    Config,
    /// The server does not answer, or answers that it can't now. Trying again is right.
    Unavailable,
    /// The outbox's tables are not there; `migrate` makes them.
    MissingSchema,
    /// The schema is of a version that this build does not know.
    UnknownSchema,
    /// A concurrent transaction won; the caller's isolation level decides what that means.
    Conflict,
    /// The store can't do this.
    Unsupported,
    /// What was read makes no sense.
    Corrupt,
    /// None of these.
    Unknown,
}

/// What a store could not do, and why. One line by `Display`; the cause is in `source`.
pub struct Error {
    kind: ErrorKind,
    doing: String,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` while `doing` something (`reading a page of orders_outbox`).
    #[must_use]
    pub fn new(kind: ErrorKind, doing: impl Into<String>) -> Error {
        Error { kind, doing: doing.into(), hint: None, source: None }
    }

    /// With its cause.
    #[must_use]
    pub fn because(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error { source: Some(source.into()), ..self }
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Error {
        Error { hint: Some(hint.into()), ..self }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn what_to_do(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.doing)?;
        let mut cause: Option<&(dyn StdError + 'static)> =
            self.source.as_deref().map(|source| source as &(dyn StdError + 'static));
        let mut said = String::new();
        while let Some(error) = cause {
            let text = error.to_string();
            // Many drivers repeat their cause in their own text.
            if !said.contains(&text) {
                write!(f, ": {text}")?;
                said.push_str(&text);
            }
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("doing", &self.doing)
            .field("hint", &self.hint)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
