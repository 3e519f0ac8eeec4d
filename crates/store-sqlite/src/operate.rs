//! What operators change, with a record of who did it and why in the same transaction.

use async_trait::async_trait;
use posthaste_core::{
    Result, RowId,
    port::{By, Filter, Operate, OperateReport, PruneRequest, Selection},
};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params, params_from_iter};

use crate::{
    Shared, SqliteStore,
    connect::durably,
    error::Doing,
    filter::{Conditions, has_status},
    places::{Among, Place},
    prune, rows,
    settle::{advance, begin, delete},
    tables::NOW,
};

/// The statuses that an operator may change.
const CHANGEABLE: &str = "status IN ('pending', 'failed', 'invalid')";

/// A change that an operator asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Retry,
    Discard,
}

#[async_trait]
impl Operate for SqliteStore {
    async fn retry(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport> {
        self.operate(Change::Retry, selection, by, limit).await
    }

    async fn discard(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport> {
        self.operate(Change::Discard, selection, by, limit).await
    }

    async fn count(&self, selection: &Selection) -> Result<u64> {
        let (shared, selection) = (self.shared.clone(), selection.clone());
        let doing = format!("counting rows of {}", shared.tables.rows);
        self.inspector.run(move |connection| matched(connection, &shared, &selection).doing(&doing)).await
    }

    async fn prune(&self, request: &PruneRequest, limit: u32) -> Result<u64> {
        prune::check(request)?;
        let doing = format!("pruning {}", self.shared.tables.rows);
        let (tables, wanted, looking) = (self.shared.tables.clone(), request.clone(), doing.clone());
        let find = move |connection: &mut Connection| prune::find(connection, &tables, &wanted, limit).doing(&looking);
        let old = self.inspector.run(find).await?;
        if old.is_empty() {
            return Ok(0);
        }
        let (tables, status) = (self.shared.tables.clone(), request.status);
        self.writer.run(move |connection| prune::delete(connection, &tables, status, &old).doing(&doing)).await
    }

    async fn count_prunable(&self, request: &PruneRequest) -> Result<u64> {
        prune::check(request)?;
        let (shared, request) = (self.shared.clone(), request.clone());
        let doing = format!("counting old rows of {}", shared.tables.rows);
        self.inspector.run(move |connection| prune::count(connection, &shared.tables, &request).doing(&doing)).await
    }
}

impl SqliteStore {
    async fn operate(&self, change: Change, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport> {
        let (shared, selection, by) = (self.shared.clone(), selection.clone(), by.clone());
        let report = self.writer.run(move |connection| {
            let doing = format!("{} rows of {}", change.word(), shared.tables.rows);
            durably(connection, |connection| operate(connection, &shared, change, &selection, &by, limit))
                .doing(&doing)?
                .doing(&doing)
        });
        let report = report.await?;
        if report.changed > 0 {
            self.bell.ring(true);
        }
        Ok(report)
    }
}

impl Change {
    fn word(self) -> &'static str {
        match self {
            Change::Retry => "retry",
            Change::Discard => "discard",
        }
    }

    /// The rows that it would change: those that are due anyway gain nothing from a retry.
    fn needs(self) -> String {
        match self {
            Change::Retry => format!("(status <> 'pending' OR attempts > 0 OR due_at > {NOW})"),
            Change::Discard => "true".to_owned(),
        }
    }
}

fn operate(
    connection: &mut Connection,
    shared: &Shared,
    change: Change,
    selection: &Selection,
    by: &By,
    limit: u32,
) -> rusqlite::Result<OperateReport> {
    let transaction = begin(connection)?;
    let matched = matched(&transaction, shared, selection)?;
    let places = choose(&transaction, shared, selection, &change.needs(), limit)?;
    let mut changed = 0;
    for place in &places {
        log(&transaction, shared, change, by, place)?;
        changed += match change {
            Change::Retry => retry(&transaction, shared, place)?,
            Change::Discard => {
                let condition = format!("seq = ?1 AND CAST(id AS BLOB) = ?2 AND {CHANGEABLE}");
                delete(&transaction, &shared.tables, place, &condition)?
            }
        };
    }
    // After a discard, what waited behind the rows may go.
    if changed > 0 {
        transaction.execute(&format!("UPDATE {} SET rewinds = rewinds + 1", shared.tables.meta), [])?;
    }
    advance(&transaction, &shared.tables)?;
    transaction.commit()?;
    Ok(OperateReport { matched, changed })
}

/// A dead letter goes to the end of the outbox: what came after it in its key has been delivered.
fn retry(transaction: &Transaction<'_>, shared: &Shared, place: &Place) -> rusqlite::Result<u64> {
    let rows = &shared.tables.rows;
    let sql = format!(
        "UPDATE {rows} SET status = 'pending', attempts = 0, due_at = {NOW}, \
         seq = CASE WHEN status = 'invalid' THEN (SELECT max(seq) + 1 FROM {rows}) ELSE seq END \
         WHERE seq = ?1 AND CAST(id AS BLOB) = ?2 AND {CHANGEABLE}"
    );
    Ok(transaction.prepare_cached(&sql)?.execute(params![place.seq, place.stored_id])? as u64)
}

fn log(transaction: &Transaction<'_>, shared: &Shared, change: Change, by: &By, place: &Place) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT INTO {} (who, why, action, id, seq, type, ordering_key, status) \
         SELECT ?1, ?2, ?3, id, seq, type, ordering_key, status FROM {} WHERE seq = ?4 AND CAST(id AS BLOB) = ?5",
        shared.tables.log, shared.tables.rows
    );
    let parameters = params![by.who, by.why, change.word(), place.seq, place.stored_id];
    transaction.prepare_cached(&sql)?.execute(parameters).map(|_| ())
}

/// How many rows of the selection an operator may change.
fn matched(connection: &Connection, shared: &Shared, selection: &Selection) -> rusqlite::Result<u64> {
    match selection {
        Selection::Ids(ids) => Ok(among_ids(connection, shared, ids, "true")?.len() as u64),
        Selection::Matching(filter) => {
            let (from, conditions) = changeable(shared, filter, "true");
            let sql = format!("SELECT count(*) FROM ({from})");
            let mut statement = connection.prepare_cached(&sql)?;
            let count: i64 = statement.query_row(params_from_iter(conditions.values), |row| row.get(0))?;
            Ok(count.unsigned_abs())
        }
    }
}

/// At most `limit` of those rows for which `needs` holds, in the order of the table.
fn choose(
    connection: &Connection,
    shared: &Shared,
    selection: &Selection,
    needs: &str,
    limit: u32,
) -> rusqlite::Result<Vec<Place>> {
    match selection {
        Selection::Ids(ids) => {
            let mut places = among_ids(connection, shared, ids, needs)?;
            places.truncate(limit as usize);
            Ok(places)
        }
        Selection::Matching(filter) => {
            let (from, conditions) = changeable(shared, filter, needs);
            let mut statement = connection.prepare_cached(&format!("{from} ORDER BY seq LIMIT {limit}"))?;
            let places = statement.query_map(params_from_iter(conditions.values), |row| {
                Ok(Place { seq: row.get(0)?, stored_id: rows::id(row.get_ref(1)?).bytes() })
            })?;
            places.collect()
        }
    }
}

fn among_ids(connection: &Connection, shared: &Shared, ids: &[RowId], needs: &str) -> rusqlite::Result<Vec<Place>> {
    let places = shared.places.of(connection, &shared.tables, ids, Among::Changeable)?;
    let sql = format!(
        "SELECT 1 FROM {} WHERE seq = ?1 AND CAST(id AS BLOB) = ?2 AND {CHANGEABLE} AND {needs}",
        shared.tables.rows
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = Vec::new();
    for place in places.into_values() {
        if statement.query_row(params![place.seq, place.stored_id], |_| Ok(())).optional()?.is_some() {
            found.push(place);
        }
    }
    found.sort_unstable_by_key(|place| place.seq);
    Ok(found)
}

/// Undelivered rows from the first one on, and the dead letters by their index.
fn changeable(shared: &Shared, filter: &Filter, needs: &str) -> (String, Conditions) {
    let (rows, meta) = (&shared.tables.rows, &shared.tables.meta);
    let conditions = Conditions::matching(filter);
    let status = has_status(filter.status);
    let also = format!("{status} AND {needs}{}", conditions.sql());
    let sql = format!(
        "SELECT seq, id FROM {rows} WHERE seq >= (SELECT lowest FROM {meta}) AND status IN ('pending', 'failed') \
         AND {also} UNION ALL SELECT seq, id FROM {rows} WHERE status = 'invalid' AND {also}"
    );
    (sql, conditions)
}
