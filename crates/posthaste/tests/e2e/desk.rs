//! An outbox of a test's own in PostgreSQL, and the relays that pump it.

use std::{collections::BTreeMap, sync::Arc};

use posthaste::{
    AddressTemplate, Event, OutboxName, Relay, RelayHandle, RouteKey, Row, RowId, Settings,
    port::{Filter, Inspect as _, OutboxStatus, Produce as _, Schema as _, Store, Target},
    route::{Route, Routes, TargetKey, TypePattern},
};

use posthaste_store_postgres::{PostgresStore, Settings as StoreSettings};
use posthaste_testkit::{service, wait::eventually};
use tokio_postgres::{Client, NoTls};

use crate::{bench::PATIENCE, witness};

/// What a relay delivers where.
#[derive(Default)]
pub struct Plan {
    routes: Vec<Route>,
    discards: Vec<TypePattern>,
    targets: BTreeMap<&'static str, Target>,
}

impl Plan {
    /// Everything goes to this one.
    pub fn all_to(target: Target) -> Plan {
        let address = target.address.clone();
        Plan::default().target("default", target).route(Route { address, ..route("default", "*", "default") })
    }

    pub fn target(mut self, key: &'static str, target: Target) -> Plan {
        self.targets.insert(key, target);
        self
    }

    pub fn route(mut self, route: Route) -> Plan {
        self.routes.push(route);
        self
    }

    /// A relay that does it.
    pub fn start(self, outbox: &OutboxName, store: Arc<dyn Store>, settings: Settings) -> RelayHandle {
        witness::install();
        let routes = Routes::new(self.routes, self.discards, "/posthaste/e2e".into(), settings.max_body).unwrap();
        let mut builder = Relay::builder("e2e");
        for (key, target) in self.targets {
            builder = builder.target(TargetKey::from(key), target);
        }
        builder.outbox(outbox.clone(), store, Arc::new(routes), settings).build().unwrap().start()
    }
}

/// A route without condition and payload, and without an address of its own.
pub fn route(key: &str, pattern: &str, target: &str) -> Route {
    Route {
        key: RouteKey::from(key),
        pattern: pattern.parse().unwrap(),
        when: None,
        payload: None,
        target: TargetKey::from(target),
        address: AddressTemplate::default(),
    }
}

pub struct Desk {
    pub outbox: OutboxName,
    pub store: Arc<PostgresStore>,
    pub postgres: String,
    pub client: Client,
}

impl Desk {
    /// On the shared server, or nothing where it is missing.
    pub async fn new() -> Option<Desk> {
        Some(Desk::on(&service::postgres()?, StoreSettings::default()).await)
    }

    /// On this server.
    pub async fn on(postgres: &str, settings: StoreSettings) -> Desk {
        let outbox = service::outbox_name();
        let store = Arc::new(PostgresStore::new(postgres, outbox.clone(), settings).unwrap());
        store.migrate().await.unwrap();
        Desk { outbox, store, postgres: postgres.to_owned(), client: connect(postgres).await }
    }

    pub fn start(&self, plan: Plan, settings: Settings) -> RelayHandle {
        plan.start(&self.outbox, Arc::clone(&self.store) as _, settings)
    }

    /// Enqueues events in one transaction.
    pub async fn enqueue(&self, events: &[Event]) -> Vec<RowId> {
        self.store.produce(events).await.unwrap().into_iter().map(|row| row.id).collect()
    }

    /// Runs statements in which `{t}` stands for the outbox's table.
    pub async fn sql(&self, statements: &str) {
        self.client.batch_execute(&statements.replace("{t}", &self.outbox.table())).await.unwrap();
    }

    /// The one number that a query gives; `{t}` stands for the outbox's table.
    pub async fn number(&self, query: &str) -> i64 {
        self.client.query_one(&query.replace("{t}", &self.outbox.table()), &[]).await.unwrap().get(0)
    }

    pub async fn status(&self) -> OutboxStatus {
        self.store.status().await.unwrap()
    }

    pub async fn row(&self, id: RowId) -> Row {
        self.store.get(id).await.unwrap().expect("the row is there")
    }

    /// The counted attempts of all rows together.
    pub async fn attempts(&self) -> u32 {
        let rows = self.store.list(&Filter::default(), 0, 100_000).await.unwrap();
        rows.iter().map(|row| row.attempts).sum()
    }

    /// Waits until the status is as wanted. A database that does not answer is asked again.
    pub async fn until(&self, what: &str, wanted: impl Fn(&OutboxStatus) -> bool) {
        eventually(PATIENCE, what, || async { self.store.status().await.is_ok_and(|status| wanted(&status)) }).await;
    }

    pub async fn until_published(&self, count: u64) {
        let all = |status: &OutboxStatus| status.published >= count && status.pending + status.failed == 0;
        self.until(&format!("{count} rows are published"), all).await;
    }

    /// Waits until a row is as wanted.
    pub async fn until_row(&self, id: RowId, what: &str, wanted: impl Fn(&Row) -> bool) -> Row {
        let look = || async { self.store.get(id).await.ok().flatten().filter(|row| wanted(row)) };
        eventually(PATIENCE, what, look).await
    }

    /// Removes what the test made.
    pub async fn clear(&self) {
        let drop = r#"DROP TABLE IF EXISTS "{t}", "{t}_log" CASCADE;
            DROP FUNCTION IF EXISTS "{t}_lane", "{t}_wake", "{t}_version" CASCADE"#;
        let _ = self.client.batch_execute(&drop.replace("{t}", &self.outbox.table())).await;
    }
}

pub async fn connect(postgres: &str) -> Client {
    let (client, driver) = tokio_postgres::connect(postgres, NoTls).await.unwrap();
    tokio::spawn(driver);
    client
}

/// Waits until a relay says of itself what is wanted.
pub async fn until_health(relay: &RelayHandle, what: &str, wanted: impl Fn(&posthaste::Health) -> bool) {
    eventually(PATIENCE, what, || async { wanted(&relay.health()) }).await;
}

/// Whether a reason of a relay that is not well says this.
pub fn says(health: &posthaste::Health, words: &str) -> bool {
    health.reasons().iter().any(|reason| reason.contains(words))
}
