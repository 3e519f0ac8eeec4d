//! Enqueueing in a transaction of sqlx.
//!
//! The statements are those of the rusqlite form.

use posthaste_core::{
    Event, RowId,
    port::{EnqueueError, Enqueued, Receipt},
};
use sqlx::{AssertSqlSafe, Row as _, Sqlite, SqliteConnection, Transaction};

use crate::{
    enqueue::{Outbox, Statements, headers_json},
    error::explain_sqlx,
    rows::{LANE, StoredContent},
    settle::micros,
};

impl Outbox {
    /// As [`Outbox::enqueue`], in an open transaction of sqlx.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancellation
    /// Some of the rows may stand in the transaction.
    pub async fn enqueue_sqlx(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        events: &[Event],
    ) -> Result<Receipt, EnqueueError> {
        self.check(events)?;
        if events.len() < 2 {
            return self.insert_all(transaction, events).await.map(Receipt::new);
        }
        // Spelt out: sqlx's own nested `begin` is not safe to drop half way.
        let refused = |error| EnqueueError::Store(explain_sqlx(error, &self.statements.doing));
        sqlx::query("SAVEPOINT posthaste").execute(&mut **transaction).await.map_err(refused)?;
        let rows = self.insert_all(transaction, events).await;
        let end = if rows.is_ok() { "RELEASE posthaste" } else { "ROLLBACK TO posthaste; RELEASE posthaste" };
        sqlx::raw_sql(end).execute(&mut **transaction).await.map_err(refused)?;
        rows.map(Receipt::new)
    }

    async fn insert_all(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        events: &[Event],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let refused = |error| EnqueueError::Store(explain_sqlx(error, &self.statements.doing));
        let mut rows = Vec::with_capacity(events.len());
        for (index, event) in events.iter().enumerate() {
            let id = event.id.unwrap_or_else(RowId::generate);
            let existing = insert(transaction, &self.statements, event, id).await.map_err(refused)? == 0;
            if existing && !is_there(transaction, &self.statements, event, id).await.map_err(refused)? {
                return Err(EnqueueError::Conflict { index, id });
            }
            rows.push(Enqueued { id, lane: LANE, existing });
        }
        Ok(rows)
    }
}

async fn insert(
    connection: &mut SqliteConnection,
    statements: &Statements,
    event: &Event,
    id: RowId,
) -> sqlx::Result<u64> {
    let sql = if event.id.is_some() { &statements.supplied } else { &statements.generated };
    let done = sqlx::query(AssertSqlSafe(sql.clone()))
        .bind(id.to_string())
        .bind(event.id.map(|_| 1_i64))
        .bind(&event.event_type)
        .bind(&event.key)
        .bind(&event.tenant)
        .bind(event.priority)
        .bind(headers_json(&event.headers))
        .bind(&event.content_type)
        .bind(micros(event.delay))
        .bind(event.body.as_deref())
        .execute(connection)
        .await?;
    Ok(done.rows_affected())
}

async fn is_there(
    connection: &mut SqliteConnection,
    statements: &Statements,
    event: &Event,
    id: RowId,
) -> sqlx::Result<bool> {
    let row =
        sqlx::query(AssertSqlSafe(statements.existing.clone())).bind(id.to_string()).fetch_one(connection).await?;
    let headers: String = row.try_get(4)?;
    let stored = StoredContent {
        event_type: row.try_get(0)?,
        key: row.try_get(1)?,
        tenant: row.try_get(2)?,
        content_type: row.try_get(3)?,
        headers: serde_json::from_str(&headers).unwrap_or_default(),
        body: row.try_get(5)?,
    };
    Ok(stored.equals(event))
}
