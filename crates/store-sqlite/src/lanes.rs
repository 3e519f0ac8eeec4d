//! Reading and settling as the relay does it.
//!
//! There is one writer at a time, so rows become visible in the order of their `seq`: a cursor
//! never passes a row that can still appear. All rows are in one lane.

use std::{fs::OpenOptions, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use posthaste_core::{
    Error, ErrorKind, Lane, LaneSet, Proof, Result, Row, RowRef, Seq, Timestamp,
    port::{Lanes, Marked, Page, ReadRequest, Settled, Settlement, Wakeups},
};
use rusqlite::{Connection, named_params};

use crate::{
    Shared, SqliteStore,
    connect::Database,
    error::Doing,
    rows::{self, BODY, COLUMNS, LANE, StoredId},
    settle,
    tables::{UNDELIVERED, now},
};

#[async_trait]
impl Lanes for SqliteStore {
    async fn read(&self, request: ReadRequest) -> Result<Page> {
        let shared = self.shared.clone();
        self.reader.run(move |connection| read(connection, &shared, &request)).await
    }

    async fn mark(&self, rows: &[RowRef]) -> Result<Marked> {
        let (shared, rows) = (self.shared.clone(), rows.to_vec());
        let changed = self.writer.run(move |connection| settle::mark(connection, &shared, &rows)).await?;
        Ok(Marked { changed, transaction: None })
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let (shared, settlements) = (self.shared.clone(), settlements.to_vec());
        self.writer.run(move |connection| settle::settle(connection, &shared, &settlements)).await
    }

    fn wakeups(&self) -> Arc<dyn Wakeups> {
        self.bell.clone()
    }
}

fn read(connection: &mut Connection, shared: &Shared, request: &ReadRequest) -> Result<Page> {
    let doing = format!("reading a page of {}", shared.tables.rows);
    let transaction = connection.transaction().doing(&doing)?;
    let now = Timestamp::from_micros(now(&transaction).doing(&doing)?);
    let page = |rows, more| Page { rows, more, now, proof: Proof::Ordered };
    let Some(cursor) = cursor(&request.from) else { return Ok(page(Vec::new(), LaneSet::EMPTY)) };
    let lowest = shared.tables.lowest(&transaction).doing(&doing)?;
    let (rows, more) = take(&transaction, shared, request, cursor.max(lowest - 1)).doing(&doing)?;
    drop(transaction);
    if !rows.is_empty() {
        make_lasting(&shared.database)?;
    }
    let more = if more { LaneSet::from_iter([LANE]) } else { LaneSet::EMPTY };
    shared.places.remember(rows.iter().map(|(row, stored)| (row.id, row.seq, stored.odd.clone())));
    Ok(page(rows.into_iter().map(|(row, _)| row).collect(), more))
}

fn cursor(from: &[(Lane, Seq)]) -> Option<Seq> {
    from.iter().find(|(lane, _)| *lane == LANE).map(|(_, seq)| *seq)
}

/// Rows after `cursor` up to the limits, and whether there are more.
fn take(
    connection: &Connection,
    shared: &Shared,
    request: &ReadRequest,
    cursor: Seq,
) -> rusqlite::Result<(Vec<(Row, StoredId)>, bool)> {
    let most = request.per_lane.min(request.max_rows) as usize;
    let sql = format!(
        "SELECT {COLUMNS}, {BODY} FROM {} WHERE seq > :cursor AND {UNDELIVERED} ORDER BY seq",
        shared.tables.rows
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let max_body = i64::try_from(request.max_body).unwrap_or(i64::MAX);
    let mut found = statement.query(named_params! {":cursor": cursor, ":max_body": max_body})?;
    let (mut taken, mut bytes) = (Vec::new(), 0_u64);
    while let Some(row) = found.next()? {
        if taken.len() >= most {
            return Ok((taken, true));
        }
        let row = rows::read(row)?;
        bytes += row.0.body.len() as u64;
        if bytes > request.max_bytes && !taken.is_empty() {
            return Ok((taken, true));
        }
        taken.push(row);
    }
    Ok((taken, false))
}

/// An application that commits with `synchronous=NORMAL` may lose its last transactions in a power
/// failure. What is about to be published must not be among them: the log is synced first.
fn make_lasting(database: &Database) -> Result<()> {
    let Database::File(path) = database else { return Ok(()) };
    let mut log = path.clone().into_os_string();
    log.push("-wal");
    let log = PathBuf::from(log);
    match OpenOptions::new().write(true).open(&log).and_then(|file| file.sync_data()) {
        // Without a log every commit went to the file itself.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::new(ErrorKind::Unavailable, format!("syncing {}", log.display())).because(error)),
        Ok(()) => Ok(()),
    }
}
