//! The PostgreSQL store: an outbox as a table beside the application's own.
//!
//! Everything that is written is one statement, conditional on what it changes, and the clock is
//! the database's. Sessions connect when they are first used and again when they break; nothing
//! here retries, and no call waits longer than [`Settings`] says.

mod batch;
mod connect;
#[cfg(feature = "diesel")]
mod diesel;
mod enqueue;
mod error;
mod hold;
mod inspect;
mod lanes;
mod operate;
mod produce;
mod rows;
mod schema;
#[cfg(feature = "sea-orm")]
mod sea_orm;
mod settle;
#[cfg(feature = "sqlx")]
mod sqlx;
mod tls;
mod transaction;
mod url;
mod wake;

use std::{sync::Arc, time::Duration};

use posthaste_core::{OutboxName, event::Limits, options::ConfigError};

pub use enqueue::Outbox;
pub use transaction::{Managed, TransactionError};

use connect::{Role, Server, Slot};
use schema::Names;

/// How a [`PostgresStore`] behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long published rows are kept; zero deletes them instead of marking them.
    pub retention: Duration,
    /// What an event must keep to when the store enqueues it itself.
    pub limits: Limits,
    /// Longest time to wait for a connection.
    pub connect_timeout: Duration,
    /// Longest time to wait for the answer to a statement.
    pub statement_timeout: Duration,
    /// How often the listening and the holding session prove that they live.
    pub keep_alive: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            retention: Duration::from_secs(86_400),
            limits: Limits::default(),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(5),
        }
    }
}

/// One outbox in one PostgreSQL database.
///
/// Each kind of work has a session of its own, so that reads, marks and looks overlap.
pub struct PostgresStore {
    server: Arc<Server>,
    names: Names,
    settings: Settings,
    reading: Slot,
    settling: Slot,
    looking: Slot,
    producing: Slot,
    holding: Slot,
    read_sql: String,
    mark_sql: String,
    settle_sql: String,
}

impl PostgresStore {
    /// The store of the outbox `name` at `url`. Connects to nothing; reads the file that
    /// `sslrootcert` names, if there is one.
    ///
    /// # Errors
    /// What is wrong with the URL, without its secrets.
    pub fn new(url: &str, name: OutboxName, settings: Settings) -> Result<PostgresStore, ConfigError> {
        let server = Arc::new(Server::new(url, &name, settings)?);
        let names = Names::new(name);
        Ok(PostgresStore {
            read_sql: lanes::read_sql(&names),
            mark_sql: lanes::mark_sql(&names, settings.retention),
            settle_sql: settle::settle_sql(&names),
            reading: Slot::new(Role::Read),
            settling: Slot::new(Role::Settle),
            looking: Slot::new(Role::Look),
            producing: Slot::new(Role::Look),
            holding: Slot::new(Role::Hold),
            server,
            names,
            settings,
        })
    }

    /// The outbox as the application writes to it, with the limits of this store.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.names.outbox.clone()).with_limits(self.settings.limits)
    }
}
