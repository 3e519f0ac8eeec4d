//! The channels of a target: at most eight at once, each with one batch in flight.
//!
//! A channel goes back to its connection only after every confirmation of its batch; one that is
//! dropped before, for whatever reason, is closed and never used again.

use std::sync::{Arc, Mutex, PoisonError};

use lapin::Channel;
use posthaste_core::{Class, Failure};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::{
    classify,
    connection::{Connection, State},
    declare,
    target::Settings,
};

/// Batches in flight at once.
pub(crate) const CHANNELS: usize = 8;

/// Why there is no connection.
struct Unconnected {
    failure: Failure,
    /// The broker is there, and lets this user or virtual host not in.
    refused: bool,
}

impl From<Failure> for Unconnected {
    fn from(failure: Failure) -> Unconnected {
        Unconnected { failure, refused: false }
    }
}

/// Hands out channels, on a connection that it makes when there is none.
pub(crate) struct Channels {
    pub(crate) settings: Arc<Settings>,
    permits: Arc<Semaphore>,
    dialling: Semaphore,
    current: Mutex<Option<Arc<Connection>>>,
}

/// A channel for one batch.
pub(crate) struct Lease {
    pub(crate) channel: Channel,
    pub(crate) connection: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Lease {
    /// Nothing is in flight on the channel any more.
    pub(crate) fn give_back(self) {
        self.connection.give_back(self.channel);
    }
}

impl Channels {
    pub(crate) fn new(settings: Settings) -> Channels {
        Channels {
            settings: Arc::new(settings),
            permits: Arc::new(Semaphore::new(CHANNELS)),
            dialling: Semaphore::new(1),
            current: Mutex::new(None),
        }
    }

    /// A channel, by `deadline`. On failure nothing has been sent.
    pub(crate) async fn lease(&self, deadline: Instant) -> Result<Lease, Failure> {
        // Batches that wait out a blockage may hold every permit.
        if let Some(Err(failure)) = self.known() {
            return Err(failure);
        }
        let permit = timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(transient("all channels are busy")) };
        let connection = self.connection(deadline).await.map_err(|why| why.failure)?;
        let channel = connection.ask(deadline, connection.channel()).await?.map_err(|error| unopened(&error))?;
        Ok(Lease { channel, connection, _permit: permit })
    }

    /// Whether the broker answers and takes messages. That it lets nobody in by this name is more than an
    /// outage here, where no message is judged by it.
    pub(crate) async fn probe(&self, deadline: Instant) -> Result<(), Failure> {
        let connection = self.connection(deadline).await.map_err(|why| match why {
            Unconnected { failure, refused: true } => Failure { class: Class::Unknown, ..failure },
            other => other.failure,
        })?;
        connection.ask(deadline, connection.greet()).await?.map_err(|error| unopened(&error))
    }

    /// One sentence for each exchange that is not there.
    pub(crate) async fn missing_exchanges(&self, names: &[&str], deadline: Instant) -> Result<Vec<String>, Failure> {
        let mut missing = Vec::new();
        if self.settings.declare.is_some() {
            return Ok(missing);
        }
        for name in names.iter().filter(|name| !name.is_empty()) {
            let connection = self.connection(deadline).await.map_err(|why| why.failure)?;
            missing.extend(declare::look_for(&connection, name, deadline).await?);
        }
        Ok(missing)
    }

    pub(crate) async fn close(&self) {
        let connection = self.current().take();
        if let Some(connection) = connection {
            connection.close().await;
        }
    }

    /// A connection that is usable, made if there is none.
    async fn connection(&self, deadline: Instant) -> Result<Arc<Connection>, Unconnected> {
        if let Some(known) = self.known() {
            return known.map_err(Unconnected::from);
        }
        let dialled = timeout_at(deadline, self.dial(deadline)).await;
        dialled.unwrap_or_else(|_| Err(transient(&format!("connecting to {}: no answer", self.address())).into()))
    }

    async fn dial(&self, deadline: Instant) -> Result<Arc<Connection>, Unconnected> {
        let _turn = self.dialling.acquire().await;
        // Another publication may have connected while this one waited for its turn.
        if let Some(known) = self.known() {
            return known.map_err(Unconnected::from);
        }
        let within = deadline.saturating_duration_since(Instant::now());
        let dialled = Connection::open(&self.settings, within).await;
        let connection = dialled.map_err(|error| Unconnected {
            refused: classify::is_refusal(&error),
            failure: classify::no_connection(&self.address(), &error),
        })?;
        let connection = Arc::new(connection);
        *self.current() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// The connection there is, or why it takes nothing now.
    fn known(&self) -> Option<Result<Arc<Connection>, Failure>> {
        let current = self.current();
        let connection = current.as_ref()?;
        match connection.state() {
            State::Usable => Some(Ok(Arc::clone(connection))),
            State::Blocked(failure) => Some(Err(failure)),
            State::Gone => None,
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<Arc<Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> String {
        format!("{}:{}", self.settings.host, self.settings.port)
    }
}

fn transient(detail: &str) -> Failure {
    Failure::new(Class::Transient, detail)
}

fn unopened(error: &lapin::Error) -> Failure {
    transient(&format!("opening a channel: {}", classify::text(error)))
}
