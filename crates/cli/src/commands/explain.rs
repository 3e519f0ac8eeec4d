//! `explain`: gathers what is known about a row, and says why it has not been delivered yet.

use std::{net::SocketAddr, time::Duration};

use posthaste_core::{
    OutboxName, Row, Timestamp,
    port::{ReadRequest, Store},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    args::{Explain, One},
    exit::{Done, Fault},
    explain::{Explanation, Facts, Reason, RelaySays, explain, unknown},
    output::{Out, printable},
    setup::{IfEmpty, Setup, called},
    wiring::Wiring,
};

/// Longest wait for a relay's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const MOST_ANSWER: u64 = 1 << 20;

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
    let relay = match args.relay {
        Some(address) => Some(ask(address, &outbox).await?),
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

/// Asks a relay what it says of the outbox.
async fn ask(address: SocketAddr, outbox: &OutboxName) -> Result<RelaySays, Fault> {
    let unreachable = |why: String| Fault::Failed {
        code: 3,
        error: format!("the relay at {address} does not answer: {why}"),
        hint: Some("--relay takes the address that the relay was given with --http".to_owned()),
    };
    let asked = tokio::time::timeout(PATIENCE, get_status(address)).await;
    let body = asked.map_err(|_| unreachable("no answer in time".into()))?;
    let body = body.map_err(|error| unreachable(error.to_string()))?;
    let status: Value = serde_json::from_str(&body).map_err(|_| unreachable("that is no relay's status".into()))?;
    let all = status["relay"].as_array().into_iter().flatten();
    let mine = all.into_iter().find(|entry| entry["outbox"] == outbox.to_string());
    let mine = mine.ok_or_else(|| unreachable(format!("it does not pump {}", called(outbox))))?;
    let paused: Vec<&str> = mine["paused"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    Ok(RelaySays {
        name: address.to_string(),
        owns_lane: mine["owns_lanes"] == true,
        in_flight: false,
        paused: (!paused.is_empty()).then(|| (paused.join(", "), "its log says why".to_owned())),
    })
}

async fn get_status(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /status HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(MOST_ANSWER).read_to_string(&mut answer).await?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
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
