//! The second INSERT that somebody writes by hand, and the poller that empties its table.

use tokio_postgres::{Client, Statement, Transaction, types::Type};
use uuid::Uuid;

use crate::{Result, scene::connect};

/// A table of the same columns and indexes as an outbox, without its triggers.
pub(crate) async fn create_table(client: &Client, like: &str, table: &str) -> Result<()> {
    Ok(client.batch_execute(&format!("CREATE TABLE \"{table}\" (LIKE \"{like}\" INCLUDING ALL)")).await?)
}

/// How the second INSERT is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Parsed, planned and run in one round trip each time, as [`posthaste_store_postgres::Outbox`] does.
    Unnamed,
    /// Prepared once a session by the application itself.
    Prepared,
}

/// The second INSERT of one session.
pub(crate) enum Insert {
    Unnamed(String),
    Prepared(Statement),
}

impl Insert {
    pub(crate) async fn new(client: &Client, table: &str, form: Form) -> Result<Insert> {
        let sql = format!(
            "INSERT INTO \"{table}\" (id, lane, type, headers, content_type, body) \
             VALUES ($1, $2, $3, '{{}}', 'application/json', $4)"
        );
        Ok(match form {
            Form::Unnamed => Insert::Unnamed(sql),
            Form::Prepared => Insert::Prepared(client.prepare(&sql).await?),
        })
    }

    pub(crate) async fn run(&self, tx: &Transaction<'_>, body: &[u8]) -> Result<()> {
        let id = Uuid::now_v7();
        let lane = i16::from(id.as_bytes()[15] & 127);
        let event_type = "order.placed";
        match self {
            Insert::Prepared(insert) => tx.execute(insert, &[&id, &lane, &event_type, &body]).await?,
            Insert::Unnamed(sql) => {
                let (id, lane) = ((&id as _, Type::UUID), (&lane as _, Type::INT2));
                tx.execute_typed(sql, &[id, lane, (&event_type, Type::TEXT), (&body, Type::BYTEA)]).await?
            }
        };
        Ok(())
    }
}

/// Reads and marks whatever is there, every 5 ms, until it is dropped.
pub(crate) async fn poll(url: &str, table: &str) -> Result<()> {
    let client = connect(url).await?;
    client.batch_execute("SET enable_seqscan = off").await?;
    let read = client
        .prepare(&format!(
            "SELECT id, body FROM \"{table}\" WHERE status IN ('pending', 'processing', 'failed') LIMIT 500"
        ))
        .await?;
    let mark = client
        .prepare(&format!(
            "UPDATE \"{table}\" SET status = 'published', published_at = clock_timestamp() WHERE id = ANY($1)"
        ))
        .await?;
    loop {
        let rows = client.query(&read, &[]).await?;
        let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        if !ids.is_empty() {
            client.execute(&mark, &[&ids]).await?;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
