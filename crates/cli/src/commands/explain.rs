//! `explain`: gathers what is known about a row, and says why it has not been delivered yet.

use posthaste_core::{
    Result, Row, Timestamp,
    port::{ReadRequest, Store},
};

use crate::{
    args::One,
    exit::{Done, Fault},
    explain::{Explanation, Facts, Reason, explain, unknown},
    output::{Out, printable},
    setup::{IfEmpty, Setup},
};

pub async fn run(args: &One, out: &mut Out) -> Result<Done, Fault> {
    let store = Setup::read(&args.at.place)?.open_single(&args.at, IfEmpty::Refuse).await?;
    let explanation = match store.get(args.id).await? {
        Some(row) => answer(store.as_ref(), &row).await?,
        None => unknown(args.id),
    };
    write(&explanation, args.json, out)?;
    Ok(if explanation.reason == Reason::UnknownId { Done::WithFindings } else { Done::Clean })
}

async fn answer(store: &dyn Store, row: &Row) -> Result<Explanation> {
    let predecessor = store.predecessor(row).await?;
    let status = store.status().await?;
    let now = clock(store, row).await?;
    Ok(explain(&Facts {
        row,
        predecessor: predecessor.as_ref(),
        relays: &status.relays,
        now,
        routed: None,
        relay: None,
    }))
}

/// The database's clock: every read tells it, and one of a single row without its body is cheap.
async fn clock(store: &dyn Store, row: &Row) -> Result<Timestamp> {
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
