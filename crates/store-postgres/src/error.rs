//! What a driver's error means, decided from its SQLSTATE.

use posthaste_core::{Error, ErrorKind};

/// The store's error for what went wrong while `doing` something.
pub(crate) fn explain(doing: impl Into<String>, error: tokio_postgres::Error) -> Error {
    let (kind, hint) = meaning(&error);
    let grant = error.as_db_error().and_then(|error| grant(error.code().code(), error.message()));
    let explained = Error::new(kind, doing).because(error);
    match (grant, hint) {
        (Some(grant), _) => explained.hint(grant),
        (None, Some(hint)) => explained.hint(hint),
        (None, None) => explained,
    }
}

/// What must be run where the user lacks a right. What the right is about stands in the server's text alone, and
/// is known only where that is in English.
fn grant(code: &str, message: &str) -> Option<String> {
    if code != "42501" {
        return None;
    }
    let object = message.strip_prefix("permission denied for ").and_then(|object| object.split_once(' '));
    let rights = match object {
        Some(("table" | "relation" | "view", name)) if name.ends_with("_log") => {
            format!("SELECT, INSERT ON \"{name}\"")
        }
        Some(("table" | "relation" | "view", name)) => format!("SELECT, INSERT, UPDATE, DELETE ON \"{name}\""),
        Some(("sequence", name)) => format!("USAGE ON SEQUENCE \"{name}\""),
        Some(("function", name)) => format!("EXECUTE ON FUNCTION \"{name}\""),
        Some(("schema", name)) => format!("USAGE, CREATE ON SCHEMA \"{name}\""),
        Some(("database", name)) => format!("CONNECT ON DATABASE \"{name}\""),
        _ => return Some("ask the owner of the tables to GRANT this user the right".to_owned()),
    };
    Some(format!("a relay's and an operator's user needs it, as a writer's needs INSERT: GRANT {rights} TO \"USER\""))
}

/// A store error for sqlx's side of the same server.
#[cfg(feature = "sqlx")]
pub(crate) fn explain_sqlx(doing: impl Into<String>, error: sqlx::Error) -> Error {
    let (kind, hint) = match error.as_database_error().and_then(|error| error.code()) {
        Some(code) => meaning_of_code(&code),
        None if matches!(error, sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed) => {
            (ErrorKind::Unavailable, None)
        }
        None => (ErrorKind::Unknown, None),
    };
    let grant = error.as_database_error().and_then(|error| grant(&error.code()?, error.message()));
    let explained = Error::new(kind, doing).because(error);
    match (grant, hint) {
        (Some(grant), _) => explained.hint(grant),
        (None, Some(hint)) => explained.hint(hint),
        (None, None) => explained,
    }
}

/// A store error for diesel's side of the same server, which keeps the SQLSTATE to itself.
#[cfg(feature = "diesel")]
pub(crate) fn explain_diesel(doing: impl Into<String>, error: diesel::result::Error) -> Error {
    use diesel::result::{DatabaseErrorKind, Error::DatabaseError};
    let (kind, hint) = match &error {
        DatabaseError(DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand, _) => {
            (ErrorKind::Unavailable, None)
        }
        DatabaseError(DatabaseErrorKind::SerializationFailure, _) => (ErrorKind::Conflict, None),
        DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => (ErrorKind::Unavailable, Some(READ_ONLY)),
        DatabaseError(_, text) if text.message().starts_with("relation \"") => {
            (ErrorKind::MissingSchema, Some(MIGRATE))
        }
        _ => (ErrorKind::Unknown, None),
    };
    let explained = Error::new(kind, doing).because(error);
    if let Some(hint) = hint { explained.hint(hint) } else { explained }
}

/// A store error for sea-orm's side of the same server. Its drivers' kinds are behind features of the
/// caller's; the SQLSTATE is not to be had without them.
#[cfg(feature = "sea-orm")]
pub(crate) fn explain_sea_orm(doing: impl Into<String>, error: sea_orm::DbErr) -> Error {
    let missing = error.to_string().contains("does not exist");
    let kind = match &error {
        sea_orm::DbErr::Conn(_) | sea_orm::DbErr::ConnectionAcquire(_) => ErrorKind::Unavailable,
        _ if missing => ErrorKind::MissingSchema,
        _ => ErrorKind::Unknown,
    };
    let explained = Error::new(kind, doing).because(error);
    if missing { explained.hint(MIGRATE) } else { explained }
}

/// Whether the transaction lost against a concurrent one and may be run again from its start.
pub(crate) fn lost_a_race(code: &str) -> bool {
    matches!(code, "40001" | "40P01")
}

const MIGRATE: &str = "run `posthaste migrate --store URL --outbox NAME` as the owner of the tables";
const TAKEN: &str = "something else in the database bears a name that the outbox needs; rename it, or give the outbox \
    another name with --outbox NAME";
const POOLER: &str =
    "this looks like a connection pooler in transaction mode; give the relay the URL of the server itself";
const READ_ONLY: &str = "the server is a replica, or the database is read-only; name the primary in the URL";

fn meaning(error: &tokio_postgres::Error) -> (ErrorKind, Option<&'static str>) {
    if let Some(code) = error.code() {
        return meaning_of_code(code.code());
    }
    // The driver keeps its own kinds to itself; its texts are all there is.
    match error.to_string().as_str() {
        "authentication error" | "invalid configuration" | "invalid connection string" => (ErrorKind::Config, None),
        "error performing TLS handshake" if !broke_off(error) => (ErrorKind::Config, None),
        "error performing TLS handshake" | "error communicating with the server" | "connection closed" => {
            (ErrorKind::Unavailable, None)
        }
        "error connecting to server" | "timeout waiting for server" => (ErrorKind::Unavailable, None),
        text if text.starts_with("error deserializing column") => (ErrorKind::Corrupt, None),
        _ => (ErrorKind::Unknown, None),
    }
}

/// Whether a handshake failed because the connection went, not because of what was agreed on.
fn broke_off(error: &tokio_postgres::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|io| io.kind() != std::io::ErrorKind::InvalidData)
}

fn meaning_of_code(code: &str) -> (ErrorKind, Option<&'static str>) {
    match code {
        "42P01" => (ErrorKind::MissingSchema, Some(MIGRATE)),
        "42P07" | "42710" => (ErrorKind::UnknownSchema, Some(TAKEN)),
        "42703" => (ErrorKind::UnknownSchema, Some(MIGRATE)),
        "26000" | "42P05" => (ErrorKind::Config, Some(POOLER)),
        "25006" => (ErrorKind::Unavailable, Some(READ_ONLY)),
        "28000" | "28P01" | "3D000" | "3F000" | "42501" => (ErrorKind::Config, None),
        code if lost_a_race(code) => (ErrorKind::Conflict, None),
        "57014" | "55P03" => (ErrorKind::Unavailable, None),
        code if ["08", "53", "58"].contains(&&code[..2]) || code.starts_with("57P") => (ErrorKind::Unavailable, None),
        _ => (ErrorKind::Unknown, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_that_is_lacking_comes_with_the_grant_that_gives_it() {
        for (message, said) in [
            ("permission denied for table outbox", "GRANT SELECT, INSERT, UPDATE, DELETE ON \"outbox\" TO"),
            ("permission denied for table my orders_outbox_log", "GRANT SELECT, INSERT ON \"my orders_outbox_log\" TO"),
            ("permission denied for schema public", "GRANT USAGE, CREATE ON SCHEMA \"public\" TO"),
            ("permission denied for function outbox_enqueue", "GRANT EXECUTE ON FUNCTION \"outbox_enqueue\" TO"),
            ("keine Berechtigung für Tabelle outbox", "GRANT this user the right"),
            ("must be owner of table outbox", "GRANT this user the right"),
        ] {
            let hint = grant("42501", message).unwrap();
            assert!(hint.contains(said), "{hint}");
        }
        assert_eq!(grant("42P01", "permission denied for table outbox"), None);
    }

    #[test]
    fn codes_say_who_can_do_something_about_it() {
        for (codes, kind) in [
            (["57P01", "53300", "08006", "57014"], ErrorKind::Unavailable),
            (["28P01", "3D000", "42501", "26000"], ErrorKind::Config),
            (["40001", "40P01", "40001", "40P01"], ErrorKind::Conflict),
            (["23505", "XX000", "22021", "25P02"], ErrorKind::Unknown),
        ] {
            assert!(codes.iter().all(|code| meaning_of_code(code).0 == kind), "{kind:?}");
        }
        let (kind, hint) = meaning_of_code("42P01");
        assert!(kind == ErrorKind::MissingSchema && hint.unwrap().contains("posthaste migrate --store"));
    }
}
