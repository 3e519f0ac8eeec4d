//! What the store suite needs to play on SQLite: each outbox in a file of its own.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{OutboxName, Seq, port::Store};
use posthaste_store_sqlite::{Outbox, SqliteStore};
use posthaste_testkit::suite::store::{Facts, Place, StoreHarness, TxCommand, WriterTx, remote_tx};
use rusqlite::{Batch, Connection, TransactionBehavior, fallible_iterator::FallibleIterator as _, types::ValueRef};
use tempfile::TempDir;
use tokio::sync::mpsc;

pub struct Sqlite;

#[async_trait]
impl StoreHarness for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn facts(&self) -> Facts {
        Facts { concurrent_writers: false, snapshots: false, many_lanes: false, database_of_its_own: true }
    }

    async fn place(&self, outbox: OutboxName) -> Arc<dyn Place> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outbox.db");
        Arc::new(File { path, outbox, folder: Mutex::new(Some(folder)) })
    }
}

struct File {
    path: PathBuf,
    outbox: OutboxName,
    folder: Mutex<Option<TempDir>>,
}

impl File {
    async fn run(&self, sql: &str) {
        self.sql(&sql.replace("$t", &self.outbox.table())).await.unwrap();
    }
}

fn connect(path: &PathBuf) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    connection
}

#[async_trait]
impl Place for File {
    fn open(&self, retention: Duration) -> Arc<dyn Store> {
        let url = format!("sqlite:{}", self.path.display());
        Arc::new(SqliteStore::new(&url, &self.outbox).unwrap().with_retention(retention))
    }

    async fn begin(&self) -> Box<dyn WriterTx> {
        let (path, outbox) = (self.path.clone(), Outbox::new(&self.outbox));
        let (tx, commands) = remote_tx();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        thread::spawn(move || serve(connect(&path), &outbox, commands, || _ = begun.send(())));
        has_begun.await.unwrap();
        Box::new(tx)
    }

    async fn sql(&self, statements: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        let (path, statements) = (self.path.clone(), statements.to_owned());
        let run = move || query(&connect(&path), &statements).map_err(|error| error.to_string());
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    fn literal(&self, bytes: &[u8]) -> String {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("x'{digits}'")
    }

    async fn age(&self, seq: Seq, by: Duration) {
        let by = by.as_micros();
        let sets = format!("created_at = created_at - {by}, published_at = published_at - {by}");
        self.run(&format!("UPDATE \"$t\" SET {sets} WHERE seq = {seq}")).await;
    }

    async fn make_newer(&self) {
        self.run("UPDATE \"$t_meta\" SET version = 999").await;
    }

    async fn teardown(&self) {
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner).take();
        folder.unwrap().close().unwrap();
    }

    async fn leftovers(&self) -> Vec<String> {
        let folder = self.path.parent().filter(|folder| folder.exists());
        folder.map(|folder| folder.display().to_string()).into_iter().collect()
    }
}

/// The rows of the last of the statements, as text.
fn query(connection: &Connection, statements: &str) -> rusqlite::Result<Vec<Vec<Option<String>>>> {
    let mut last = Vec::new();
    let mut batch = Batch::new(connection, statements);
    while let Some(mut statement) = batch.next()? {
        let columns = statement.column_count();
        let mut rows = statement.raw_query();
        last.clear();
        while let Some(row) = rows.next()? {
            last.push((0..columns).map(|n| row.get_ref(n).map(text)).collect::<rusqlite::Result<_>>()?);
        }
    }
    Ok(last)
}

fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
    }
}

/// Owns a transaction and does what the suite asks of it. Ends with the transaction.
fn serve(mut connection: Connection, outbox: &Outbox, mut commands: mpsc::Receiver<TxCommand>, begun: impl FnOnce()) {
    let mut tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    begun();
    while let Some(command) = commands.blocking_recv() {
        match command {
            TxCommand::Enqueue(events, reply) => _ = reply.send(outbox.enqueue(&mut tx, &events)),
            TxCommand::Execute(statement, reply) => {
                _ = reply.send(tx.execute_batch(&statement).map_err(|error| error.to_string()));
            }
            TxCommand::Transaction(reply) => _ = reply.send(None),
            TxCommand::Commit(reply) => {
                tx.commit().unwrap();
                _ = reply.send(());
                return;
            }
            TxCommand::Rollback(reply) => {
                tx.rollback().unwrap();
                _ = reply.send(());
                return;
            }
        }
    }
}
