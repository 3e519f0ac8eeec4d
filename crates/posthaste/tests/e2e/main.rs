//! The main job, end to end: PostgreSQL → RabbitMQ, with everything real.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod bench;
mod delivery;
mod desk;
mod misrouted;
mod network_faults;
mod order;
mod own;
mod queue;
mod retention;
mod routes;
mod sqlite;
mod store_faults;
mod store_sessions;
mod transport_faults;
mod txn;
mod witness;
