//! `demo`: the main job with nothing installed, and the faults it is there for.

mod broker;
mod shop;

use std::{sync::Arc, time::Duration};

use posthaste_core::{
    OutboxName, RouteKey, RowId,
    port::{Inspect as _, Schema as _},
};
use posthaste_relay::{
    Relay, RelayHandle, Settings,
    route::{Route, Routes, TargetKey},
};
use posthaste_store_sqlite::SqliteStore;
use serde::Serialize;

use self::{broker::Broker, shop::Shop};
use crate::{
    args::Demo,
    exit::{Done, Fault},
    output::Out,
};

/// Orders a step.
const ORDERS: usize = 20;
/// Orders that are rolled back.
const CANCELLED: usize = 5;
/// Longest wait for any step; each takes a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of it.
#[derive(Serialize)]
struct Counts {
    committed: usize,
    rolled_back: usize,
    published_at_once: usize,
    pending_while_the_broker_was_down: u64,
    attempts_counted_while_it_was_down: u32,
    recovered: usize,
    delivered: usize,
    duplicates: usize,
    announced_without_a_commit: usize,
    lost: usize,
}

pub async fn run(args: &Demo, out: &mut Out) -> Result<Done, Fault> {
    let folder = tempfile::tempdir().map_err(|error| Fault::failure(format!("making a temporary folder: {error}")))?;
    let mut stage = Stage::set(folder.path()).await?;
    let mut told = Told { out, silent: args.json };
    let counts = tokio::time::timeout(PATIENCE * 4, stage.play(&mut told)).await;
    let counts = counts.map_err(|_| Fault::failure("the demo did not come to its end"))??;
    if args.json {
        told.out.json(&counts)?;
    }
    let good = counts.lost == 0 && counts.duplicates == 0 && counts.announced_without_a_commit == 0;
    Ok(if good { Done::Clean } else { Done::WithFindings })
}

struct Told<'a> {
    out: &'a mut Out,
    silent: bool,
}

impl Told<'_> {
    fn say(&mut self, line: &str) -> Result<(), Fault> {
        if self.silent {
            return Ok(());
        }
        self.out.line(line)?;
        self.out.flush()
    }
}

struct Stage {
    store: Arc<SqliteStore>,
    outbox: OutboxName,
    broker: Arc<Broker>,
    shop: Shop,
    committed: Vec<RowId>,
    cancelled: Vec<RowId>,
}

impl Stage {
    async fn set(folder: &std::path::Path) -> Result<Stage, Fault> {
        let file = folder.join("shop.db");
        let outbox = OutboxName::unnamed();
        let store = Arc::new(SqliteStore::new(&format!("sqlite:{}", file.display()), &outbox)?);
        store.migrate().await?;
        let shop = Shop::open(&file, store.outbox())?;
        Ok(Stage { store, outbox, broker: Broker::new(), shop, committed: Vec::new(), cancelled: Vec::new() })
    }

    fn relay(&mut self) -> Result<RelayHandle, Fault> {
        let settings = Settings::default();
        let (key, target) = (TargetKey::from("broker"), self.broker.target());
        let route = Route {
            key: RouteKey::single(),
            pattern: "*".parse().map_err(|error| Fault::failure(format!("{error}")))?,
            when: None,
            payload: None,
            target: key.clone(),
            address: target.address.clone(),
        };
        let routes = Routes::new(vec![route], Vec::new(), "/posthaste/demo".into(), settings.max_body);
        let routes = Arc::new(routes.map_err(|error| Fault::failure(error.to_string()))?);
        let store = Arc::clone(&self.store) as _;
        let relay = Relay::builder("demo").outbox(self.outbox.clone(), store, routes, settings).target(key, target);
        let handle = relay.build().map_err(|error| Fault::failure(error.to_string()))?.start();
        if let Some(waker) = handle.waker(&self.outbox) {
            self.shop.wake(waker);
        }
        Ok(handle)
    }

    fn take_orders(&mut self) -> Result<(), Fault> {
        for _ in 0..ORDERS {
            self.committed.push(self.shop.order()?);
        }
        Ok(())
    }

    async fn play(&mut self, told: &mut Told<'_>) -> Result<Counts, Fault> {
        told.say("An order service with its own SQLite database; each order and its event commit together.")?;
        let relay = self.relay()?;
        self.take_orders()?;
        self.broker.received(ORDERS).await;
        self.marked(ORDERS as u64).await?;
        let published_at_once = self.broker.copies().len();
        told.say(&format!("  {ORDERS} orders committed      -> {published_at_once} events published at once"))?;

        for _ in 0..CANCELLED {
            self.cancelled.push(self.shop.cancelled_order()?);
        }
        told.say(&format!("  {CANCELLED} orders rolled back     -> nothing announced"))?;

        self.broker.set_up(false);
        self.take_orders()?;
        let paused = |progress: &posthaste_relay::Progress| !progress.paused.is_empty();
        for (_, mut progress) in relay.progress() {
            let _ = progress.wait_for(paused).await;
        }
        let down = self.store.status().await?;
        let attempts = self.attempts().await?;
        told.say(&format!("The broker goes away. {ORDERS} more orders commit as if nothing had happened:"))?;
        told.say(&format!("  {} events wait in the database, {attempts} attempts counted", down.pending))?;

        drop(relay);
        told.say("The relay's process is killed, and another one starts. The broker comes back:")?;
        self.broker.set_up(true);
        let relay = self.relay()?;
        self.broker.received(2 * ORDERS).await;
        let recovered = self.broker.copies().len() - published_at_once;
        told.say(&format!("  {recovered} events recovered from the database, nobody touched anything"))?;

        self.take_orders()?;
        self.broker.received(3 * ORDERS).await;
        relay.stop().await;
        let counts = self.count(published_at_once, recovered, down.pending, attempts)?;
        told.say(&format!(
            "In the end: {} orders committed, {} events delivered,",
            counts.committed, counts.delivered
        ))?;
        told.say(&format!(
            "  {} duplicates, {} announced without a commit, {} lost",
            counts.duplicates, counts.announced_without_a_commit, counts.lost
        ))?;
        told.say("Next: posthaste enqueue --help, posthaste relay --help")?;
        Ok(counts)
    }

    /// Waits until what was confirmed is marked: a relay killed before that repeats it.
    async fn marked(&self, count: u64) -> Result<(), Fault> {
        while self.store.status().await?.published < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn attempts(&self) -> Result<u32, Fault> {
        let rows = self.store.list(&posthaste_core::port::Filter::default(), 0, 1_000).await?;
        Ok(rows.iter().map(|row| row.attempts).sum())
    }

    fn count(&self, at_once: usize, recovered: usize, pending: u64, attempts: u32) -> Result<Counts, Fault> {
        let copies = self.broker.copies();
        Ok(Counts {
            committed: self.shop.orders()?,
            rolled_back: self.cancelled.len(),
            published_at_once: at_once,
            pending_while_the_broker_was_down: pending,
            attempts_counted_while_it_was_down: attempts,
            recovered,
            delivered: copies.len(),
            duplicates: copies.values().filter(|copies| **copies > 1).count(),
            announced_without_a_commit: self.cancelled.iter().filter(|id| copies.contains_key(id)).count(),
            lost: self.committed.iter().filter(|id| !copies.contains_key(id)).count(),
        })
    }
}
