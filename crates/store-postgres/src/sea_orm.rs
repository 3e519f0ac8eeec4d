//! The same in the caller's own transaction of sea-orm.

use posthaste_core::{
    Event,
    port::{EnqueueError, Receipt},
};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, Statement, Value};

use crate::{
    Outbox,
    batch::{Batch, Columns, Present},
    error::explain_sea_orm,
};

impl Outbox {
    /// [`Outbox::enqueue`] in a transaction of sea-orm, with one statement an event: its values know no
    /// arrays of bytes.
    ///
    /// # Errors
    /// As of [`Outbox::enqueue`].
    ///
    /// # Cancellation
    /// Any of them may have been written; the transaction decides, as ever.
    pub async fn enqueue_sea_orm(&self, tx: &DatabaseTransaction, events: &[Event]) -> Result<Receipt, EnqueueError> {
        let mut batch = Batch::new(events, self.limits)?;
        let doing = format!("writing to {}", self.names.table());
        while let Some(columns) = batch.next_round(&doing)? {
            let written = insert(tx, &self.names.sql(&batch.insert_rows(true)), columns).await;
            batch.wrote(&written.map_err(|error| explain_sea_orm(&doing, error))?);
            let Some(ids) = batch.missing() else { break };
            let present = present(tx, &self.names.sql(PRESENT), &ids).await;
            let Err(conflict) = batch.meet(&present.map_err(|error| explain_sea_orm(&doing, error))?) else { continue };
            let undo = statement(&self.names.sql(UNDO), [list(&batch.written())]);
            tx.execute_raw(undo).await.map_err(|error| explain_sea_orm(&doing, error))?;
            return Err(conflict);
        }
        Ok(batch.receipt())
    }
}

/// [`Batch::PRESENT`] with the ids as one text.
const PRESENT: &str = r#"SELECT id::text, lane, type, ordering_key, tenant, content_type, headers::text, body
    FROM "{t}" WHERE id = ANY(string_to_array($1, ',')::uuid[])"#;
/// [`Batch::UNDO`] with the ids as one text.
const UNDO: &str = r#"DELETE FROM "{t}" WHERE id = ANY(string_to_array($1, ',')::uuid[])"#;

fn list(ids: &[String]) -> Value {
    ids.join(",").into()
}

fn statement(sql: &str, values: impl IntoIterator<Item = Value>) -> Statement {
    Statement::from_sql_and_values(DbBackend::Postgres, sql, values)
}

async fn insert(tx: &DatabaseTransaction, sql: &str, columns: Columns<'_>) -> Result<Vec<String>, DbErr> {
    let mut written = Vec::new();
    for row in 0..columns.ids.len() {
        let answer = tx.query_one_raw(statement(sql, values(&columns, row))).await?;
        written.extend(answer.map(|row| row.try_get_by_index::<String>(0)).transpose()?);
    }
    Ok(written)
}

fn values(columns: &Columns<'_>, row: usize) -> [Value; 10] {
    let text = |text: Option<&str>| Value::from(text.map(str::to_owned));
    [
        text(Some(&columns.ids[row])),
        columns.lanes[row].into(),
        text(Some(columns.types[row])),
        text(columns.keys[row]),
        text(columns.tenants[row]),
        columns.priorities[row].into(),
        text(Some(&columns.headers[row])),
        text(Some(columns.content_types[row])),
        columns.bodies[row].map(<[u8]>::to_vec).into(),
        columns.delays[row].into(),
    ]
}

async fn present(tx: &DatabaseTransaction, sql: &str, ids: &[String]) -> Result<Vec<Present>, DbErr> {
    let rows = tx.query_all_raw(statement(sql, [list(ids)])).await?;
    let decode = |row: &QueryResult| {
        Ok(Present {
            id: row.try_get_by_index(0)?,
            lane: row.try_get_by_index(1)?,
            event_type: row.try_get_by_index(2)?,
            key: row.try_get_by_index(3)?,
            tenant: row.try_get_by_index(4)?,
            content_type: row.try_get_by_index(5)?,
            headers: row.try_get_by_index(6)?,
            body: row.try_get_by_index(7)?,
        })
    };
    rows.iter().map(decode).collect()
}
