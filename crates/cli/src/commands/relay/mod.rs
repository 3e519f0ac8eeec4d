//! `relay`: pumps outboxes until it is told to stop, or until there is nothing left.

mod stdout;
mod until;

use std::sync::Arc;

use posthaste_core::{
    Backoff, ErrorKind, OutboxName,
    port::{SchemaState, Store},
};
use posthaste_relay::{Relay, RelayHandle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::until::Ended;
use crate::{
    args::Relay as Arguments,
    config::Config,
    exit::{Done, Fault, say},
    http, logs,
    setup::{IfEmpty, Setup},
    wiring::{Wiring, relay_settings},
};

/// An outbox and its store, ready to be pumped.
type Source = (OutboxName, Arc<dyn Store>);

pub async fn run(args: &Arguments) -> Result<Done, Fault> {
    logs::start(args.log.as_deref())?;
    let setup = Setup::read(&args.at.place)?;
    let closed = CancellationToken::new();
    let wiring = Wiring::of(&args.to, &setup.config)?;
    wiring.check_places()?;
    wiring.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    let mut signals = Signals::listen()?;
    let page = http::bind(args.http).await?;
    let deadline = args.timeout.map(|timeout| tokio::time::Instant::now() + timeout);
    let names = setup.several(&args.at);
    let opened = async {
        let sources = open_all(&setup, &names).await?;
        // Counted before the relay can add to them.
        let dead_letters = if args.until_empty { until::dead_letters(&sources).await } else { 0 };
        Ok::<_, Fault>((sources, dead_letters))
    };
    let (sources, dead_letters) = tokio::select! {
        opened = opened => opened?,
        () = signals.next() => return Ok(until::interrupted(args, None)),
        () = until::reached(deadline) => return Err(until::gave_up(&["the database can't be reached".to_owned()])),
    };
    let routes = wiring.shown();
    let handle = start(args, &setup.config, wiring, &sources, &closed)?;
    let served = page.serve(handle.observer(), routes);
    let ended = tokio::select! {
        ended = until::wait(args, &handle, &sources, dead_letters) => ended,
        () = closed.cancelled() => Ended::Closed,
        () = signals.next() => Ended::Stopped,
        () = until::reached(deadline) => Ended::TimedOut(handle.health().reasons()),
    };
    stop(handle, &mut signals).await?;
    served.end().await;
    match ended {
        Ended::Stopped => Ok(until::interrupted(args, until::left(args, &sources).await)),
        ended => until::conclude(ended),
    }
}

fn start(
    args: &Arguments,
    config: &Config,
    wiring: Wiring,
    sources: &[Source],
    closed: &CancellationToken,
) -> Result<RelayHandle, Fault> {
    let name = args.name.clone().unwrap_or_else(|| format!("relay-{}", std::process::id()));
    let mut builder = Relay::builder(name);
    for (outbox, store) in sources {
        let routes = wiring.routes_of(outbox)?;
        builder = builder.outbox(outbox.clone(), Arc::clone(store), routes, relay_settings(config));
    }
    for (key, target) in wiring.targets {
        builder = builder.target(key, stdout::watched(target, closed.clone()));
    }
    Ok(builder.build().map_err(|error| Fault::usage(error.to_string()))?.start())
}

/// Opens every outbox. A database that does not answer is waited for; whatever else is wrong ends it.
async fn open_all(setup: &Setup, names: &[OutboxName]) -> Result<Vec<Source>, Fault> {
    let stores: Vec<Arc<dyn Store>> = names.iter().map(|name| setup.store(name)).collect::<Result<_, _>>()?;
    let mut failures = 0;
    for store in &stores {
        while let Err(error) = store.schema().await {
            if error.kind() != ErrorKind::Unavailable {
                return Err(error.into());
            }
            if failures == 0 {
                say(&format!("waiting for the database: {error}"));
            }
            failures += 1;
            tokio::time::sleep(Backoff::STORE.after(failures)).await;
        }
    }
    make_empty(setup, names, &stores).await?;
    let mut sources = Vec::new();
    for name in names {
        sources.push((name.clone(), setup.open(name, IfEmpty::Make).await?));
    }
    Ok(sources)
}

/// All outboxes of an empty file are made before the first of them makes it no longer empty.
async fn make_empty(setup: &Setup, names: &[OutboxName], stores: &[Arc<dyn Store>]) -> Result<(), Fault> {
    if !setup.makes_schema() || names.len() < 2 {
        return Ok(());
    }
    let mut empty = Vec::new();
    for store in stores {
        if store.schema().await? == SchemaState::EmptyDatabase {
            empty.push(store);
        }
    }
    for store in empty {
        store.migrate().await?;
    }
    Ok(())
}

/// Drains; a second signal ends it at once.
async fn stop(handle: RelayHandle, signals: &mut Signals) -> Result<(), Fault> {
    tokio::select! {
        () = handle.stop() => Ok(()),
        () = signals.next() => Err(Fault::failure("ended by a second signal; what was in flight is sent again")),
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Signals, Fault> {
        let listen = |kind| signal(kind).map_err(|error| Fault::failure(format!("listening for signals: {error}")));
        Ok(Signals { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
