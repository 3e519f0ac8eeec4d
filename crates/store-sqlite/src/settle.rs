//! Recording outcomes: published, to be tried again, invalid.
//!
//! Every change is conditional on the status, and addresses a row by `seq` and id together.

use std::time::Duration;

use posthaste_core::{
    Result, RouteKey, RowId, RowRef, Seq,
    port::{Settled, Settlement},
};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::{
    Shared,
    error::Doing,
    places::{Among, Place},
    tables::{NOW, Tables, UNDELIVERED},
};

/// Rows looked at, at most, to move `lowest` on after one batch of outcomes.
const STEP: u32 = 5_000;

/// The row at a place, unless it is published or gone.
const UNPUBLISHED: &str = "seq = ?1 AND CAST(id AS BLOB) = ?2 AND status NOT IN ('published', 'discarded')";

/// Marks as published, or deletes; answers how many rows changed.
pub(crate) fn mark(connection: &mut Connection, shared: &Shared, marked: &[RowRef]) -> Result<u64> {
    let doing = format!("marking rows of {}", shared.tables.rows);
    let transaction = begin(connection).doing(&doing)?;
    let changed = mark_in(&transaction, shared, marked).doing(&doing)?;
    advance(&transaction, &shared.tables).doing(&doing)?;
    transaction.commit().doing(&doing)?;
    shared.places.forget(marked);
    Ok(changed)
}

fn mark_in(transaction: &Transaction<'_>, shared: &Shared, marked: &[RowRef]) -> rusqlite::Result<u64> {
    let tables = &shared.tables;
    let ids: Vec<RowId> = marked.iter().map(|row| row.id).collect();
    let places = shared.places.of(transaction, tables, &ids, Among::Changeable)?;
    let same = |row: &&RowRef| places.get(&row.id).is_some_and(|place| place.seq == row.seq);
    let mut places: Vec<&Place> = marked.iter().filter(same).filter_map(|row| places.get(&row.id)).collect();
    // In the order of the table, whose pages are then written once.
    places.sort_unstable_by_key(|place| place.seq);
    if shared.deletes_published {
        return places.iter().try_fold(0, |sum, place| Ok(sum + delete(transaction, tables, place, UNPUBLISHED)?));
    }
    let mut update = transaction.prepare_cached(&format!(
        "UPDATE {} SET status = 'published', published_at = {NOW}, outstanding = NULL, last_error = NULL, \
         claimed_by = NULL, claim_token = NULL, claimed_until = NULL \
         WHERE {UNPUBLISHED}",
        tables.rows
    ))?;
    let mut changed = 0;
    for place in places {
        changed += update.execute(params![place.seq, place.stored_id])? as u64;
    }
    Ok(changed)
}

/// Records outcomes one by one, all in one transaction.
pub(crate) fn settle(connection: &mut Connection, shared: &Shared, settlements: &[Settlement]) -> Result<Vec<Settled>> {
    let doing = format!("settling rows of {}", shared.tables.rows);
    let transaction = begin(connection).doing(&doing)?;
    let ids: Vec<RowId> = settlements.iter().map(Settlement::id).collect();
    let places = shared.places.of(&transaction, &shared.tables, &ids, Among::Changeable).doing(&doing)?;
    let mut settled = Vec::with_capacity(settlements.len());
    for settlement in settlements {
        let changed = match places.get(&settlement.id()) {
            Some(place) => record(&transaction, &shared.tables, settlement, place).doing(&doing)?,
            None => 0,
        };
        settled.push(if changed == 0 { Settled::Stale } else { Settled::Done });
    }
    advance(&transaction, &shared.tables).doing(&doing)?;
    transaction.commit().doing(&doing)?;
    Ok(settled)
}

fn record(
    transaction: &Transaction<'_>,
    tables: &Tables,
    settlement: &Settlement,
    place: &Place,
) -> rusqlite::Result<usize> {
    let update = |set: &str| {
        let rows = &tables.rows;
        transaction.prepare_cached(&format!("UPDATE {rows} SET {set} WHERE {UNPUBLISHED}"))
    };
    let Place { seq, stored_id } = place;
    match settlement {
        Settlement::Progress { outstanding, .. } => {
            update("outstanding = ?3")?.execute(params![seq, stored_id, json(Some(outstanding))])
        }
        Settlement::Retry { due_in, counted, error, outstanding, .. } => update(&format!(
            "status = 'failed', attempts = attempts + ?3, last_error = ?4, outstanding = coalesce(?5, outstanding), \
             due_at = {NOW} + ?6"
        ))?
        .execute(params![seq, stored_id, counted, error, json(outstanding.as_ref()), micros(*due_in)]),
        Settlement::Invalid { counted, error, outstanding, .. } => update(
            "status = 'invalid', attempts = attempts + ?3, last_error = ?4, outstanding = coalesce(?5, outstanding)",
        )?
        .execute(params![seq, stored_id, counted, error, json(outstanding.as_ref())]),
        Settlement::Note { error, .. } => update("last_error = ?3")?.execute(params![seq, stored_id, error]),
    }
}

/// Deletes the row at `place` if `condition` holds. The highest row leaves an empty placeholder,
/// since SQLite would give its `seq` to the next event; the placeholder before it goes.
pub(crate) fn delete(
    transaction: &Transaction<'_>,
    tables: &Tables,
    place: &Place,
    condition: &str,
) -> rusqlite::Result<u64> {
    let (rows, meta) = (&tables.rows, &tables.meta);
    if place.seq < tables.highest(transaction)? {
        let sql = format!("DELETE FROM {rows} WHERE {condition}");
        return Ok(transaction.prepare_cached(&sql)?.execute(params![place.seq, place.stored_id])? as u64);
    }
    let empty = format!(
        "UPDATE {rows} SET status = 'discarded', idempotent = NULL, headers = '{{}}', outstanding = NULL, body = NULL \
         WHERE {condition}"
    );
    let changed = transaction.prepare_cached(&empty)?.execute(params![place.seq, place.stored_id])?;
    if changed > 0 {
        let sql = format!(
            "DELETE FROM {rows} WHERE seq = (SELECT placeholder FROM {meta}) AND seq < ?1 AND status = 'discarded'"
        );
        transaction.prepare_cached(&sql)?.execute([place.seq])?;
        transaction.prepare_cached(&format!("UPDATE {meta} SET placeholder = ?1"))?.execute([place.seq])?;
    }
    Ok(changed as u64)
}

/// Moves `lowest` on to the first undelivered row.
pub(crate) fn advance(transaction: &Transaction<'_>, tables: &Tables) -> rusqlite::Result<()> {
    let lowest = tables.lowest(transaction)?;
    let sql = format!("SELECT seq, {UNDELIVERED} FROM {} WHERE seq >= ?1 ORDER BY seq LIMIT {STEP}", tables.rows);
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query([lowest])?;
    let mut next = lowest;
    while let Some(row) = rows.next()? {
        let seq: Seq = row.get(0)?;
        if row.get(1)? {
            next = seq;
            break;
        }
        next = seq + 1;
    }
    if next > lowest {
        transaction.prepare_cached(&format!("UPDATE {} SET lowest = ?1", tables.meta))?.execute([next])?;
    }
    Ok(())
}

/// A transaction that holds the write lock from its start, so that it can't be refused later.
pub(crate) fn begin(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn json(routes: Option<&Vec<RouteKey>>) -> Option<String> {
    let routes: Vec<&str> = routes?.iter().map(RouteKey::as_str).collect();
    Some(serde_json::Value::from(routes).to_string())
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
