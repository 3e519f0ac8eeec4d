//! What SQLite's errors mean, and what to do about them.

use posthaste_core::{Error, ErrorKind, Result};
use rusqlite::ErrorCode;

/// Says what was being done when SQLite refused.
pub(crate) trait Doing<T> {
    /// The error of SQLite as one of the store, `doing` something.
    fn doing(self, doing: &str) -> Result<T>;
}

impl<T> Doing<T> for rusqlite::Result<T> {
    fn doing(self, doing: &str) -> Result<T> {
        self.map_err(|error| explain(error, doing))
    }
}

/// The store's error for `error`, met while `doing` something.
pub(crate) fn explain(error: rusqlite::Error, doing: &str) -> Error {
    let (kind, hint) = classify(&error);
    let explained = Error::new(kind, doing).because(error);
    match hint {
        Some(hint) => explained.hint(hint),
        None => explained,
    }
}

fn classify(error: &rusqlite::Error) -> (ErrorKind, Option<&'static str>) {
    if error.to_string().contains("no such table") {
        return (ErrorKind::MissingSchema, Some("create the outbox with `posthaste migrate`"));
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, Some("another process holds the file's write lock; look for a long transaction"))
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::Unavailable, Some("free space on the file's disk")),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OperationInterrupted | ErrorCode::OutOfMemory) => {
            (ErrorKind::Unavailable, None)
        }
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
            (ErrorKind::Config, Some("the file and its directory must be writable by this user"))
        }
        Some(ErrorCode::NotADatabase) => {
            (ErrorKind::Config, Some("the file is no SQLite database, or an encrypted one"))
        }
        Some(ErrorCode::DatabaseCorrupt) => (ErrorKind::Corrupt, Some("restore the file from a backup")),
        _ => (ErrorKind::Unknown, None),
    }
}

/// The store's error for one that sqlx met while `doing` something.
#[cfg(feature = "sqlx")]
pub(crate) fn explain_sqlx(error: sqlx::Error, doing: &str) -> Error {
    // The primary result code is the low byte of what SQLite answers.
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok()).map(|code| code & 0xff);
    let kind = match code {
        _ if error.to_string().contains("no such table") => ErrorKind::MissingSchema,
        Some(
            rusqlite::ffi::SQLITE_BUSY
            | rusqlite::ffi::SQLITE_LOCKED
            | rusqlite::ffi::SQLITE_FULL
            | rusqlite::ffi::SQLITE_IOERR,
        ) => ErrorKind::Unavailable,
        _ => ErrorKind::Unknown,
    };
    Error::new(kind, doing).because(error)
}
