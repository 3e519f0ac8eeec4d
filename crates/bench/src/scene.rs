//! A database of the bench's own, and outboxes in it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use posthaste_core::{OutboxName, port::Schema as _};
use posthaste_store_postgres::{PostgresStore, Settings};
use tokio_postgres::{Client, NoTls};
use url::Url;

use crate::{Result, meter};

/// Bytes of a body, about.
pub(crate) const BODY: usize = 500;

/// A PostgreSQL server with a database for this run.
pub(crate) struct Server {
    admin: String,
    pub(crate) url: String,
    database: String,
    postmaster: Option<u32>,
    outboxes: AtomicU32,
}

impl Server {
    pub(crate) async fn create(admin: &str) -> Result<Server> {
        let database = format!("posthaste_bench_{}", uuid::Uuid::now_v7().simple());
        let mut url = Url::parse(admin)?;
        url.set_path(&database);
        let client = connect(admin).await?;
        client.batch_execute(&format!("CREATE DATABASE {database}")).await?;
        let postmaster = meter::postmaster(&client).await?;
        Ok(Server { admin: admin.to_owned(), url: url.into(), database, postmaster, outboxes: AtomicU32::new(0) })
    }

    pub(crate) async fn drop_database(&self) -> Result<()> {
        let client = connect(&self.admin).await?;
        Ok(client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.database)).await?)
    }

    pub(crate) async fn outbox(&self) -> Result<Outbox> {
        let name: OutboxName = format!("b{}", self.outboxes.fetch_add(1, Relaxed)).parse()?;
        let store = Arc::new(PostgresStore::new(&self.url, name.clone(), Settings::default())?);
        store.migrate().await?;
        Ok(Outbox { table: name.table(), name, store, client: connect(&self.url).await?, url: self.url.clone() })
    }

    /// Milliseconds that a small commit takes now: the disk has its moods, and a comparison must
    /// say which one it met.
    pub(crate) async fn commit_millis(&self) -> Result<f64> {
        let client = connect(&self.url).await?;
        let statement = client.prepare("SELECT pg_logical_emit_message(true, 'bench', '')").await?;
        let mut times = Vec::new();
        for _ in 0..21 {
            let start = Instant::now();
            client.query_one(&statement, &[]).await?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(times[times.len() / 2].as_secs_f64() * 1e3)
    }

    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.postmaster.and_then(meter::tree_cpu)
    }
}

/// An outbox in the bench's database; dropped with it.
pub(crate) struct Outbox {
    pub(crate) name: OutboxName,
    pub(crate) table: String,
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) client: Client,
    pub(crate) url: String,
}

impl Outbox {
    /// Fills it with rows: without keys, or with `keys` of them.
    pub(crate) async fn fill(&self, rows: u32, keys: u32) -> Result<()> {
        let key = if keys == 0 { "NULL".to_owned() } else { format!("'key ' || n % {keys}") };
        let sql = format!(
            "INSERT INTO \"{}\" (type, ordering_key, body) SELECT 'order.placed', {key}, \
             convert_to('{{\"n\":' || n || ',\"pad\":\"' || repeat('x', {BODY} - 20) || '\"}}', 'UTF8') \
             FROM generate_series($1::bigint, $2) AS n",
            self.table
        );
        let fill = self.client.prepare(&sql).await?;
        for start in (1..=rows).step_by(10_000) {
            let end = rows.min(start + 9_999);
            self.client.execute(&fill, &[&i64::from(start), &i64::from(end)]).await?;
        }
        self.settle().await
    }

    /// Does at once what autovacuum would do in the middle of a measurement.
    pub(crate) async fn settle(&self) -> Result<()> {
        Ok(self.client.batch_execute(&format!("VACUUM (ANALYZE) \"{}\"", self.table)).await?)
    }

    /// Gives it `rows` that were published before.
    pub(crate) async fn remember(&self, rows: u32) -> Result<()> {
        let sql = format!(
            "INSERT INTO \"{}\" (type, body, status, published_at) SELECT 'order.placed', \
             convert_to(repeat('x', {BODY}), 'UTF8'), 'published', clock_timestamp() FROM generate_series(1, $1::bigint)",
            self.table
        );
        self.client.execute(&sql, &[&i64::from(rows)]).await?;
        self.settle().await
    }

    pub(crate) async fn undelivered(&self) -> Result<i64> {
        let sql =
            format!("SELECT count(*) FROM \"{}\" WHERE status IN ('pending', 'processing', 'failed')", self.table);
        Ok(self.client.query_one(&sql, &[]).await?.get(0))
    }

    /// Row versions that updates and deletes have left dead since the table was made.
    pub(crate) async fn dead_versions(&self) -> Result<i64> {
        let sql = "SELECT n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE relid = to_regclass($1)";
        Ok(self.client.query_one(sql, &[&format!("\"{}\"", self.table)]).await?.get(0))
    }

    /// The disk space goes back at once.
    pub(crate) async fn drop_tables(self) -> Result<()> {
        Ok(self.client.batch_execute(&format!("DROP TABLE \"{0}\", \"{0}_log\" CASCADE", self.table)).await?)
    }
}

/// A session; its driver ends with it.
pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, driver) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(driver);
    Ok(client)
}
