//! The same in the caller's own sqlx transaction.

use posthaste_core::{
    Event,
    port::{EnqueueError, Receipt},
};
use sqlx::{
    AssertSqlSafe, Postgres, Row,
    postgres::{PgArguments, PgRow},
};

use crate::{
    Outbox,
    batch::{Batch, Columns, Present},
    error::explain_sqlx,
};

impl Outbox {
    /// [`Outbox::enqueue`] in a transaction of sqlx.
    ///
    /// # Errors
    /// As of [`Outbox::enqueue`].
    ///
    /// # Cancellation
    /// All or none may have been written; the transaction decides, as ever.
    pub async fn enqueue_sqlx(
        &self,
        tx: &mut sqlx::Transaction<'_, Postgres>,
        events: &[Event],
    ) -> Result<Receipt, EnqueueError> {
        let mut batch = Batch::new(events, self.limits)?;
        let doing = format!("writing to {}", self.names.table());
        while let Some(columns) = batch.next_round(&doing)? {
            let written = insert(tx, self.names.sql(&batch.insert(&columns)), columns).await;
            batch.wrote(&written.map_err(|error| explain_sqlx(&doing, error))?);
            let Some(ids) = batch.missing() else { break };
            let present = present(tx, self.names.sql(Batch::PRESENT), ids).await;
            let Err(conflict) = batch.meet(&present.map_err(|error| explain_sqlx(&doing, error))?) else { continue };
            let undo = sqlx::query(AssertSqlSafe(self.names.sql(Batch::UNDO))).bind(batch.written());
            undo.execute(&mut **tx).await.map_err(|error| explain_sqlx(&doing, error))?;
            return Err(conflict);
        }
        Ok(batch.receipt())
    }
}

async fn insert(
    tx: &mut sqlx::Transaction<'_, Postgres>,
    sql: String,
    columns: Columns<'_>,
) -> Result<Vec<String>, sqlx::Error> {
    let query = sqlx::query(AssertSqlSafe(sql));
    let query = if columns.is_single() { bind_one(query, columns) } else { bind_all(query, columns) };
    query.fetch_all(&mut **tx).await?.iter().map(|row| row.try_get(0)).collect()
}

type Query<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

fn bind_one<'q>(query: Query<'q>, mut columns: Columns<'q>) -> Query<'q> {
    let (id, headers) = (columns.ids.pop(), columns.headers.pop());
    let query = query.bind(id).bind(columns.lanes[0]).bind(columns.types[0]).bind(columns.keys[0]);
    let query = query.bind(columns.tenants[0]).bind(columns.priorities[0]).bind(headers);
    query.bind(columns.content_types[0]).bind(columns.bodies[0]).bind(columns.delays[0])
}

fn bind_all<'q>(query: Query<'q>, columns: Columns<'q>) -> Query<'q> {
    let Columns { ids, lanes, types, keys, tenants, priorities, headers, content_types, bodies, delays } = columns;
    let query = query.bind(ids).bind(lanes).bind(types).bind(keys).bind(tenants);
    query.bind(priorities).bind(headers).bind(content_types).bind(bodies).bind(delays)
}

async fn present(
    tx: &mut sqlx::Transaction<'_, Postgres>,
    sql: String,
    ids: Vec<String>,
) -> Result<Vec<Present>, sqlx::Error> {
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(ids).fetch_all(&mut **tx).await?;
    let decode = |row: &PgRow| {
        Ok(Present {
            id: row.try_get(0)?,
            lane: row.try_get(1)?,
            event_type: row.try_get(2)?,
            key: row.try_get(3)?,
            tenant: row.try_get(4)?,
            content_type: row.try_get(5)?,
            headers: row.try_get(6)?,
            body: row.try_get(7)?,
        })
    };
    rows.iter().map(decode).collect()
}
