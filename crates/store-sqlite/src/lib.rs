//! The outbox in a SQLite file.
//!
//! `seq` is the rowid: SQLite has one writer at a time, so the order of `seq` is the order of the
//! commits. A commit with an event writes no index; `{name}_outbox_meta` knows from where on rows
//! are still to be delivered. All rows are in lane 0, and one process pumps them, which a lock on
//! `FILE-relay` sees to.

mod connect;
mod enqueue;
#[cfg(feature = "sqlx")]
mod enqueue_sqlx;
mod error;
mod filter;
mod hold;
mod inspect;
mod lanes;
mod operate;
mod places;
mod produce;
mod prune;
mod rows;
mod schema;
mod settle;
mod tables;
mod wake;
mod worker;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

pub use enqueue::{Enlisted, Outbox};
use posthaste_core::{OutboxName, event::Limits, options::ConfigError, port::Waker};

use crate::{
    connect::{Database, Role},
    places::Places,
    tables::Tables,
    wake::Bell,
    worker::Worker,
};

/// One outbox in a SQLite file, or in memory.
///
/// Its connections belong to threads of its own, which end when it is dropped. Other processes may
/// use the file at the same time.
pub struct SqliteStore {
    shared: Arc<Shared>,
    limits: Limits,
    writer: Arc<Worker>,
    reader: Arc<Worker>,
    inspector: Arc<Worker>,
    bell: Arc<Bell>,
}

/// What the threads need to know.
#[derive(Clone)]
struct Shared {
    database: Database,
    outbox: OutboxName,
    tables: Tables,
    deletes_published: bool,
    places: Arc<Places>,
    held: Arc<AtomicBool>,
}

impl SqliteStore {
    /// The outbox `outbox` in the database of `url`: `sqlite:FILE`, or `sqlite::memory:` for one
    /// that lives in this store alone. Does no I/O.
    ///
    /// # Errors
    /// The URL names no file.
    pub fn new(url: &str, outbox: &OutboxName) -> Result<SqliteStore, ConfigError> {
        let (database, tables) = (Database::parse(url)?, Tables::new(outbox));
        let writer = Arc::new(Worker::new(database.clone(), Role::Writer));
        let reader = |database: &Database| match database {
            Database::Memory => writer.clone(),
            Database::File(_) => Arc::new(Worker::new(database.clone(), Role::Reader)),
        };
        Ok(SqliteStore {
            limits: Limits::default(),
            reader: reader(&database),
            inspector: reader(&database),
            bell: Arc::new(Bell::new(database.clone(), tables.clone())),
            writer,
            shared: Arc::new(Shared {
                database,
                outbox: outbox.clone(),
                tables,
                deletes_published: false,
                places: Arc::default(),
                held: Arc::default(),
            }),
        })
    }

    /// Keeps published rows this long; zero deletes them where it would mark them.
    #[must_use]
    pub fn with_retention(self, retention: Duration) -> SqliteStore {
        let shared = Shared { deletes_published: retention.is_zero(), ..(*self.shared).clone() };
        SqliteStore { shared: Arc::new(shared), ..self }
    }

    /// With other limits than the default ones for what it enqueues.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> SqliteStore {
        SqliteStore { limits, ..self }
    }

    /// The outbox as an application enqueues into it, on connections of its own to the same file.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox::new(&self.shared.outbox).with_limits(self.limits)
    }

    /// Wakes a relay that waits for this store's wake-ups.
    #[must_use]
    pub fn waker(&self) -> Arc<dyn Waker> {
        self.bell.clone()
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("database", &self.shared.database)
            .field("table", &self.shared.tables.rows)
            .finish_non_exhaustive()
    }
}
