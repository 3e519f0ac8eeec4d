//! A web service whose orders and events commit together in PostgreSQL, with the relay inside.
//!
//! Run: `cargo run -p posthaste-examples --bin axum_sqlx`, then
//! `curl -i localhost:3000/orders -d '{"customer":"ada","total":10}' -H 'content-type: application/json'`.
//!
//! `DATABASE_URL` defaults to `postgres://postgres@127.0.0.1:5432/test`, `TARGET` to `stdout:`; with
//! `TARGET='amqp://localhost/%2f?exchange=orders'` the events go to RabbitMQ.

use std::{env, error::Error, sync::Arc};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use posthaste::{
    Event, OutboxName, Relay, RelayHandle, RouteKey, Settings, amqp, local,
    options::Options,
    port::{Schema as _, Target},
    postgres::{self, Outbox, PostgresStore},
    route::{Route, Routes, TargetKey, TypePattern},
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use uuid::Uuid;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Deserialize)]
struct NewOrder {
    customer: String,
    total: i64,
}

#[derive(Serialize)]
struct Order {
    id: String,
    customer: String,
    total: i64,
}

#[derive(Clone)]
struct Shop {
    pool: PgPool,
    outbox: Outbox,
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let url = env::var("DATABASE_URL").unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".to_owned());
    let pool = PgPool::connect(&url).await?;
    let table = "CREATE TABLE IF NOT EXISTS shop_order (id uuid PRIMARY KEY, customer text NOT NULL, total bigint)";
    sqlx::query(table).execute(&pool).await?;

    let name: OutboxName = "example_shop".parse()?;
    let store = Arc::new(PostgresStore::new(&url, name.clone(), postgres::Settings::default())?);
    store.migrate().await?;
    let relay = relay(&name, store)?;
    let mut outbox = Outbox::new(name.clone());
    if let Some(waker) = relay.waker(&name) {
        outbox = outbox.with_waker(waker);
    }

    let app = Router::new().route("/orders", post(place_order)).with_state(Shop { pool, outbox });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(interrupted()).await?;
    relay.stop().await;
    Ok(())
}

async fn place_order(State(shop): State<Shop>, Json(order): Json<NewOrder>) -> Result<Json<Order>, StatusCode> {
    let placed = shop.place(order).await.map_err(|error| {
        eprintln!("no order was placed: {error}");
        StatusCode::INTERNAL_SERVER_ERROR
    })?;
    Ok(Json(placed))
}

impl Shop {
    /// Either both the order and its event are there afterwards, or neither.
    async fn place(&self, NewOrder { customer, total }: NewOrder) -> Fallible<Order> {
        let order = Order { id: Uuid::now_v7().to_string(), customer, total };
        let mut tx = self.pool.begin().await?;
        let insert = sqlx::query("INSERT INTO shop_order (id, customer, total) VALUES ($1::uuid, $2, $3)");
        insert.bind(&order.id).bind(&order.customer).bind(order.total).execute(&mut *tx).await?;
        let event = Event::json("order.placed", &order)?.key(order.customer.clone());
        let receipt = self.outbox.enqueue_sqlx(&mut tx, &[event]).await?;
        tx.commit().await?;
        self.outbox.committed(receipt);
        Ok(order)
    }
}

/// The relay of this process: every event to one target.
fn relay(name: &OutboxName, store: Arc<PostgresStore>) -> Fallible<RelayHandle> {
    let target = target(&env::var("TARGET").unwrap_or_else(|_| "stdout:".to_owned()))?;
    let (key, settings) = (TargetKey::from("events"), Settings::default());
    let route = Route {
        key: RouteKey::single(),
        pattern: TypePattern::any(),
        when: None,
        payload: None,
        target: key.clone(),
        address: target.address.clone(),
    };
    let source = format!("/posthaste/{name}").into();
    let routes = Arc::new(Routes::new(vec![route], Vec::new(), source, settings.max_body)?);
    let relay = Relay::builder("example").outbox(name.clone(), store, routes, settings).target(key, target);
    Ok(relay.build()?.start())
}

fn target(url: &str) -> Fallible<Target> {
    let parse = if url.starts_with("amqp") { amqp::parse } else { local::parse };
    Ok(parse(url, Options::default())?)
}

async fn interrupted() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        eprintln!("Ctrl-C can't be waited for: {error}");
    }
}
