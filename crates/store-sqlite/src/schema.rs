//! Creating and checking the tables of an outbox.
//!
//! `migrate` runs in one transaction that holds the write lock from its start, so any number of
//! processes may run it at once.

use std::{thread, time::Instant};

use async_trait::async_trait;
use posthaste_core::{
    Error, ErrorKind, Result,
    port::{Schema, SchemaState},
};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use crate::{
    SqliteStore,
    connect::{BUSY_TIMEOUT, durably},
    error::Doing,
    tables::{MILLIS, NOW, Tables},
};

/// The version of the schema that this build works with.
pub(crate) const VERSION: u32 = 1;

#[async_trait]
impl Schema for SqliteStore {
    async fn schema(&self) -> Result<SchemaState> {
        if !self.shared.database.exists()? {
            return Ok(SchemaState::EmptyDatabase);
        }
        let shared = self.shared.clone();
        self.inspector.run(move |connection| state(connection, &shared.tables)).await
    }

    /// Makes the file if there is none, and gives it write-ahead logging.
    async fn migrate(&self) -> Result<()> {
        let shared = self.shared.clone();
        self.writer
            .run_at_desk(move |desk| {
                let connection = desk.connection(true)?;
                let doing = format!("creating {}", shared.tables.rows);
                log_ahead(connection).doing(&doing)?;
                durably(connection, |connection| create(connection, &shared.tables)).doing(&doing)?
            })
            .await
    }

    fn sql(&self) -> String {
        sql(&self.shared.tables)
    }
}

fn sql(tables: &Tables) -> String {
    let names = [
        ("{rows}", tables.rows.clone()),
        ("{meta}", tables.meta.clone()),
        ("{log}", tables.log.clone()),
        ("{idempotent}", tables.derived("_idempotent")),
        ("{dead}", tables.derived("_dead")),
        ("{reopened}", tables.derived("_reopened")),
        ("{shrunk}", tables.derived("_shrunk")),
        ("{now}", NOW.to_owned()),
        ("{millis}", MILLIS.to_owned()),
        ("{version}", VERSION.to_string()),
    ];
    names.iter().fold(include_str!("sql/create.sql").to_owned(), |sql, (mark, name)| sql.replace(mark, name))
}

fn state(connection: &Connection, tables: &Tables) -> Result<SchemaState> {
    let doing = format!("looking for {}", tables.rows);
    let objects = "SELECT count(*) FROM sqlite_master";
    let objects: i64 = connection.query_row(objects, [], |row| row.get(0)).doing(&doing)?;
    if objects == 0 {
        return Ok(SchemaState::EmptyDatabase);
    }
    if !has_columns(connection, &format!("{}_meta", tables.name()), &["one", "version", "lowest"]).doing(&doing)? {
        return without_version(connection, tables).doing(&doing)?.map_or(Ok(SchemaState::Missing), Err);
    }
    let version = format!("SELECT version FROM {}", tables.meta);
    let version: u32 = connection.query_row(&version, [], |row| row.get(0)).doing(&doing)?;
    Ok(match version {
        VERSION => SchemaState::Current,
        older if older < VERSION => SchemaState::Older(older),
        newer => SchemaState::Newer(newer),
    })
}

fn has_columns(connection: &Connection, table: &str, columns: &[&str]) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    for column in columns {
        if statement.query_row([table, column], |_| Ok(())).optional()?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether something that is no outbox bears a name that this one needs.
fn without_version(connection: &Connection, tables: &Tables) -> rusqlite::Result<Option<Error>> {
    let name = tables.name();
    let there = "SELECT type, name FROM sqlite_master WHERE name IN (?1, ?2, ?3) COLLATE NOCASE LIMIT 1";
    let names = [name.to_owned(), format!("{name}_meta"), format!("{name}_log")];
    let found: Option<(String, String)> =
        connection.query_row(there, names, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(found.map(|(kind, name)| {
        let text = format!("{kind} {name:?} is there and is no outbox of Posthaste; it was left as it is");
        Error::new(ErrorKind::UnknownSchema, text).hint("rename it, or give the outbox another name with --outbox NAME")
    }))
}

fn create(connection: &mut Connection, tables: &Tables) -> Result<()> {
    let doing = format!("creating {}", tables.rows);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).doing(&doing)?;
    match state(&transaction, tables)? {
        SchemaState::Current => return Ok(()),
        SchemaState::Newer(version) | SchemaState::Older(version) => return Err(unknown(tables, version)),
        SchemaState::Missing | SchemaState::EmptyDatabase => {}
    }
    transaction.execute_batch(&sql(tables)).doing(&doing)?;
    transaction.commit().doing(&doing)
}

fn unknown(tables: &Tables, version: u32) -> Error {
    Error::new(
        ErrorKind::UnknownSchema,
        format!("{} has schema version {version}, this build knows {VERSION}", tables.rows),
    )
    .hint("use the version of Posthaste that made it, or a newer one")
}

/// Switching the journal takes the file alone and does not wait for it by itself.
fn log_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Err(error) if is_busy(&error) && Instant::now() < deadline => thread::sleep(BUSY_TIMEOUT / 500),
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}
