//! A program that only writes: orders and events in PostgreSQL by tokio-postgres. A relay that runs
//! beside it delivers them.
//!
//! Run: `cargo run -p posthaste-examples --bin tokio_postgres`, then the command that it prints.
//! `DATABASE_URL` defaults to `postgres://postgres@127.0.0.1:5432/test`.

use std::{env, error::Error};

use posthaste::{
    Event, OutboxName, RowId,
    port::Schema as _,
    postgres::{self, Outbox, PostgresStore},
};
use serde_json::json;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Fallible<()> {
    let url = env::var("DATABASE_URL").unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".to_owned());
    let name: OutboxName = "example_orders".parse()?;
    PostgresStore::new(&url, name.clone(), postgres::Settings::default())?.migrate().await?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE IF NOT EXISTS example_order (id text PRIMARY KEY, total int NOT NULL)").await?;

    let outbox = Outbox::new(name.clone());
    let order = Uuid::now_v7();
    place(&mut client, &outbox, order, 10).await?;
    raise(&mut client, &outbox, order, 5).await?;
    raise(&mut client, &outbox, order, 3).await?;
    eprintln!("deliver them: posthaste relay --store '{url}' --outbox {name} --to stdout: --until-empty");
    Ok(())
}

/// In a transaction that the program runs itself.
async fn place(client: &mut Client, outbox: &Outbox, order: Uuid, total: i32) -> Fallible<()> {
    let order = order.to_string();
    let mut tx = client.transaction().await?;
    tx.execute("INSERT INTO example_order (id, total) VALUES ($1, $2)", &[&order, &total]).await?;
    let event = Event::json("order.placed", &json!({ "order": order, "total": total }))?;
    // an id of one's own makes the call repeatable: the same event again is no second one
    let event = event.key(&order).id(RowId::from(Uuid::new_v5(&Uuid::NAMESPACE_OID, order.as_bytes())));
    let receipt = outbox.enqueue(&mut tx, &[event]).await?;
    tx.commit().await?;
    outbox.committed(receipt);
    Ok(())
}

/// In a transaction that Posthaste runs: begun again where a concurrent one won.
async fn raise(client: &mut Client, outbox: &Outbox, order: Uuid, by: i32) -> Fallible<()> {
    let order = order.to_string();
    let raised = outbox.transaction(client, async |tx, outbox| {
        let update = "UPDATE example_order SET total = total + $2 WHERE id = $1 RETURNING total";
        let total: i32 = tx.query_one(update, &[&order, &by]).await?.get(0);
        let event = Event::json("order.raised", &json!({ "order": order, "total": total }))?.key(&order);
        outbox.enqueue(tx, &[event]).await?;
        Ok(total)
    });
    println!("{order}: {}", raised.await?);
    Ok(())
}
