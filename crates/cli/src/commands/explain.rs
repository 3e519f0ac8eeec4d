//! `explain`: gathers what is known about a row, and says why it has not been delivered yet.

use posthaste_core::{
    OutboxName, Row, Timestamp,
    port::{ReadRequest, Store},
};

use crate::{
    args::{Explain, One},
    ask::ask,
    exit::{Done, Fault},
    explain::{Explanation, Facts, Reason, explain, unknown},
    output::{Out, printable},
    setup::{IfEmpty, Setup},
    wiring::Wiring,
};

pub async fn run(args: &Explain, out: &mut Out) -> Result<Done, Fault> {
    let One { id, at, json } = &args.one;
    let setup = Setup::read(&at.place)?;
    let store = setup.open_single(at, IfEmpty::Refuse).await?;
    let explanation = match store.get(*id).await? {
        Some(row) => answer(args, &setup, store.as_ref(), &row).await?,
        None => unknown(*id),
    };
    write(&explanation, *json, out)?;
    Ok(if explanation.reason == Reason::UnknownId { Done::WithFindings } else { Done::Clean })
}

async fn answer(args: &Explain, setup: &Setup, store: &dyn Store, row: &Row) -> Result<Explanation, Fault> {
    let outbox = setup.single(&args.one.at)?;
    let predecessor = store.predecessor(row).await?;
    let status = store.status().await?;
    let now = clock(store, row).await?;
    let relay = match &args.relay {
        Some(address) => Some(ask(address, &outbox, row).await?),
        None => None,
    };
    Ok(explain(&Facts {
        row,
        predecessor: predecessor.as_ref(),
        relays: &status.relays,
        now,
        routed: routed(setup, &outbox, row)?,
        relay: relay.as_ref(),
    }))
}

/// Whether a route of the configuration takes the row; `None` where there are none to look at.
fn routed(setup: &Setup, outbox: &OutboxName, row: &Row) -> Result<Option<bool>, Fault> {
    if setup.config.routes.is_empty() {
        return Ok(None);
    }
    let routes = Wiring::of_config(&setup.config)?.routes_of(outbox)?;
    Ok(Some(!routes.keys_of(row).is_empty()))
}

/// The database's clock: every read tells it, and one of a single row without its body is cheap.
async fn clock(store: &dyn Store, row: &Row) -> Result<Timestamp, Fault> {
    let from = vec![(row.lane, row.seq)];
    let page = store.read(ReadRequest { from, per_lane: 1, max_rows: 1, max_bytes: 1, max_body: 0 }).await?;
    Ok(page.now)
}

fn write(explanation: &Explanation, json: bool, out: &mut Out) -> Result<(), Fault> {
    if json {
        return out.json(explanation);
    }
    let reason = serde_json::to_value(explanation.reason).map_err(std::io::Error::from)?;
    let status = explanation.status.map(|status| format!(" ({status})")).unwrap_or_default();
    out.line(&format!("{}{status}: {}", explanation.id, reason.as_str().unwrap_or_default()))?;
    out.line(&format!("  {}", printable(&explanation.detail)))?;
    if let Some(time) = explanation.next_attempt_at {
        out.line(&format!("  next attempt at {time}"))?;
    }
    explanation.fix.as_ref().map_or(Ok(()), |fix| out.line(&format!("  to change that: {fix}")))
}
