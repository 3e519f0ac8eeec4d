//! Drains of a PostgreSQL outbox.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_core::{options::Options, port::Target};
use posthaste_relay::Settings;

use crate::{
    Plan, Result, bare,
    counted::{Counted, Statements},
    meter, ours,
    queue::Queue,
    report::{Figure, Must},
    rounds::{Pairs, Sample},
    scene::Outbox,
    watched::{Count, Null, Watched},
};

const RATE: &str = "events/s";
const CPU: &str = "relay CPU µs/event";
const DATABASE_CPU: &str = "database CPU µs/event";
const STATEMENTS: &str = "statements/event";
const DEAD: &str = "dead row versions/event";
const COMMIT: &str = "ms/commit";

pub(super) async fn to_rabbitmq(plan: &Plan, keys: u32) -> Result<Vec<Figure>> {
    let ours = async || {
        let queue = Queue::create(&plan.rabbitmq).await?;
        let sample = relayed(plan, keys, queue.target()?).await?;
        queue.delete().await?;
        Ok(sample)
    };
    let bare = async || {
        let queue = Queue::create(&plan.rabbitmq).await?;
        let drain =
            async |outbox: &Outbox, count| bare::drain::to_queue(outbox, &plan.rabbitmq, &queue.name, count).await;
        let sample = by_hand(plan, keys, drain).await?;
        queue.delete().await?;
        Ok(sample)
    };
    let name = if keys == 0 { "PostgreSQL → RabbitMQ" } else { "PostgreSQL → RabbitMQ, 10,000 keys" };
    let pairs = Pairs::measure(plan.reps, ours, bare).await?;
    let least = (keys == 0).then_some(0.80);
    Ok(figures(name, &pairs, least, Some(1.5)))
}

pub(super) async fn to_nothing(plan: &Plan) -> Result<Vec<Figure>> {
    let ours = async || relayed(plan, 0, Null::target()).await;
    let bare = async || by_hand(plan, 0, bare::drain::to_nothing).await;
    let pairs = Pairs::measure(plan.reps, ours, bare).await?;
    Ok(figures("PostgreSQL → nothing", &pairs, Some(0.70), None))
}

pub(super) async fn to_file(plan: &Plan) -> Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let (ours, by_hand_path) = (folder.path().join("ours"), folder.path().join("bare"));
    let url = format!("file:{}", ours.display());
    let relay = async || relayed(plan, 0, posthaste_transport_local::parse(&url, Options::default())?).await;
    let bare = async || {
        let drain = async |outbox: &Outbox, count| bare::drain::to_file(outbox, &by_hand_path, count).await;
        by_hand(plan, 0, drain).await
    };
    let pairs = Pairs::measure(plan.reps, relay, bare).await?;
    Ok(figures("PostgreSQL → file", &pairs, None, None))
}

fn figures(name: &str, pairs: &Pairs, least: Option<f64>, most_cpu: Option<f64>) -> Vec<Figure> {
    let figure = |unit| Figure::of(name, pairs, unit);
    let rate = least.map_or(figure(RATE), |least| figure(RATE).must(Must::Ratio(least)));
    let cpu = most_cpu.map_or(figure(CPU), |most| figure(CPU).must(Must::RatioAtMost(most)));
    vec![
        rate,
        cpu,
        figure(DATABASE_CPU).must(Must::RatioAtMost(1.5)),
        figure(STATEMENTS).must(Must::AtMost(0.05)),
        figure(DEAD),
        figure(COMMIT),
    ]
}

/// Drains an outbox by a relay: from its start until all is marked.
pub(super) async fn relayed(plan: &Plan, keys: u32, target: Target) -> Result<Sample> {
    let outbox = plan.server.outbox().await?;
    outbox.fill(plan.rows, keys).await?;
    let commit = plan.server.commit_millis().await?;
    let before = Reading::now(plan);
    let Drained { took, statements, .. } = relay(&outbox, plan.rows, target).await?;
    let statements = statements.all() as f64 / f64::from(plan.rows);
    let mut sample = before.sample(plan, took, commit);
    sample.push((STATEMENTS, statements));
    finish(outbox, plan.rows, sample).await
}

/// What a relay did.
pub(super) struct Drained {
    /// When each tenth was confirmed.
    pub(super) tenths: Vec<Duration>,
    /// Until all was marked.
    took: Duration,
    statements: Arc<Statements>,
}

/// Runs a relay until everything is marked.
pub(super) async fn relay(outbox: &Outbox, rows: u32, target: Target) -> Result<Drained> {
    let start = Instant::now();
    let count = Count::new(rows);
    let target = Watched::around(target, count.clone());
    let (store, statements) = Counted::around(outbox.store.clone());
    let relay = ours::start(&outbox.name, store, target, Settings::default())?;
    let tenths = count.all().await;
    ours::until_idle(&relay).await?;
    let took = start.elapsed();
    relay.stop().await;
    Ok(Drained { tenths, took, statements })
}

async fn by_hand(plan: &Plan, keys: u32, drain: impl AsyncFn(&Outbox, Arc<Count>) -> Result<()>) -> Result<Sample> {
    let outbox = plan.server.outbox().await?;
    outbox.fill(plan.rows, keys).await?;
    let commit = plan.server.commit_millis().await?;
    let before = Reading::now(plan);
    let start = Instant::now();
    drain(&outbox, Count::new(plan.rows)).await?;
    let sample = before.sample(plan, start.elapsed(), commit);
    finish(outbox, plan.rows, sample).await
}

/// Checks that nothing is left, and looks at what it has cost the table.
async fn finish(outbox: Outbox, rows: u32, mut sample: Sample) -> Result<Sample> {
    let left = outbox.undelivered().await?;
    if left > 0 {
        return Err(format!("{left} rows are not marked").into());
    }
    // a session tells the statistics when it ends, or after a second
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    sample.push((DEAD, outbox.dead_versions().await? as f64 / f64::from(rows)));
    outbox.drop_tables().await?;
    Ok(sample)
}

/// What had been used before a drain.
struct Reading {
    own: Option<Duration>,
    database: Option<Duration>,
}

impl Reading {
    fn now(plan: &Plan) -> Reading {
        Reading { own: meter::own_cpu(), database: plan.server.cpu() }
    }

    fn sample(&self, plan: &Plan, took: Duration, commit: f64) -> Sample {
        let now = Reading::now(plan);
        vec![
            (RATE, f64::from(plan.rows) / took.as_secs_f64()),
            (CPU, meter::micros_each(self.own, now.own, plan.rows)),
            (DATABASE_CPU, meter::micros_each(self.database, now.database, plan.rows)),
            (COMMIT, commit),
        ]
    }
}
