//! The shortest way from a commit to the broker: a trigger that notifies, a session that listens,
//! a read for each notification, a publication, a mark.

use std::{collections::HashSet, future::poll_fn, sync::Arc};

use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use tokio_postgres::{AsyncMessage, NoTls};
use uuid::Uuid;

use super::{
    drain::{ID, mark_all},
    publish,
};
use crate::{Result, scene::Outbox};

/// A table with a trigger that notifies at every insert, in place of ours.
pub(crate) async fn prepare(outbox: &Outbox) -> Result<()> {
    let table = &outbox.table;
    let sql = format!(
        "DROP TRIGGER wake ON \"{table}\"; \
         CREATE FUNCTION \"{table}_bare\"() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_notify(TG_TABLE_NAME, ''''); RETURN NULL; END'; \
         CREATE TRIGGER bare AFTER INSERT ON \"{table}\" FOR EACH STATEMENT EXECUTE FUNCTION \"{table}_bare\"()"
    );
    Ok(outbox.client.batch_execute(&sql).await?)
}

/// The loop; it ends with this value.
pub(crate) struct Loop(#[expect(dead_code, reason = "held for its drop")] JoinSet<Result<()>>);

pub(crate) async fn start(outbox: &Outbox, rabbitmq: &str, queue: &str) -> Result<Loop> {
    let mut tasks = JoinSet::new();
    let (confirmed, to_mark) = mpsc::channel(1_000);
    tasks.spawn(mark_all(outbox.url.clone(), outbox.table.clone(), to_mark));
    let connection = Arc::new(publish::connect(rabbitmq).await?);
    let channel = publish::channel(&connection).await?;
    let (reader, notified) = listening(outbox).await?;
    let read = reader
        .prepare(&format!(
            "SELECT lane, seq, id, type, content_type, body FROM \"{}\" \
             WHERE status IN ('pending', 'processing', 'failed') ORDER BY lane, seq LIMIT 500",
            outbox.table
        ))
        .await?;
    let queue = queue.to_owned();
    tasks.spawn(async move {
        let (_connection, mut notified) = (connection, notified);
        let mut sent: HashSet<Uuid> = HashSet::new();
        while notified.notifications.recv().await.is_some() {
            while notified.notifications.try_recv().is_ok() {}
            let mut rows = reader.query(&read, &[]).await?;
            rows.retain(|row| sent.insert(row.get(ID)));
            publish::all(&channel, &queue, &rows).await?;
            confirmed.send(rows.iter().map(|row| row.get(ID)).collect()).await?;
        }
        Ok(())
    });
    Ok(Loop(tasks))
}

/// What comes in on the listening session; its driver ends with this value.
struct Notified {
    notifications: mpsc::Receiver<()>,
    driver: JoinHandle<()>,
}

impl Drop for Notified {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn listening(outbox: &Outbox) -> Result<(tokio_postgres::Client, Notified)> {
    let (client, mut connection) = tokio_postgres::connect(&outbox.url, NoTls).await?;
    let (came, notifications) = mpsc::channel(1_000);
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(_) = message {
                // a full channel will cause a read anyway
                let _ = came.try_send(());
            }
        }
    });
    client.batch_execute(&format!("SET enable_seqscan = off; LISTEN \"{}\"", outbox.table)).await?;
    Ok((client, Notified { notifications, driver }))
}
