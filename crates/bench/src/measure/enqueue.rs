//! What an event costs the transaction that writes it.

use std::time::{Duration, Instant};

use posthaste_core::Event;
use posthaste_relay::Settings;
use posthaste_store_postgres::Outbox;
use tokio::task::JoinSet;

use crate::{
    Plan, Result,
    bare::enqueue::{self, Form, Insert},
    meter, ours,
    report::{Figure, Must},
    rounds::{Pairs, Sample},
    scene::{self, BODY, connect},
    watched::{Count, Null, Watched},
};

const RATE: &str = "commits/s";
const CPU: &str = "database CPU µs/commit";
/// What part of the events the relay had not delivered when the last commit was answered.
const BEHIND: &str = "part not delivered yet";
const COMMIT: &str = "ms/commit";
const TURN: Duration = Duration::from_secs(2);

pub(super) async fn run(plan: &Plan) -> Result<Vec<Figure>> {
    let client = connect(&plan.server.url).await?;
    client
        .batch_execute("CREATE TABLE orders (id bigserial PRIMARY KEY, customer text NOT NULL, total int NOT NULL)")
        .await?;
    let mut figures = Vec::new();
    for (awake, form) in [(false, Form::Unnamed), (true, Form::Unnamed), (false, Form::Prepared)] {
        for clients in [8, 32] {
            let ours = async || with_event(plan, clients, awake).await;
            let bare = async || with_second_insert(plan, clients, awake, form).await;
            let pairs = Pairs::measure(plan.reps, ours, bare).await?;
            let relay = if awake { "relay running (bare: a poller)" } else { "no relay" };
            let name = format!("enqueue, PostgreSQL, {clients} clients, {relay}, bare {form:?}");
            let rate = Figure::of(&name, &pairs, RATE);
            let least = if clients == 8 { 0.90 } else { 0.85 };
            figures.push(if form == Form::Unnamed { rate.must(Must::Ratio(least)) } else { rate });
            figures.push(Figure::of(&name, &pairs, CPU));
            if awake {
                figures.push(Figure::of(&name, &pairs, BEHIND));
            }
            figures.push(Figure::of(&name, &pairs, COMMIT));
        }
    }
    Ok(figures)
}

fn body() -> Vec<u8> {
    format!("{{\"pad\":\"{}\"}}", "x".repeat(BODY)).into_bytes()
}

async fn with_event(plan: &Plan, clients: usize, awake: bool) -> Result<Sample> {
    let outbox = plan.server.outbox().await?;
    let store = outbox.store.clone();
    let count = Count::new(1);
    let target = || Watched::around(Null::target(), count.clone());
    let relay = awake.then(|| ours::start(&outbox.name, store, target(), Settings::default())).transpose()?;
    if let Some(relay) = &relay {
        ours::until_idle(relay).await?;
    }
    let commit = plan.server.commit_millis().await?;
    let mut writers = JoinSet::new();
    for _ in 0..clients {
        writers.spawn(write_events(outbox.url.clone(), Outbox::new(outbox.name.clone())));
    }
    let (written, commits) = written(plan, writers).await?;
    let behind = (f64::from(commits) - count.confirmed() as f64).max(0.0) / f64::from(commits);
    if let Some(relay) = relay {
        relay.stop().await;
    }
    outbox.drop_tables().await?;
    Ok([written, vec![(COMMIT, commit), (BEHIND, behind)]].concat())
}

async fn write_events(url: String, outbox: Outbox) -> Result<(u32, Duration)> {
    let mut client = connect(&url).await?;
    let order = client.prepare(ORDER).await?;
    let body = body();
    let (mut commits, start) = (0, Instant::now());
    while start.elapsed() < TURN {
        let mut tx = client.transaction().await?;
        tx.execute(&order, &[&"somebody", &7]).await?;
        let event = Event::new("order.placed", "application/json", body.clone());
        let receipt = outbox.enqueue(&mut tx, &[event]).await?;
        tx.commit().await?;
        outbox.committed(receipt);
        commits += 1;
    }
    Ok((commits, start.elapsed()))
}

const ORDER: &str = "INSERT INTO orders (customer, total) VALUES ($1, $2)";

async fn with_second_insert(plan: &Plan, clients: usize, awake: bool, form: Form) -> Result<Sample> {
    let outbox = plan.server.outbox().await?;
    let table = format!("{}_bare", outbox.table);
    enqueue::create_table(&outbox.client, &outbox.table, &table).await?;
    let mut poller = JoinSet::new();
    if awake {
        let (url, table) = (outbox.url.clone(), table.clone());
        poller.spawn(async move { enqueue::poll(&url, &table).await });
    }
    let commit = plan.server.commit_millis().await?;
    let mut writers = JoinSet::new();
    for _ in 0..clients {
        writers.spawn(write_rows(outbox.url.clone(), table.clone(), form));
    }
    let (written, _) = written(plan, writers).await?;
    poller.shutdown().await;
    outbox.client.batch_execute(&format!("DROP TABLE \"{table}\"")).await?;
    scene::Outbox::drop_tables(outbox).await?;
    Ok([written, vec![(COMMIT, commit)]].concat())
}

async fn write_rows(url: String, table: String, form: Form) -> Result<(u32, Duration)> {
    let mut client = connect(&url).await?;
    let order = client.prepare(ORDER).await?;
    let insert = Insert::new(&client, &table, form).await?;
    let body = body();
    let (mut commits, start) = (0, Instant::now());
    while start.elapsed() < TURN {
        let tx = client.transaction().await?;
        tx.execute(&order, &[&"somebody", &7]).await?;
        insert.run(&tx, &body).await?;
        tx.commit().await?;
        commits += 1;
    }
    Ok((commits, start.elapsed()))
}

async fn written(plan: &Plan, mut writers: JoinSet<Result<(u32, Duration)>>) -> Result<(Sample, u32)> {
    let before = plan.server.cpu();
    let (mut rate, mut commits) = (0.0, 0);
    while let Some(written) = writers.join_next().await {
        let (count, took) = written??;
        rate += f64::from(count) / took.as_secs_f64();
        commits += count;
    }
    Ok((vec![(RATE, rate), (CPU, meter::micros_each(before, plan.server.cpu(), commits))], commits))
}
