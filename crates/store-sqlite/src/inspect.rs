//! Looking at an outbox. No statement here reads a body but that of `get`; the body is the last
//! column, so that SQLite never follows it to its overflow pages.

use async_trait::async_trait;
use posthaste_core::{
    Result, Row, RowId, Seq, Status, Timestamp,
    port::{Access, Filter, Inspect, OutboxStatus},
};
use rusqlite::{Connection, MAIN_DB, OptionalExtension as _, named_params, params_from_iter};

use crate::{
    Shared, SqliteStore,
    connect::Database,
    error::Doing,
    filter::{Conditions, has_status},
    hold::{holder, lock_path},
    places::{Among, Place},
    rows::{self, BODY, COLUMNS, WITHOUT_BODY},
    tables::{UNDELIVERED, now},
};

/// Rows of history that are counted exactly; beyond that the count is an estimate.
const HISTORY: i64 = 1_000_000;
/// Deferred types that are named.
const NAMED_TYPES: u32 = 100;

#[async_trait]
impl Inspect for SqliteStore {
    async fn status(&self) -> Result<OutboxStatus> {
        let shared = self.shared.clone();
        self.inspector.run(move |connection| status(connection, &shared)).await
    }

    async fn list(&self, filter: &Filter, after: Seq, limit: u32) -> Result<Vec<Row>> {
        let (shared, filter) = (self.shared.clone(), filter.clone());
        self.inspector
            .run(move |connection| {
                let doing = format!("listing {}", shared.tables.rows);
                list(connection, &shared, &filter, after, limit).doing(&doing)
            })
            .await
    }

    async fn get(&self, id: RowId) -> Result<Option<Row>> {
        let shared = self.shared.clone();
        self.inspector
            .run(move |connection| {
                let doing = format!("looking for {id} in {}", shared.tables.rows);
                get(connection, &shared, id).doing(&doing)
            })
            .await
    }

    async fn predecessor(&self, row: &Row) -> Result<Option<Row>> {
        let Some(key) = row.key.clone() else { return Ok(None) };
        let (shared, seq) = (self.shared.clone(), row.seq);
        self.inspector
            .run(move |connection| {
                let doing = format!("looking for the rows of key {key:?} in {}", shared.tables.rows);
                predecessor(connection, &shared, &key, seq).doing(&doing)
            })
            .await
    }

    async fn access(&self) -> Result<Access> {
        self.inspector.run(|connection| access(connection).doing("looking at the rights")).await
    }
}

/// A file that this user may not write is opened for reading without a word.
fn access(connection: &Connection) -> rusqlite::Result<Access> {
    let lacking =
        if connection.is_readonly(MAIN_DB)? { vec!["writing: the file is read-only".to_owned()] } else { vec![] };
    Ok(Access { server: format!("SQLite {}", rusqlite::version()), lacking })
}

fn status(connection: &mut Connection, shared: &Shared) -> Result<OutboxStatus> {
    let doing = format!("counting {}", shared.tables.rows);
    let snapshot = connection.transaction().doing(&doing)?;
    let lowest = shared.tables.lowest(&snapshot).doing(&doing)?;
    let mut status = OutboxStatus::default();
    count_from(&snapshot, shared, lowest, &mut status).doing(&doing)?;
    count_history(&snapshot, shared, lowest, &mut status).doing(&doing)?;
    status.deferred_types = deferred_types(&snapshot, shared, lowest).doing(&doing)?;
    if let Database::File(database) = &shared.database {
        status.relays.extend(holder(&lock_path(database, &shared.outbox)));
    }
    Ok(status)
}

/// Counts the rows from the first undelivered one on.
fn count_from(
    connection: &Connection,
    shared: &Shared,
    lowest: Seq,
    status: &mut OutboxStatus,
) -> rusqlite::Result<()> {
    let sql = format!(
        "SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'processing'), \
         count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE status = 'published'), \
         min(created_at) FILTER (WHERE {UNDELIVERED}) FROM {} WHERE seq >= ?1",
        shared.tables.rows
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let oldest: Option<i64> = statement.query_row([lowest], |row| {
        status.pending = row.get::<_, i64>(0)?.unsigned_abs();
        status.processing = row.get::<_, i64>(1)?.unsigned_abs();
        status.failed = row.get::<_, i64>(2)?.unsigned_abs();
        status.published = row.get::<_, i64>(3)?.unsigned_abs();
        row.get(4)
    })?;
    let now = Timestamp::from_micros(now(connection)?);
    status.oldest_pending = oldest.map(|oldest| now.since(Timestamp::from_micros(oldest)));
    Ok(())
}

/// Counts what lies before the first undelivered row: published rows and dead letters.
fn count_history(
    connection: &Connection,
    shared: &Shared,
    lowest: Seq,
    status: &mut OutboxStatus,
) -> rusqlite::Result<()> {
    let rows = &shared.tables.rows;
    let count = |sql: String, seq: Seq| -> rusqlite::Result<i64> {
        connection.prepare_cached(&sql)?.query_row([seq], |row| row.get(0))
    };
    status.invalid =
        count(format!("SELECT count(*) FROM {rows} WHERE status = 'invalid' AND seq >= ?1"), i64::MIN)?.unsigned_abs();
    let span = count(format!("SELECT coalesce(?1 - min(seq), 0) FROM {rows}"), lowest)?.max(0);
    let before = if span <= HISTORY {
        count(format!("SELECT count(*) FROM {rows} WHERE status = 'published' AND seq < ?1"), lowest)?
    } else {
        status.published_is_estimate = true;
        span - count(format!("SELECT count(*) FROM {rows} WHERE status = 'invalid' AND seq < ?1"), lowest)?
    };
    status.published += before.unsigned_abs();
    Ok(())
}

/// Types whose rows a relay left alone with a note that begins with the word of their class.
fn deferred_types(connection: &Connection, shared: &Shared, lowest: Seq) -> rusqlite::Result<Vec<String>> {
    let sql = format!(
        "SELECT DISTINCT type FROM {} WHERE seq >= ?1 AND {UNDELIVERED} AND last_error GLOB '{}*' LIMIT {NAMED_TYPES}",
        shared.tables.rows,
        posthaste_core::Class::Defer.as_str()
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut types: Vec<String> = statement.query_map([lowest], |row| row.get(0))?.collect::<Result<_, _>>()?;
    types.sort_unstable();
    Ok(types)
}

fn list(
    connection: &Connection,
    shared: &Shared,
    filter: &Filter,
    after: Seq,
    limit: u32,
) -> rusqlite::Result<Vec<Row>> {
    let undelivered = filter.status.is_some_and(Status::is_undelivered);
    let after = if undelivered { after.max(shared.tables.lowest(connection)? - 1) } else { after };
    let mut conditions = Conditions::matching(filter);
    conditions.add("seq >", after);
    let sql = format!(
        "SELECT {COLUMNS}, {WITHOUT_BODY} FROM {} WHERE {}{} ORDER BY seq LIMIT {limit}",
        shared.tables.rows,
        has_status(filter.status),
        conditions.sql()
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(conditions.values), |row| rows::read(row).map(|(row, _)| row))?;
    rows.collect()
}

fn get(connection: &Connection, shared: &Shared, id: RowId) -> rusqlite::Result<Option<Row>> {
    let place = match idempotent(connection, shared, id)? {
        Some(place) => Some(place),
        None => shared.places.of(connection, &shared.tables, &[id], Among::Kept)?.remove(&id),
    };
    let Some(place) = place else { return Ok(None) };
    let sql = format!(
        "SELECT {COLUMNS}, {BODY} FROM {} WHERE seq = :seq AND CAST(id AS BLOB) = :id AND status <> 'discarded'",
        shared.tables.rows
    );
    let parameters = named_params! {":seq": place.seq, ":id": place.stored_id, ":max_body": i64::MAX};
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_row(parameters, |row| rows::read(row).map(|(row, _)| row)).optional()
}

fn idempotent(connection: &Connection, shared: &Shared, id: RowId) -> rusqlite::Result<Option<Place>> {
    let sql = format!("SELECT seq, id FROM {} WHERE idempotent = 1 AND id = ?1", shared.tables.rows);
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_row([id.to_string()], |row| Ok(Place { seq: row.get(0)?, stored_id: rows::id(row.get_ref(1)?).bytes() }))
        .optional()
}

fn predecessor(connection: &Connection, shared: &Shared, key: &str, seq: Seq) -> rusqlite::Result<Option<Row>> {
    let sql = format!(
        "SELECT {COLUMNS}, {WITHOUT_BODY} FROM {} WHERE seq >= (SELECT lowest FROM {}) AND seq < ?1 \
         AND ordering_key = ?2 AND {UNDELIVERED} ORDER BY seq LIMIT 1",
        shared.tables.rows, shared.tables.meta
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_row((seq, key), |row| rows::read(row).map(|(row, _)| row)).optional()
}
