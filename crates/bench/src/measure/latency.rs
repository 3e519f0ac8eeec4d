//! From the answer to a commit until a consumer has the message.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use lapin::Consumer;
use posthaste_core::Event;
use posthaste_relay::Settings;
use posthaste_store_postgres::Outbox;
use tokio::{
    task::JoinSet,
    time::{interval, timeout},
};

use crate::{
    Plan, Result, bare,
    child::RelayProcess,
    counted::{Counted, Statements},
    ours,
    queue::{Queue, next_body},
    report::{Figure, Must},
    rounds::{Pairs, Sample},
    scene::{self, connect},
};

const P50: &str = "ms, p50";
const P99: &str = "ms, p99";
const STATEMENTS: &str = "statements/event";
const COMMIT: &str = "ms/commit";

const WRITERS: u32 = 4;
/// Events of each writer, one every 20 ms: 200 a second in all.
const EVENTS: u32 = 250;
const PACE: Duration = Duration::from_millis(20);
/// Longest wait for a message.
const PATIENCE: Duration = Duration::from_secs(60);

/// When each event's commit was answered.
type Commits = Arc<Mutex<HashMap<u32, Instant>>>;

pub(super) async fn run(plan: &Plan) -> Result<Vec<Figure>> {
    let bare = async || by_hand(plan).await;
    let within = Pairs::measure(plan.reps, async || in_process(plan).await, bare).await?;
    let beside = Pairs::measure(plan.reps, async || in_another_process(plan).await, bare).await?;
    let mut figures = Vec::new();
    for (name, pairs) in [("commit → consumer, in process", within), ("commit → consumer, relay process", beside)] {
        figures.push(Figure::of(name, &pairs, P50).must(Must::RatioAtMost(1.5)));
        figures.push(Figure::of(name, &pairs, P99).must(Must::RatioAtMost(2.0)));
        figures.push(Figure::of(name, &pairs, COMMIT));
        figures.push(Figure::of(name, &pairs, STATEMENTS));
    }
    figures.retain(|figure| !figure.is_empty());
    Ok(figures)
}

async fn in_process(plan: &Plan) -> Result<Sample> {
    let (outbox, queue) = (plan.server.outbox().await?, Queue::create(&plan.rabbitmq).await?);
    let (store, statements) = Counted::around(outbox.store.clone());
    let relay = ours::start(&outbox.name, store, queue.target()?, Settings::default())?;
    let waker = relay.waker(&outbox.name).ok_or("the relay has no such outbox")?;
    let writing = Outbox::new(outbox.name.clone()).with_waker(waker);
    let before = statements.all();
    let mut sample = delays(plan, &outbox, &queue, writing).await?;
    sample.push((STATEMENTS, each(&statements, before)));
    relay.stop().await;
    clear(outbox, queue).await?;
    Ok(sample)
}

fn each(statements: &Statements, before: u64) -> f64 {
    (statements.all() - before) as f64 / f64::from(WRITERS * EVENTS)
}

async fn in_another_process(plan: &Plan) -> Result<Sample> {
    let (outbox, queue) = (plan.server.outbox().await?, Queue::create(&plan.rabbitmq).await?);
    let relay = RelayProcess::start(&outbox, &plan.rabbitmq, &queue.name)?;
    let sample = delays(plan, &outbox, &queue, Outbox::new(outbox.name.clone())).await?;
    drop(relay);
    clear(outbox, queue).await?;
    Ok(sample)
}

async fn by_hand(plan: &Plan) -> Result<Sample> {
    let (outbox, queue) = (plan.server.outbox().await?, Queue::create(&plan.rabbitmq).await?);
    bare::listen::prepare(&outbox).await?;
    let listening = bare::listen::start(&outbox, &plan.rabbitmq, &queue.name).await?;
    let sample = delays(plan, &outbox, &queue, Outbox::new(outbox.name.clone())).await?;
    drop(listening);
    clear(outbox, queue).await?;
    Ok(sample)
}

async fn clear(outbox: scene::Outbox, queue: Queue) -> Result<()> {
    queue.delete().await?;
    outbox.drop_tables().await
}

async fn delays(plan: &Plan, outbox: &scene::Outbox, queue: &Queue, writing: Outbox) -> Result<Sample> {
    let commit = plan.server.commit_millis().await?;
    let mut consumer = queue.consume().await?;
    // the first message opens connections
    write(&outbox.url, &writing, 1, u32::MAX, &Commits::default()).await?;
    timeout(PATIENCE, next_body(&mut consumer)).await??;
    let commits = Commits::default();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (url, writing, commits) = (outbox.url.clone(), writing.clone(), commits.clone());
        writers.spawn(async move { write(&url, &writing, EVENTS, writer * EVENTS, &commits).await });
    }
    let arrivals = arrivals(&mut consumer).await?;
    while let Some(written) = writers.join_next().await {
        written??;
    }
    let commits = commits.lock().unwrap_or_else(PoisonError::into_inner);
    let delay = |(event, arrived): (&u32, &Instant)| Some(arrived.saturating_duration_since(*commits.get(event)?));
    let mut delays: Vec<Duration> = arrivals.iter().filter_map(delay).collect();
    delays.sort_unstable();
    let at = |percent: usize| delays.get(delays.len() * percent / 100).map_or(f64::NAN, |d| d.as_secs_f64() * 1e3);
    Ok(vec![(P50, at(50)), (P99, at(99)), (COMMIT, commit)])
}

async fn write(url: &str, outbox: &Outbox, events: u32, first: u32, commits: &Commits) -> Result<()> {
    let mut client = connect(url).await?;
    let mut pace = interval(PACE);
    for offset in 0..events {
        pace.tick().await;
        let number = first.saturating_add(offset);
        let event = Event::json("order.placed", &number)?;
        let mut tx = client.transaction().await?;
        let receipt = outbox.enqueue(&mut tx, &[event]).await?;
        tx.commit().await?;
        commits.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Instant::now());
        outbox.committed(receipt);
    }
    Ok(())
}

async fn arrivals(consumer: &mut Consumer) -> Result<HashMap<u32, Instant>> {
    let mut arrivals = HashMap::new();
    while arrivals.len() < (WRITERS * EVENTS) as usize {
        let body = timeout(PATIENCE, next_body(consumer)).await??;
        arrivals.entry(std::str::from_utf8(&body)?.parse()?).or_insert_with(Instant::now);
    }
    Ok(arrivals)
}
