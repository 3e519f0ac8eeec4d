//! A web service with PostgreSQL: each request that places an order enqueues its event in the same
//! transaction; the relay runs in the service and publishes to RabbitMQ.
//!
//!     DATABASE_URL=postgres://postgres@localhost/test AMQP_URL='amqp://localhost/%2f?exchange=shop&declare=fanout' \
//!         cargo run -p posthaste-examples --bin shop-axum
//!     curl -X POST localhost:3000/orders -H 'content-type: application/json' -d '{"customer":"c7","total":120}'

use std::{error::Error, sync::Arc};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use posthaste::{
    Event, OutboxName, Relay, RouteKey, Settings, options,
    port::Schema as _,
    postgres::{Outbox, PostgresStore, Settings as StoreSettings},
    route::{Route, Routes, TargetKey},
};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

struct Shop {
    // One connection keeps the example short; a service has a pool.
    client: Mutex<Client>,
    outbox: Outbox,
}

#[derive(Deserialize)]
struct Order {
    customer: String,
    total: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = std::env::var("DATABASE_URL").unwrap_or_else(|_| "postgres://postgres@localhost/test".to_owned());
    let broker =
        std::env::var("AMQP_URL").unwrap_or_else(|_| "amqp://localhost/%2f?exchange=shop&declare=fanout".to_owned());

    let name: OutboxName = "shop".parse()?;
    let store = Arc::new(PostgresStore::new(&database, name.clone(), StoreSettings::default())?);
    store.migrate().await?;
    let (client, connection) = tokio_postgres::connect(&database, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute("CREATE TABLE IF NOT EXISTS orders (number bigserial PRIMARY KEY, customer text, total bigint)")
        .await?;

    let target = posthaste::amqp::parse(&broker, options::Options::default())?;
    let route = Route {
        key: RouteKey::from("shop"),
        pattern: "order.*".parse()?,
        when: None,
        payload: None,
        target: TargetKey::from("rabbit"),
        address: target.address.clone(),
    };
    let settings = Settings::default();
    let routes = Routes::new(vec![route], Vec::new(), "/shop".into(), settings.max_body)?;
    let relay = Relay::builder("shop")
        .target(TargetKey::from("rabbit"), target)
        .outbox(name.clone(), store.clone(), Arc::new(routes), settings)
        .build()?
        .start();

    let mut outbox = store.outbox();
    if let Some(waker) = relay.waker(&name) {
        outbox = outbox.with_waker(waker);
    }
    let shop = Arc::new(Shop { client: Mutex::new(client), outbox });
    let router = Router::new().route("/orders", post(place)).with_state(shop);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("serving http://{}", listener.local_addr()?);
    axum::serve(listener, router)
        .with_graceful_shutdown(async {
            // Without a signal handler the service runs until it is killed; nothing is lost then either.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    relay.stop().await;
    Ok(())
}

async fn place(State(shop): State<Arc<Shop>>, Json(order): Json<Order>) -> Result<String, (StatusCode, String)> {
    let failed = |error: &dyn Error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let mut client = shop.client.lock().await;
    let mut transaction = client.transaction().await.map_err(|error| failed(&error))?;
    let insert = "INSERT INTO orders (customer, total) VALUES ($1, $2) RETURNING number";
    let row = transaction.query_one(insert, &[&order.customer, &order.total]).await.map_err(|error| failed(&error))?;
    let number: i64 = row.get(0);
    let body = serde_json::json!({ "number": number, "customer": order.customer, "total": order.total });
    let event = Event::json("order.placed", &body).map_err(|error| failed(&error))?.key(order.customer);
    let receipt = shop.outbox.enqueue(&mut transaction, &[event]).await.map_err(|error| failed(&error))?;
    transaction.commit().await.map_err(|error| failed(&error))?;
    shop.outbox.committed(receipt);
    Ok(format!("order {number}\n"))
}
