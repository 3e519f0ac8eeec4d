//! The main job, end to end: PostgreSQL → RabbitMQ, with everything real.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod bench;
mod delivery;
mod order;
mod store_faults;
mod transport_faults;
