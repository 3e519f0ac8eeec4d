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
    target::Settings,
};

/// Batches in flight at once.
pub(crate) const CHANNELS: usize = 8;

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
        let connection = self.connection(deadline).await?;
        let channel = connection.ask(deadline, connection.channel()).await?.map_err(|error| unopened(&error))?;
        Ok(Lease { channel, connection, _permit: permit })
    }

    /// Whether the broker answers and takes messages.
    pub(crate) async fn probe(&self, deadline: Instant) -> Result<(), Failure> {
        let connection = self.connection(deadline).await?;
        connection.ask(deadline, connection.greet()).await?.map_err(|error| unopened(&error))
    }

    pub(crate) async fn close(&self) {
        let connection = self.current().take();
        if let Some(connection) = connection {
            connection.close().await;
        }
    }

    /// A connection that is usable, made if there is none.
    async fn connection(&self, deadline: Instant) -> Result<Arc<Connection>, Failure> {
        if let Some(known) = self.known() {
            return known;
        }
        let dialled = timeout_at(deadline, self.dial(deadline)).await;
        dialled.unwrap_or_else(|_| Err(transient(&format!("connecting to {}: no answer", self.address()))))
    }

    async fn dial(&self, deadline: Instant) -> Result<Arc<Connection>, Failure> {
        let _turn = self.dialling.acquire().await;
        // Another publication may have connected while this one waited for its turn.
        if let Some(known) = self.known() {
            return known;
        }
        let within = deadline.saturating_duration_since(Instant::now());
        let dialled = Connection::open(&self.settings, within).await;
        let connection = dialled.map_err(|error| classify::no_connection(&self.address(), &error))?;
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
