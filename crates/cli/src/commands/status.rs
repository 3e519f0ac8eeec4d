//! `status`: outboxes at a glance, once or every two seconds.

use std::{io::IsTerminal as _, sync::Arc, time::Duration};

use posthaste_core::{
    OutboxName,
    port::{OutboxStatus, Store},
};

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    args::StatusArgs,
    config::duration::show,
    exit::{Done, Fault},
    output::{Out, StatusJson, Table, printable},
    setup::{IfEmpty, Setup},
};

const REFRESH: Duration = Duration::from_secs(2);
/// Clears the terminal and goes to its top left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub async fn run(args: &StatusArgs, out: &mut Out) -> Result<Done, Fault> {
    let setup = Setup::read(&args.at.place)?;
    let mut stores = Vec::new();
    for name in setup.several(&args.at) {
        let store = setup.open(&name, IfEmpty::Refuse).await?;
        stores.push((name, store));
    }
    if args.watch { watch(&stores, args.json, out).await } else { look(&stores, args.json, out).await }
}

type Stores = [(OutboxName, Arc<dyn Store>)];

async fn watch(stores: &Stores, json: bool, out: &mut Out) -> Result<Done, Fault> {
    let listening = signal(SignalKind::interrupt());
    let mut interrupted = listening.map_err(|error| Fault::failure(format!("listening for signals: {error}")))?;
    tokio::select! {
        _ = interrupted.recv() => Ok(Done::Clean),
        ended = again_and_again(stores, json, out) => ended,
    }
}

async fn again_and_again(stores: &Stores, json: bool, out: &mut Out) -> Result<Done, Fault> {
    let redraw = !json && std::io::stdout().is_terminal();
    loop {
        if redraw {
            out.line(CLEAR)?;
        }
        look(stores, json, out).await?;
        out.flush()?;
        tokio::time::sleep(REFRESH).await;
    }
}

async fn look(stores: &Stores, json: bool, out: &mut Out) -> Result<Done, Fault> {
    let mut all = Vec::new();
    for (name, store) in stores {
        let status = store.status().await?;
        if json {
            out.json(&StatusJson::new(name, &status))?;
        } else {
            all.push((name, status));
        }
    }
    if !json {
        write(&all, out)?;
    }
    Ok(Done::Clean)
}

fn write(all: &[(&OutboxName, OutboxStatus)], out: &mut Out) -> Result<(), Fault> {
    let headings = ["OUTBOX", "PENDING", "PROCESSING", "FAILED", "PUBLISHED", "INVALID", "OLDEST", "RELAYS"];
    let mut table = Table::new(&headings);
    for (name, status) in all {
        table.row(cells(name, status));
    }
    table.write(out)?;
    for (name, status) in all.iter().filter(|(_, status)| !status.deferred_types.is_empty()) {
        let types = printable(&status.deferred_types.join(", "));
        out.line(&format!("{name}: no route of a relay matches these types: {types}"))?;
    }
    Ok(())
}

fn cells(name: &OutboxName, status: &OutboxStatus) -> [String; 8] {
    let about = if status.published_is_estimate { "~" } else { "" };
    let age = status.oldest_pending.map(|age| show(Duration::from_secs(age.as_secs())));
    let relays: Vec<String> =
        status.relays.iter().map(|relay| format!("{} ({} lanes)", relay.name, relay.lanes)).collect();
    [
        name.to_string(),
        status.pending.to_string(),
        status.processing.to_string(),
        status.failed.to_string(),
        format!("{about}{}", status.published),
        status.invalid.to_string(),
        age.unwrap_or_else(|| "-".to_owned()),
        if relays.is_empty() { "none".to_owned() } else { relays.join(", ") },
    ]
}
