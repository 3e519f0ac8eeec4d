//! Orders and their events in one SQLite file, with the relay inside; nothing to install.
//!
//! Run: `cargo run -p posthaste-examples --bin rusqlite_shop`. Prints each event as it is delivered.
//! The first argument is the file, `shop.db` by default.

use std::{error::Error, sync::Arc, time::Duration};

use posthaste::{
    Event, OutboxName, Relay, RelayHandle, RouteKey, Settings, local,
    options::Options,
    port::{Inspect as _, Schema as _},
    route::{Route, Routes, TargetKey, TypePattern},
    sqlite::{Outbox, SqliteStore},
};
use rusqlite::Connection;
use serde_json::json;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Fallible<()> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "shop.db".to_owned());
    let name = OutboxName::unnamed();
    let store = Arc::new(SqliteStore::new(&format!("sqlite:{file}"), &name)?);
    store.migrate().await?;
    let relay = relay(&name, store.clone())?;
    let mut outbox = store.outbox();
    if let Some(waker) = relay.waker(&name) {
        outbox = outbox.with_waker(waker);
    }

    let mut connection = Connection::open(&file)?;
    connection
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS shop_order (item TEXT, count INT)")?;
    for (item, count) in [("book", 1), ("pen", 2), ("moon", 1), ("ink", 3)] {
        match place_order(&mut connection, &outbox, item, count) {
            Ok(()) => eprintln!("{item}: ordered"),
            Err(error) => eprintln!("{item}: {error}; there is neither an order nor an event"),
        }
    }

    while store.status().await?.pending > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    relay.stop().await;
    Ok(())
}

/// Both writes are in one transaction: it commits if the closure answers `Ok`, else it is rolled back.
fn place_order(connection: &mut Connection, outbox: &Outbox, item: &str, count: u32) -> Fallible<()> {
    outbox.transaction(connection, |tx, outbox| {
        tx.execute("INSERT INTO shop_order (item, count) VALUES (?1, ?2)", (item, count))?;
        let event = Event::json("order.placed", &json!({ "item": item, "count": count }))?.key(item);
        outbox.enqueue(tx, &[event])?;
        if item == "moon" { Err("sold out".into()) } else { Ok(()) }
    })
}

/// The relay of this process: every event to the standard output.
fn relay(name: &OutboxName, store: Arc<SqliteStore>) -> Fallible<RelayHandle> {
    let target = local::parse("stdout:", Options::default())?;
    let (key, settings) = (TargetKey::from("events"), Settings::default());
    let route = Route {
        key: RouteKey::single(),
        pattern: TypePattern::any(),
        when: None,
        payload: None,
        target: key.clone(),
        address: target.address.clone(),
    };
    let routes = Arc::new(Routes::new(vec![route], Vec::new(), "/posthaste/outbox".into(), settings.max_body)?);
    let relay = Relay::builder("example").outbox(name.clone(), store, routes, settings).target(key, target);
    Ok(relay.build()?.start())
}
