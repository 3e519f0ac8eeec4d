//! What a relay asks of the database while nothing happens.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use posthaste_relay::Settings;

use crate::{
    Plan, Result,
    counted::Counted,
    ours,
    report::{Figure, Must},
    watched::Null,
};

const INTERVAL: Duration = Duration::from_secs(1);
const INTERVALS: u32 = 10;

pub(super) async fn run(plan: &Plan) -> Result<Vec<Figure>> {
    let outbox = plan.server.outbox().await?;
    let (store, statements) = Counted::around(outbox.store.clone());
    let settings = Settings { interval: INTERVAL, ..Settings::default() };
    let relay = ours::start(&outbox.name, store, Null::target(), settings)?;
    ours::until_idle(&relay).await?;
    // it falls asleep
    tokio::time::sleep(INTERVAL).await;
    let (reads, all) = (statements.reads.load(Relaxed), statements.all());
    tokio::time::sleep(INTERVAL * INTERVALS).await;
    let each = |count: u64| vec![count as f64 / f64::from(INTERVALS)];
    let figures = vec![
        Figure::alone("idle", "reads/interval", each(statements.reads.load(Relaxed) - reads)).must(Must::AtMost(1.0)),
        Figure::alone("idle", "statements/interval", each(statements.all() - all)),
    ];
    relay.stop().await;
    outbox.drop_tables().await?;
    Ok(figures)
}
