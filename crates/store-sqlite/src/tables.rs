//! The names of an outbox's tables, quoted, and the SQL fragments that every statement shares.

use posthaste_core::{OutboxName, Seq};
use rusqlite::{Connection, OptionalExtension as _};

/// The database's clock in microseconds, to the millisecond, in words that old SQLite versions of
/// other languages understand as well.
pub(crate) const NOW: &str = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)";

/// The same in milliseconds.
pub(crate) const MILLIS: &str = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)";

/// The condition of a row that is still to be delivered.
pub(crate) const UNDELIVERED: &str = "status IN ('pending', 'processing', 'failed')";

/// The tables of one outbox, quoted for SQL.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    /// The rows.
    pub rows: String,
    /// One row: schema version, lowest undelivered `seq`.
    pub meta: String,
    /// What operators changed.
    pub log: String,
    name: String,
}

impl Tables {
    pub fn new(outbox: &OutboxName) -> Tables {
        let name = outbox.table();
        Tables { rows: quoted(&name, ""), meta: quoted(&name, "_meta"), log: quoted(&name, "_log"), name }
    }

    /// The table of the rows as text, not as SQL.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A quoted name derived from the table's.
    pub fn derived(&self, suffix: &str) -> String {
        quoted(&self.name, suffix)
    }

    /// The lowest `seq` that an undelivered row can have.
    pub fn lowest(&self, connection: &Connection) -> rusqlite::Result<Seq> {
        let sql = format!("SELECT lowest FROM {}", self.meta);
        connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))
    }

    /// The highest `seq` that is taken; 0 in an empty table.
    pub fn highest(&self, connection: &Connection) -> rusqlite::Result<Seq> {
        let sql = format!("SELECT max(seq) FROM {}", self.rows);
        let highest: Option<Option<Seq>> =
            connection.prepare_cached(&sql)?.query_row([], |row| row.get(0)).optional()?;
        Ok(highest.flatten().unwrap_or(0))
    }
}

/// The database's clock now, in microseconds.
pub(crate) fn now(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached(&format!("SELECT {NOW}"))?.query_row([], |row| row.get(0))
}

// Outbox names hold no quotation mark.
fn quoted(name: &str, suffix: &str) -> String {
    format!("\"{name}{suffix}\"")
}
