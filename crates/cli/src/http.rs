//! What a relay serves under `--http`: metrics, health, its status as JSON, and a page.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use posthaste_core::{OutboxName, port::Store};
use posthaste_relay::RelayHandle;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Mutex, task::JoinHandle, time::interval};
use tokio_util::sync::CancellationToken;

use crate::{
    exit::{Fault, say},
    output::StatusJson,
};

/// How old the counts on the page may be: all viewers share one look at the database.
const FRESH_FOR: Duration = Duration::from_secs(2);
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

/// A page that is being served.
pub struct Served {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Page {
    /// Serves until told to end.
    pub fn serve(self, handle: Arc<RelayHandle>, sources: Vec<(OutboxName, Arc<dyn Store>)>) -> Served {
        let stop = CancellationToken::new();
        let Some((listener, metrics)) = self.0 else { return Served { stop, tasks: Vec::new() } };
        let upkeep = tokio::spawn(keep_up(metrics.clone(), stop.clone()));
        let state = Arc::new(Shared { handle, sources, metrics, counts: Mutex::new(None) });
        let router = Router::new()
            .route("/", get(page))
            .route("/metrics", get(metrics_text))
            .route("/health/live", get(live))
            .route("/health/ready", get(ready))
            .route("/status", get(status))
            .with_state(state);
        let ended = stop.clone().cancelled_owned();
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(ended).await {
                tracing::warn!("the page is served no longer: {error}");
            }
        });
        Served { stop, tasks: vec![upkeep, server] }
    }
}

impl Served {
    /// Ends it; connections that linger are cut.
    pub async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            let aborting = task.abort_handle();
            if tokio::time::timeout(Duration::from_secs(1), task).await.is_err() {
                aborting.abort();
            }
        }
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
    handle: Arc<RelayHandle>,
    sources: Vec<(OutboxName, Arc<dyn Store>)>,
    metrics: PrometheusHandle,
    counts: Mutex<Option<(Instant, Value)>>,
}

async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}

async fn metrics_text(State(shared): State<Arc<Shared>>) -> String {
    shared.metrics.render()
}

async fn live(State(shared): State<Arc<Shared>>) -> StatusCode {
    if shared.handle.is_alive() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let health = shared.handle.health();
    let reasons = health.reasons();
    let recovery = if health.recovers() { "running" } else { "suspended" };
    let code = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "ready": reasons.is_empty(), "recovery": recovery, "reasons": reasons }))).into_response()
}

async fn status(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let health = shared.handle.health();
    let outboxes: Vec<Value> = health
        .outboxes
        .iter()
        .map(|outbox| {
            json!({
                "outbox": outbox.outbox.to_string(),
                "owns_lanes": outbox.progress.owns_lanes,
                "listening": outbox.listening,
                "in_flight": outbox.progress.in_flight,
                "unmarked": outbox.progress.unmarked,
                "held": outbox.progress.held,
                "deferred": outbox.progress.deferred,
                "paused": outbox.progress.paused.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        })
        .collect();
    Json(json!({ "relay": outboxes, "outboxes": shared.counts().await, "reasons": health.reasons() }))
}

impl Shared {
    /// The counts of every outbox; `null` for one that can't be read.
    async fn counts(&self) -> Value {
        let mut counts = self.counts.lock().await;
        if let Some((at, known)) = counts.as_ref()
            && at.elapsed() < FRESH_FOR
        {
            return known.clone();
        }
        let mut all = Vec::new();
        for (name, store) in &self.sources {
            let status = store.status().await.ok();
            all.push(status.map_or(Value::Null, |status| json!(StatusJson::new(name, &status))));
        }
        let all = Value::from(all);
        *counts = Some((Instant::now(), all.clone()));
        all
    }
}
