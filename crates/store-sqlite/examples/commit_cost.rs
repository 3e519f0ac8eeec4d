//! What an event costs a commit (WAL, NORMAL, one process), against the same commit without one,
//! and with a second INSERT of the same bytes written by hand. Interleaved runs; prints the median.
//!
//! `cargo run --release -p posthaste-store-sqlite --example commit_cost`
#![allow(clippy::unwrap_used, reason = "a measurement may panic")]

use std::time::Instant;

use posthaste_core::{
    Event, OutboxName, RowId,
    port::{EnqueueError, Schema},
};
use posthaste_store_sqlite::{Outbox, SqliteStore};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

const COMMITS: u32 = 20_000;
const RUNS: usize = 7;

#[derive(Clone, Copy)]
enum Second {
    Nothing,
    ByHand,
    Enqueued,
}

fn main() {
    let body = "x".repeat(500);
    let mut rates = [Second::Nothing, Second::ByHand, Second::Enqueued].map(|second| (second, Vec::new()));
    for _ in 0..RUNS {
        for (second, rates) in &mut rates {
            rates.push(run(*second, &body));
        }
    }
    let [nothing, by_hand, enqueued] = rates.map(|(_, rates)| median(rates));
    println!("commits/s without an event      {nothing:9.0}");
    println!("with an INSERT written by hand  {by_hand:9.0}  {:.2} of those without", by_hand / nothing);
    println!("with an event enqueued          {enqueued:9.0}  {:.2} of those without", enqueued / nothing);
    println!("enqueued against by hand        {:9.2}", enqueued / by_hand);
}

fn run(second: Second, body: &str) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    let name: OutboxName = "orders".parse().unwrap();
    let store = SqliteStore::new(&format!("sqlite:{}", path.display()), &name).unwrap();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(store.migrate()).unwrap();
    let mut connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "synchronous", "NORMAL").unwrap();
    let tables = "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total INTEGER);
        CREATE TABLE events (seq INTEGER PRIMARY KEY, id TEXT, type TEXT, ordering_key TEXT, headers TEXT, \
        content_type TEXT, due_at INTEGER, status TEXT, created_at INTEGER, body BLOB)";
    connection.execute_batch(tables).unwrap();
    let outbox = Outbox::new(&name);
    let begin = Instant::now();
    for n in 0..COMMITS {
        let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let sql = "INSERT INTO orders (customer, total) VALUES (?1, ?2)";
        transaction.prepare_cached(sql).unwrap().execute(params!["somebody", n]).unwrap();
        match second {
            Second::Nothing => {}
            Second::ByHand => by_hand(&transaction, n, body),
            Second::Enqueued => enqueue(&outbox, &mut transaction, n, body).unwrap(),
        }
        transaction.commit().unwrap();
    }
    f64::from(COMMITS) / begin.elapsed().as_secs_f64()
}

fn by_hand(transaction: &Transaction<'_>, n: u32, body: &str) {
    let sql = "INSERT INTO events (id, type, ordering_key, headers, content_type, due_at, status, created_at, body) \
        VALUES (?1, ?2, ?3, '{}', 'text/plain', ?4, 'pending', ?4, ?5)";
    let parameters = params![
        RowId::generate().to_string(),
        "order.placed",
        n.to_string(),
        1_800_000_000_000_000_i64,
        body.as_bytes()
    ];
    transaction.prepare_cached(sql).unwrap().execute(parameters).unwrap();
}

fn enqueue(outbox: &Outbox, transaction: &mut Transaction<'_>, n: u32, body: &str) -> Result<(), EnqueueError> {
    let event = Event::new("order.placed", "text/plain", body.to_owned()).key(n.to_string());
    outbox.enqueue(transaction, &[event]).map(drop)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
