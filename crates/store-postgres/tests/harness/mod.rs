//! What the store suite needs to play on PostgreSQL: the tables of each outbox in one database.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_core::{OutboxName, Seq, port::Store};
use posthaste_store_postgres::{Outbox, PostgresStore, Settings};
use posthaste_testkit::suite::store::{Facts, Place, StoreHarness, TxCommand, WriterTx, remote_tx};
use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

pub struct Postgres {
    pub url: String,
}

#[async_trait]
impl StoreHarness for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn facts(&self) -> Facts {
        Facts { concurrent_writers: true, snapshots: true, many_lanes: true, database_of_its_own: false }
    }

    async fn place(&self, outbox: OutboxName) -> Arc<dyn Place> {
        let client = connect(&self.url).await;
        Arc::new(Tables { url: self.url.clone(), outbox, client })
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    // It ends with the client.
    tokio::spawn(async move { _ = connection.await });
    client
}

/// The tables of one outbox in the shared database.
struct Tables {
    url: String,
    outbox: OutboxName,
    client: Client,
}

impl Tables {
    async fn run(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.sql(&sql.replace("$t", &self.outbox.table())).await.unwrap()
    }
}

#[async_trait]
impl Place for Tables {
    fn open(&self, retention: Duration) -> Arc<dyn Store> {
        let settings = Settings { retention, ..Settings::default() };
        Arc::new(PostgresStore::new(&self.url, self.outbox.clone(), settings).unwrap())
    }

    async fn begin(&self) -> Box<dyn WriterTx> {
        let client = connect(&self.url).await;
        let (tx, commands) = remote_tx();
        tokio::spawn(serve(client, Outbox::new(self.outbox.clone()), commands));
        Box::new(tx)
    }

    async fn sql(&self, statements: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        let messages = self.client.simple_query(statements).await.map_err(|error| format!("{error:?}"))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect()),
            _ => None,
        });
        Ok(rows.collect())
    }

    fn literal(&self, bytes: &[u8]) -> String {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("'\\x{digits}'::bytea")
    }

    async fn age(&self, seq: Seq, by: Duration) {
        let by = format!("interval '{} s'", by.as_secs());
        let sets = format!("created_at = created_at - {by}, published_at = published_at - {by}");
        self.run(&format!("UPDATE \"$t\" SET {sets} WHERE seq = {seq}")).await;
    }

    async fn make_newer(&self) {
        let body = "RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 999'";
        self.run(&format!("CREATE OR REPLACE FUNCTION \"$t_version\"() {body}")).await;
    }

    async fn teardown(&self) {
        self.run("DROP TABLE IF EXISTS \"$t\"; DROP TABLE IF EXISTS \"$t_log\"").await;
        for function in ["lane", "wake", "enqueue", "version"] {
            self.run(&format!("DROP FUNCTION IF EXISTS \"$t_{function}\"")).await;
        }
    }

    async fn leftovers(&self) -> Vec<String> {
        let tables = "SELECT relname FROM pg_class WHERE starts_with(relname, '$t')";
        let functions = "SELECT proname FROM pg_proc WHERE starts_with(proname, '$t')";
        self.run(&format!("{tables} UNION ALL {functions}")).await.into_iter().flatten().flatten().collect()
    }
}

/// Owns a transaction and does what the suite asks of it. Ends with the transaction.
async fn serve(mut client: Client, outbox: Outbox, mut commands: mpsc::Receiver<TxCommand>) {
    let mut tx = client.transaction().await.unwrap();
    while let Some(command) = commands.recv().await {
        match command {
            TxCommand::Enqueue(events, reply) => _ = reply.send(outbox.enqueue(&mut tx, &events).await),
            TxCommand::Execute(statement, reply) => {
                _ = reply.send(tx.batch_execute(&statement).await.map_err(|error| format!("{error:?}")));
            }
            TxCommand::Transaction(reply) => {
                let row = tx.query_one("SELECT pg_current_xact_id()::text", &[]).await.unwrap();
                _ = reply.send(Some(row.get::<_, String>(0).parse().unwrap()));
            }
            TxCommand::Commit(reply) => {
                tx.commit().await.unwrap();
                _ = reply.send(());
                return;
            }
            TxCommand::Rollback(reply) => {
                tx.rollback().await.unwrap();
                _ = reply.send(());
                return;
            }
        }
    }
}
