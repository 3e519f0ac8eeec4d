//! Posthaste: a state change and the events it produces commit together, in the application's own
//! database; they are published the moment they commit, and whatever fails is recovered from there.
//!
//! Enqueue with the `Outbox` of the store that the application uses, inside its transaction; run a
//! [`Relay`] in the same process or run `posthaste relay` beside it. The features of this crate
//! choose stores (`sqlite`, `postgres`), client libraries (`sqlx-sqlite`, `sqlx-postgres`, `diesel-postgres`,
//! `sea-orm-postgres`) and
//! transports (`local`, `amqp`, `http`).
//!
//! Delivery is at least once: a crash between a broker's confirmation and the mark repeats the
//! message under the same id. With an ordering key, order holds within the key.

pub use posthaste_core::{
    Address, AddressTemplate, Body, Class, Error, ErrorKind, Event, EventError, Failure, Lane, LaneSet, Message,
    MessageId, OutboxName, RouteKey, Row, RowId, Secret, Status, Timestamp,
    event::Limits,
    options, port,
    port::{EnqueueError, Enqueued, Receipt},
};
pub use posthaste_relay::{
    Bounds, BuildError, Health, Observer, OutboxHealth, Progress, Relay, RelayBuilder, RelayHandle, RetryPolicy,
    Settings, route,
};

/// The PostgreSQL store.
#[cfg(feature = "postgres")]
pub use posthaste_store_postgres as postgres;
/// The SQLite store.
#[cfg(feature = "sqlite")]
pub use posthaste_store_sqlite as sqlite;
/// RabbitMQ and other AMQP 0-9-1 brokers.
#[cfg(feature = "amqp")]
pub use posthaste_transport_amqp as amqp;
/// Webhooks.
#[cfg(feature = "http")]
pub use posthaste_transport_http as http;
/// Files, the standard output and SQLite delivery tables.
#[cfg(feature = "local")]
pub use posthaste_transport_local as local;
