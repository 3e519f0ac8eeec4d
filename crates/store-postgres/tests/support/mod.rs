//! What the tests of this store share: a store on an outbox of its own, dropped in the end.
#![allow(dead_code, reason = "each test program uses its own part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::time::Duration;

use posthaste_core::{
    LaneSet, OutboxName, Row, Seq,
    port::{Lanes, Page, ReadRequest, Schema},
};
use posthaste_store_postgres::{PostgresStore, Settings};
use posthaste_testkit::service;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// An outbox in the shared database.
pub struct Bench {
    pub url: String,
    pub name: OutboxName,
    pub store: PostgresStore,
    pub client: Client,
    driver: JoinHandle<()>,
}

impl Bench {
    /// A migrated outbox, or nothing where there is no server.
    pub async fn new() -> Option<Bench> {
        Bench::with(Settings::default()).await
    }

    pub async fn with(settings: Settings) -> Option<Bench> {
        let bench = Bench::bare(settings).await?;
        bench.store.migrate().await.unwrap();
        Some(bench)
    }

    /// An outbox whose tables are not made yet.
    pub async fn bare(settings: Settings) -> Option<Bench> {
        let url = service::postgres()?;
        let name = service::outbox_name();
        let store = PostgresStore::new(&url, name.clone(), settings).unwrap();
        let (client, driver) = connect(&url).await;
        Some(Bench { url, name, store, client, driver })
    }

    pub fn store(&self, settings: Settings) -> PostgresStore {
        PostgresStore::new(&self.url, self.name.clone(), settings).unwrap()
    }

    /// Another connection, as an application has it.
    pub async fn client(&self) -> Client {
        connect(&self.url).await.0
    }

    /// Runs statements in which `{t}` stands for the table's name.
    pub async fn run(&self, sql: &str) {
        self.client.batch_execute(&self.sql(sql)).await.unwrap();
    }

    pub async fn rows(&self, sql: &str) -> Vec<tokio_postgres::Row> {
        self.client.query(&self.sql(sql), &[]).await.unwrap()
    }

    pub async fn text(&self, sql: &str) -> String {
        self.client.query_one(&self.sql(sql), &[]).await.unwrap().get::<_, Option<String>>(0).unwrap_or_default()
    }

    pub async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(&self.sql(sql), &[]).await.unwrap().get(0)
    }

    pub fn sql(&self, sql: &str) -> String {
        sql.replace("{t}", &self.name.table())
    }

    /// Everything undelivered, in the order of `seq`.
    pub async fn undelivered(&self) -> Vec<Row> {
        let mut rows = self.store.read(everything()).await.unwrap().rows;
        rows.sort_by_key(|row| row.seq);
        rows
    }

    pub async fn read(&self, request: ReadRequest) -> Page {
        self.store.read(request).await.unwrap()
    }

    /// Drops what the test made.
    pub async fn end(self) {
        let functions =
            ["_lane", "_wake", "_enqueue", "_version"].map(|name| format!("DROP FUNCTION IF EXISTS \"{{t}}{name}\""));
        self.run("DROP TABLE IF EXISTS \"{t}\"; DROP TABLE IF EXISTS \"{t}_log\"").await;
        self.run(&functions.join(";")).await;
        self.driver.abort();
    }
}

pub async fn connect(url: &str) -> (Client, JoinHandle<()>) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let driver = tokio::spawn(async move { _ = connection.await });
    (client, driver)
}

/// A read of all lanes from the start, without limits that matter.
pub fn everything() -> ReadRequest {
    ReadRequest {
        from: LaneSet::ALL.iter().map(|lane| (lane, 0)).collect(),
        per_lane: 100_000,
        max_rows: 100_000,
        max_bytes: 64 << 20,
        max_body: 8 << 20,
    }
}

pub fn seqs(rows: &[Row]) -> Vec<Seq> {
    rows.iter().map(|row| row.seq).collect()
}

/// Waits until `condition` holds; what it waits for happens soon, or the test is wrong.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
