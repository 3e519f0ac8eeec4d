//! Whether it stays fast: as the drain goes on, with a long history, with an old snapshot held.

use std::time::Duration;

use crate::{
    Plan, Result,
    measure::drain::relay,
    report::{Figure, Must},
    rounds::{Pairs, Sample},
    scene::connect,
    watched::Null,
};

const RATE: &str = "events/s";

pub(super) async fn run(plan: &Plan) -> Result<Vec<Figure>> {
    let rows = plan.rows.saturating_mul(2);
    let mut first_and_last = Vec::new();
    for held in [false, true] {
        let mut firsts = Vec::new();
        let last = async || {
            let tenths = drain(plan, rows, 0, held).await?;
            firsts.push(rate(rows, &tenths[..1]));
            Ok(rate(rows, &tenths[8..]))
        };
        let lasts = repeat(plan.reps, last).await?;
        first_and_last.push(Pairs::from(lasts, firsts));
    }
    let with = async || Ok(rate(plan.rows, &drain(plan, plan.rows, plan.history, false).await?));
    let without = async || Ok(rate(plan.rows, &drain(plan, plan.rows, 0, false).await?));
    let history = Pairs::measure(plan.reps, with, without).await?;
    let [free, held] = &first_and_last[..] else { return Err("two runs were made".into()) };
    Ok(vec![
        Figure::of(format!("last tenth / first of {rows}"), free, RATE),
        Figure::of(format!("last tenth / first of {rows}, old snapshot held"), held, RATE).must(Must::Ratio(0.80)),
        Figure::of(format!("with {} published rows / without", plan.history), &history, RATE).must(Must::Ratio(0.90)),
    ])
}

async fn repeat(reps: u32, mut turn: impl AsyncFnMut() -> Result<Sample>) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for _ in 0..reps {
        samples.push(turn().await?);
    }
    Ok(samples)
}

/// When each tenth was confirmed.
async fn drain(plan: &Plan, rows: u32, history: u32, hold_snapshot: bool) -> Result<Vec<Duration>> {
    let outbox = plan.server.outbox().await?;
    if history > 0 {
        outbox.remember(history).await?;
    }
    outbox.fill(rows, 0).await?;
    let old = connect(&plan.server.url).await?;
    if hold_snapshot {
        old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").await?;
    }
    let tenths = relay(&outbox, rows, Null::target()).await?.tenths;
    old.batch_execute("ROLLBACK").await?;
    outbox.drop_tables().await?;
    Ok(tenths)
}

/// The rate of the tenths after the first of these, or of that alone.
fn rate(rows: u32, tenths: &[Duration]) -> Sample {
    let (Some(first), Some(last)) = (tenths.first(), tenths.last()) else { return Vec::new() };
    let (count, took) = if tenths.len() == 1 { (1.0, *first) } else { ((tenths.len() - 1) as f64, *last - *first) };
    vec![(RATE, f64::from(rows) / 10.0 * count / took.as_secs_f64())]
}
