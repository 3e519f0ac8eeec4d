//! The second INSERT that somebody writes by hand, and the poller that empties its table.

use tokio_postgres::{Client, Statement, Transaction};
use uuid::Uuid;

use crate::{Result, scene::connect};

/// A table of the same columns and indexes as an outbox, without its triggers.
pub(crate) async fn create_table(client: &Client, like: &str, table: &str) -> Result<()> {
    Ok(client.batch_execute(&format!("CREATE TABLE \"{table}\" (LIKE \"{like}\" INCLUDING ALL)")).await?)
}

pub(crate) async fn prepare(client: &Client, table: &str) -> Result<Statement> {
    let sql = format!(
        "INSERT INTO \"{table}\" (id, lane, type, headers, content_type, body) \
         VALUES ($1, $2, $3, '{{}}', 'application/json', $4)"
    );
    Ok(client.prepare(&sql).await?)
}

pub(crate) async fn insert(tx: &Transaction<'_>, insert: &Statement, body: &[u8]) -> Result<()> {
    let id = Uuid::now_v7();
    let lane = i16::from(id.as_bytes()[15] & 127);
    tx.execute(insert, &[&id, &lane, &"order.placed", &body]).await?;
    Ok(())
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
