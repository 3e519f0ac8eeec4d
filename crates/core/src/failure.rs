//! What went wrong with a publication, and what that means for the row.

use std::time::Duration;

/// What a failure means. Decided where the fact is known, the transport, and acted on in one
/// place, the relay.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// The target can't take anything right now: unreachable, throttled, blocked, silent. Never
    /// counted; enough of them pause the target.
    Transient,
    /// The target will never take this message: too large, refused. The row becomes `invalid`.
    Permanent,
    /// An answer that can't be classified. Counted; `invalid` after `retry.max_attempts`.
    Unknown,
    /// The address leads nowhere: no exchange, no queue bound, no topic. Counted; pauses the
    /// route; `invalid` only after `retry.misrouted_for`.
    Misrouted,
    /// Not this process's to judge: a target or a version it does not know. Left alone, warned.
    Defer,
    /// The user's `when` or `payload` failed on the event. Nothing of the row is sent; retried
    /// for ever with a backoff, and never `invalid`.
    Render,
}

impl Class {
    /// The word in metrics, logs and `last_error`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Transient => "transient",
            Class::Permanent => "permanent",
            Class::Unknown => "unknown",
            Class::Misrouted => "misrouted",
            Class::Defer => "deferred",
            Class::Render => "render",
        }
    }
}

/// Whether the target may have taken the message in spite of the failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It was not taken: never sent, or refused by an answer.
    NotDelivered,
    /// The connection or channel was lost with the message in flight.
    Lost,
    /// No answer came before the deadline.
    NoAnswer,
}

/// Why a message has not been published.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {detail}", class.as_str())]
pub struct Failure {
    /// What it means.
    pub class: Class,
    /// Whether it may have been delivered all the same.
    pub outcome: Outcome,
    /// What the target said, without secrets.
    pub detail: String,
    /// How long the target asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of a message that was not taken.
    #[must_use]
    pub fn new(class: Class, detail: impl Into<String>) -> Failure {
        Failure { class, outcome: Outcome::NotDelivered, detail: detail.into(), retry_after: None }
    }

    /// The connection was lost with the message in flight: it may have been taken.
    #[must_use]
    pub fn lost(detail: impl Into<String>) -> Failure {
        Failure { outcome: Outcome::Lost, ..Failure::new(Class::Transient, detail) }
    }

    /// No answer came before the deadline: it may have been taken.
    #[must_use]
    pub fn no_answer(detail: impl Into<String>) -> Failure {
        Failure { outcome: Outcome::NoAnswer, ..Failure::new(Class::Transient, detail) }
    }

    /// With the pause that the target asked for.
    #[must_use]
    pub fn retry_after(self, pause: Option<Duration>) -> Failure {
        Failure { retry_after: pause, ..self }
    }
}
