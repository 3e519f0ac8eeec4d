//! Deleting old rows, a few at a time.
//!
//! They are looked for outside the transaction that deletes them, so that writers wait for the
//! deletion alone. The highest row stays: SQLite would use its `seq` again.

use posthaste_core::{Error, ErrorKind, Result, Seq, Status, port::PruneRequest};
use rusqlite::{Connection, params};

use crate::{
    settle::{begin, micros},
    tables::{Tables, now},
};

/// Refuses what must never be deleted.
pub(crate) fn check(request: &PruneRequest) -> Result<()> {
    match request.status {
        Status::Published | Status::Invalid => Ok(()),
        status => {
            Err(Error::new(ErrorKind::Unsupported, format!("pruning {status} rows: they are still to be delivered"))
                .hint("prune published or invalid rows; `posthaste discard` drops undelivered ones"))
        }
    }
}

/// At most `limit` rows that are old enough, in the order of the table.
pub(crate) fn find(
    connection: &mut Connection,
    tables: &Tables,
    request: &PruneRequest,
    limit: u32,
) -> rusqlite::Result<Vec<Seq>> {
    let mut found = Vec::new();
    each(connection, tables, request, |seq| {
        found.push(seq);
        found.len() < limit as usize
    })?;
    found.truncate(limit as usize);
    Ok(found)
}

/// How many rows are old enough.
pub(crate) fn count(connection: &mut Connection, tables: &Tables, request: &PruneRequest) -> rusqlite::Result<u64> {
    let mut count = 0;
    each(connection, tables, request, |_| {
        count += 1;
        true
    })?;
    Ok(count)
}

/// Deletes them, if they still have the status.
pub(crate) fn delete(
    connection: &mut Connection,
    tables: &Tables,
    status: Status,
    old: &[Seq],
) -> rusqlite::Result<u64> {
    let transaction = begin(connection)?;
    let rows = &tables.rows;
    let sql = format!("DELETE FROM {rows} WHERE seq = ?1 AND status = ?2 AND seq < (SELECT max(seq) FROM {rows})");
    let mut deleted = 0;
    for seq in old {
        deleted += transaction.prepare_cached(&sql)?.execute(params![seq, status.as_str()])? as u64;
    }
    transaction.commit()?;
    Ok(deleted)
}

/// Calls `found` for each old row until it says that it has enough.
fn each(
    connection: &mut Connection,
    tables: &Tables,
    request: &PruneRequest,
    mut found: impl FnMut(Seq) -> bool,
) -> rusqlite::Result<()> {
    let snapshot = connection.transaction()?;
    let oldest_kept = now(&snapshot)?.saturating_sub(micros(request.older_than));
    let highest = tables.highest(&snapshot)?;
    let sql = match request.status {
        Status::Invalid => format!(
            "SELECT seq, created_at, true FROM {} WHERE status = 'invalid' AND seq < ?1 AND created_at < ?2 ORDER BY seq",
            tables.rows
        ),
        _ => format!(
            "SELECT seq, created_at, status = 'published' AND published_at < ?2 FROM {} WHERE seq < ?1 ORDER BY seq",
            tables.rows
        ),
    };
    let mut statement = snapshot.prepare_cached(&sql)?;
    let mut rows = statement.query([highest, oldest_kept])?;
    while let Some(row) = rows.next()? {
        // A row that is younger was published later still, and so were those after it.
        if row.get::<_, i64>(1)? >= oldest_kept {
            break;
        }
        if row.get::<_, Option<bool>>(2)? == Some(true) && !found(row.get(0)?) {
            break;
        }
    }
    Ok(())
}
