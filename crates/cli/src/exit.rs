//! How a command ends: its exit code, and what it says on stderr.
//!
//! 0 done, 1 done but with findings or failures, 2 wrong usage or configuration, 3 a service is
//! unreachable. A closed pipe is a quiet end with 0.

use std::{io, io::Write, process::ExitCode};

use posthaste_core::{ErrorKind, EventError, options::ConfigError, port::EnqueueError};

/// A command that came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// All is well.
    Clean,
    /// Something was found, or not all could be done; it has been said.
    WithFindings,
}

/// Why a command did not come to its end.
#[derive(Debug)]
pub enum Fault {
    /// The reader of stdout is gone.
    ClosedPipe,
    /// Everything else.
    Failed {
        /// 1, 2 or 3.
        code: u8,
        /// What is wrong, and where.
        error: String,
        /// What to do.
        hint: Option<String>,
    },
}

impl Fault {
    /// Wrong usage, input or configuration.
    pub fn usage(error: impl Into<String>) -> Fault {
        Fault::Failed { code: 2, error: error.into(), hint: None }
    }

    /// A failure that is nobody's usage.
    pub fn failure(error: impl Into<String>) -> Fault {
        Fault::Failed { code: 1, error: error.into(), hint: None }
    }

    /// With what to do about it.
    pub fn hint(self, what_to_do: impl Into<String>) -> Fault {
        match self {
            Fault::Failed { code, error, .. } => Fault::Failed { code, error, hint: Some(what_to_do.into()) },
            closed => closed,
        }
    }

    /// With something before the error's text.
    pub fn context(self, before: &str) -> Fault {
        match self {
            Fault::Failed { code, error, hint } => Fault::Failed { code, error: format!("{before}: {error}"), hint },
            closed => closed,
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Fault::ClosedPipe,
            _ => Fault::failure(format!("writing to stdout: {error}")),
        }
    }
}

impl From<posthaste_core::Error> for Fault {
    fn from(error: posthaste_core::Error) -> Fault {
        let hint = error.what_to_do().map(str::to_owned);
        Fault::Failed { code: code_of(error.kind()), error: error.to_string(), hint }
    }
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Fault {
        Fault::usage(error.to_string())
    }
}

impl From<EventError> for Fault {
    fn from(error: EventError) -> Fault {
        Fault::usage(error.to_string())
    }
}

impl From<EnqueueError> for Fault {
    fn from(error: EnqueueError) -> Fault {
        match error {
            EnqueueError::Event { error, .. } => error.into(),
            EnqueueError::Conflict { id, .. } => {
                Fault::failure(format!("id {id} is taken by an event with other content"))
            }
            EnqueueError::Store(error) => error.into(),
        }
    }
}

fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Config | ErrorKind::MissingSchema | ErrorKind::UnknownSchema | ErrorKind::Unsupported => 2,
        ErrorKind::Unavailable => 3,
        ErrorKind::Conflict | ErrorKind::Corrupt | ErrorKind::Unknown => 1,
    }
}

/// Says what went wrong, and gives the exit code.
pub fn conclude(outcome: Result<Done, Fault>) -> ExitCode {
    match outcome {
        Ok(Done::Clean) | Err(Fault::ClosedPipe) => ExitCode::SUCCESS,
        Ok(Done::WithFindings) => ExitCode::from(1),
        Err(Fault::Failed { code, error, hint }) => {
            say(&format!("error: {error}"));
            if let Some(hint) = hint {
                say(&format!("hint: {hint}"));
            }
            ExitCode::from(code)
        }
    }
}

/// Talk goes to stderr; nobody has to listen.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_its_exit_code() {
        for (kind, code) in [
            (ErrorKind::Config, 2),
            (ErrorKind::MissingSchema, 2),
            (ErrorKind::UnknownSchema, 2),
            (ErrorKind::Unsupported, 2),
            (ErrorKind::Unavailable, 3),
            (ErrorKind::Conflict, 1),
            (ErrorKind::Corrupt, 1),
            (ErrorKind::Unknown, 1),
        ] {
            let fault = Fault::from(posthaste_core::Error::new(kind, "reading"));
            assert!(matches!(fault, Fault::Failed { code: is, .. } if is == code), "{kind:?}");
        }
    }

    #[test]
    fn report_151_a_closed_pipe_is_a_quiet_end() {
        let fault = Fault::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(fault, Fault::ClosedPipe));
        let fault = Fault::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(matches!(fault, Fault::Failed { code: 1, .. }));
    }
}
