//! What a relay serves under `--http`: metrics, health, its status as JSON, and a page.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use posthaste_relay::{Observer, OutboxHealth, route::TargetKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::interval};
use tokio_util::sync::CancellationToken;

use crate::{
    exit::{Fault, say},
    output::StatusJson,
    wiring::RouteJson,
};

/// How long a stop waits for answers under way.
const FAREWELL: Duration = Duration::from_secs(1);
const UPKEEP: Duration = Duration::from_secs(5);

/// A bound address, or none.
pub struct Page(Option<(TcpListener, PrometheusHandle)>);

/// Binds the address and starts to record metrics; must come before the relay starts.
pub async fn bind(address: Option<SocketAddr>) -> Result<Page, Fault> {
    let Some(address) = address else { return Ok(Page(None)) };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Fault::usage(format!("--http {address}: {error}")).hint("choose a free address of this machine")
    })?;
    let metrics = PrometheusBuilder::new().install_recorder();
    let metrics = metrics.map_err(|error| Fault::failure(format!("recording metrics: {error}")))?;
    if let Ok(address) = listener.local_addr() {
        say(&format!("serving http://{address}"));
    }
    Ok(Page(Some((listener, metrics))))
}

/// A page that is being served; no longer, once this is dropped.
pub struct Served {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Page {
    /// Serves until told to end; tells what `relay` last said, and asks no database.
    pub fn serve(self, relay: Observer, routes: Vec<RouteJson>) -> Served {
        let stop = CancellationToken::new();
        let Some((listener, metrics)) = self.0 else { return Served { stop, tasks: JoinSet::new() } };
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_up(metrics.clone(), stop.clone()));
        let state = Arc::new(Shared { relay, routes, metrics });
        let router = Router::new()
            .route("/", get(page))
            .route("/metrics", get(metrics_text))
            .route("/health/live", get(live))
            .route("/health/ready", get(ready))
            .route("/status", get(status))
            .with_state(state);
        let ended = stop.clone().cancelled_owned();
        tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(ended).await {
                tracing::warn!("the page is served no longer: {error}");
            }
        });
        Served { stop, tasks }
    }
}

impl Served {
    /// Ends it; connections that linger are cut.
    pub async fn end(mut self) {
        self.stop.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, all).await;
    }
}

async fn keep_up(metrics: PrometheusHandle, stop: CancellationToken) {
    let mut ticks = interval(UPKEEP);
    loop {
        tokio::select! {
            _ = ticks.tick() => metrics.run_upkeep(),
            () = stop.cancelled() => return,
        }
    }
}

struct Shared {
    relay: Observer,
    routes: Vec<RouteJson>,
    metrics: PrometheusHandle,
}

async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}

async fn metrics_text(State(shared): State<Arc<Shared>>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], shared.metrics.render()).into_response()
}

async fn live(State(shared): State<Arc<Shared>>) -> StatusCode {
    if shared.relay.is_alive() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let health = shared.relay.health();
    let reasons = health.reasons();
    let recovery = if health.recovers() { "running" } else { "suspended" };
    let code = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "ready": reasons.is_empty(), "recovery": recovery, "reasons": reasons }))).into_response()
}

async fn status(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let health = shared.relay.health();
    let relay: Vec<Value> = health.outboxes.iter().map(of_relay).collect();
    // `null` for an outbox that can't be read.
    let counts: Vec<Option<StatusJson<'_>>> = health
        .outboxes
        .iter()
        .map(|outbox| outbox.status.as_ref().map(|status| StatusJson::new(&outbox.outbox, status)))
        .collect();
    let reasons = health.reasons();
    Json(json!({ "relay": relay, "outboxes": counts, "routes": shared.routes, "reasons": reasons }))
}

fn of_relay(outbox: &OutboxHealth) -> Value {
    json!({
        "outbox": outbox.outbox.to_string(),
        "owns_lanes": outbox.progress.owns_lanes,
        "listening": outbox.listening,
        "in_flight": outbox.progress.in_flight,
        "unmarked": outbox.progress.unmarked,
        "held": outbox.progress.held,
        "deferred": outbox.progress.deferred,
        "paused": outbox.progress.paused.iter().map(|target| paused(outbox, target)).collect::<Vec<_>>(),
    })
}

fn paused(outbox: &OutboxHealth, target: &TargetKey) -> PausedJson {
    PausedJson { target: target.to_string(), why: outbox.pauses.get(target).cloned() }
}

/// A paused target as a relay shows it to those who ask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PausedJson {
    /// The target.
    pub target: String,
    /// What it was paused for.
    pub why: Option<String>,
}
