//! SQLite: WAL, `synchronous=NORMAL`, one writer.

use std::{path::Path, sync::Arc, time::Instant};

use posthaste_core::{
    Event, OutboxName,
    options::Options,
    port::{Produce as _, Schema as _},
};
use posthaste_relay::Settings;
use posthaste_store_sqlite::{Outbox, SqliteStore};
use rusqlite::{Connection, TransactionBehavior};
use tokio::task::block_in_place;

use crate::{
    Plan, Result, bare, ours,
    report::{Figure, Must},
    rounds::{Pairs, Sample},
    scene::BODY,
    watched::{Count, Watched},
};

const COMMITS: &str = "commits/s";
const RATE: &str = "events/s";

pub(super) async fn run(plan: &Plan) -> Result<Vec<Figure>> {
    let enqueue =
        Pairs::measure(plan.reps, async || with_event(plan).await, async || block_in_place(|| with_insert(plan)));
    let enqueue = enqueue.await?;
    let none =
        Pairs::measure(plan.reps, async || with_event(plan).await, async || block_in_place(|| without(plan))).await?;
    let drain =
        Pairs::measure(plan.reps, async || relayed(plan).await, async || block_in_place(|| by_hand(plan))).await?;
    Ok(vec![
        Figure::of("enqueue, SQLite / second INSERT", &enqueue, COMMITS).must(Must::Ratio(0.90)),
        Figure::of("enqueue, SQLite / no event at all", &none, COMMITS),
        Figure::of("SQLite → file", &drain, RATE),
    ])
}

fn body() -> Vec<u8> {
    format!("{{\"pad\":\"{}\"}}", "x".repeat(BODY)).into_bytes()
}

/// A database file with the application's own table.
fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection
        .execute_batch("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, total INTEGER)")?;
    Ok(connection)
}

/// Commits as many transactions as there are rows, each with an order and whatever `more` adds.
fn commits(
    plan: &Plan,
    connection: &mut Connection,
    mut more: impl FnMut(&mut rusqlite::Transaction<'_>) -> Result<()>,
) -> Result<Sample> {
    let start = Instant::now();
    for _ in 0..plan.rows {
        let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.prepare_cached("INSERT INTO orders (customer, total) VALUES ('somebody', 7)")?.execute([])?;
        more(&mut transaction)?;
        transaction.commit()?;
    }
    Ok(vec![(COMMITS, f64::from(plan.rows) / start.elapsed().as_secs_f64())])
}

async fn with_event(plan: &Plan) -> Result<Sample> {
    let folder = tempfile::tempdir()?;
    let (path, name) = (folder.path().join("a.db"), OutboxName::unnamed());
    let mut connection = open(&path)?;
    SqliteStore::new(&format!("sqlite:{}", path.display()), &name)?.migrate().await?;
    let (outbox, body) = (Outbox::new(&name), body());
    block_in_place(|| {
        commits(plan, &mut connection, |transaction| {
            let event = Event::new("order.placed", "application/json", body.clone());
            outbox.committed(outbox.enqueue(transaction, &[event])?);
            Ok(())
        })
    })
}

fn with_insert(plan: &Plan) -> Result<Sample> {
    let folder = tempfile::tempdir()?;
    let mut connection = open(&folder.path().join("a.db"))?;
    connection.execute_batch(bare::sqlite::TABLE)?;
    let body = body();
    commits(plan, &mut connection, |transaction| bare::sqlite::insert(transaction, &body))
}

fn without(plan: &Plan) -> Result<Sample> {
    let folder = tempfile::tempdir()?;
    commits(plan, &mut open(&folder.path().join("a.db"))?, |_| Ok(()))
}

async fn relayed(plan: &Plan) -> Result<Sample> {
    let folder = tempfile::tempdir()?;
    let (path, name) = (folder.path().join("a.db"), OutboxName::unnamed());
    drop(open(&path)?);
    let store = Arc::new(SqliteStore::new(&format!("sqlite:{}", path.display()), &name)?);
    store.migrate().await?;
    let events = vec![Event::new("order.placed", "application/json", body()); 1_000];
    for _ in 0..plan.rows.div_ceil(1_000) {
        store.produce(&events).await?;
    }
    let rows = plan.rows.div_ceil(1_000) * 1_000;
    let target =
        posthaste_transport_local::parse(&format!("file:{}", folder.path().join("out").display()), Options::default())?;
    let count = Count::new(rows);
    let relay = ours::start(&name, store, Watched::around(target, count.clone()), Settings::default())?;
    let took = count.all().await.last().copied().unwrap_or_default();
    ours::until_idle(&relay).await?;
    relay.stop().await;
    Ok(vec![(RATE, f64::from(rows) / took.as_secs_f64())])
}

fn by_hand(plan: &Plan) -> Result<Sample> {
    let folder = tempfile::tempdir()?;
    let mut connection = open(&folder.path().join("a.db"))?;
    connection.execute_batch(bare::sqlite::TABLE)?;
    let (body, transaction) = (body(), connection.transaction()?);
    for _ in 0..plan.rows {
        bare::sqlite::insert(&transaction, &body)?;
    }
    transaction.commit()?;
    let start = Instant::now();
    bare::sqlite::drain(&mut connection, &folder.path().join("out"))?;
    Ok(vec![(RATE, f64::from(plan.rows) / start.elapsed().as_secs_f64())])
}
