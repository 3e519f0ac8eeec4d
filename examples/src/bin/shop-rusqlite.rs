//! An order and its event in one SQLite transaction, and a relay in the same process that appends
//! the events to `out.ndjson`.
//!
//!     cargo run -p posthaste-examples --bin shop-rusqlite

use std::{error::Error, sync::Arc};

use posthaste::{
    Event, OutboxName, Relay, RouteKey, Settings, options,
    port::Schema as _,
    route::{Route, Routes, TargetKey},
    sqlite::SqliteStore,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = OutboxName::unnamed();
    let store = Arc::new(SqliteStore::new("sqlite:shop.db", &name)?);
    store.migrate().await?;

    // The relay: one route, everything to a file.
    let target = posthaste::local::parse("file:out.ndjson", options::Options::default())?;
    let route = Route {
        key: RouteKey::single(),
        pattern: "*".parse()?,
        when: None,
        payload: None,
        target: TargetKey::from("file"),
        address: target.address.clone(),
    };
    let settings = Settings::default();
    let routes = Routes::new(vec![route], Vec::new(), "/shop".into(), settings.max_body)?;
    let relay = Relay::builder("shop")
        .target(TargetKey::from("file"), target)
        .outbox(name.clone(), store.clone(), Arc::new(routes), settings)
        .build()?
        .start();

    // The application: its own connection, its own transaction.
    let mut outbox = store.outbox();
    if let Some(waker) = relay.waker(&name) {
        outbox = outbox.with_waker(waker);
    }
    let mut connection = rusqlite::Connection::open("shop.db")?;
    connection.execute_batch("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, total INTEGER)")?;
    for total in [120, 80, 45] {
        let mut transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        transaction.execute("INSERT INTO orders (total) VALUES (?1)", [total])?;
        let number = transaction.last_insert_rowid();
        let event = Event::json("order.placed", &serde_json::json!({ "number": number, "total": total }))?;
        let receipt = outbox.enqueue(&mut transaction, &[event.key(number.to_string())])?;
        transaction.commit()?;
        // After the commit, and only a hint: without it the pump finds the rows by itself.
        outbox.committed(receipt);
    }

    let mut progress = relay.progress();
    for (_, progress) in &mut progress {
        progress.wait_for(|progress| progress.passes > 0 && progress.idle).await?;
    }
    relay.stop().await;
    println!("delivered to out.ndjson");
    Ok(())
}
