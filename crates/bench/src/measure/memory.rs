//! Memory of a relay process.

use std::time::Duration;

use posthaste_core::{Event, port::Produce as _};

use crate::{
    Plan, Result,
    child::RelayProcess,
    meter,
    queue::{Queue, next_body},
    report::{Figure, Must},
};

const BODIES: usize = 100;
const BODY: usize = 5_000_000;
const UNIT: &str = "MiB";

pub(super) async fn run(plan: &Plan) -> Result<Vec<Figure>> {
    let (outbox, queue) = (plan.server.outbox().await?, Queue::create(&plan.rabbitmq).await?);
    let relay = RelayProcess::start(&outbox, &plan.rabbitmq, &queue.name)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let at_rest = meter::memory(relay.id(), "VmRSS").unwrap_or(f64::NAN);
    drop(relay);
    for _ in 0..BODIES {
        outbox.store.produce(&[Event::new("order.placed", "application/octet-stream", vec![7; BODY])]).await?;
    }
    let relay = RelayProcess::start(&outbox, &plan.rabbitmq, &queue.name)?;
    let mut consumer = queue.consume().await?;
    for _ in 0..BODIES {
        next_body(&mut consumer).await?;
    }
    let most = meter::memory(relay.id(), "VmHWM").unwrap_or(f64::NAN);
    drop(relay);
    queue.delete().await?;
    outbox.drop_tables().await?;
    Ok(vec![
        Figure::alone("relay at rest", UNIT, vec![at_rest]).must(Must::AtMost(64.0)),
        Figure::alone("relay, most, with 100 bodies of 5 MB", UNIT, vec![most]).must(Must::AtMost(256.0)),
    ])
}
