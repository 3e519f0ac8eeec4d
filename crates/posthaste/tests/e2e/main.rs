//! The main job, end to end: PostgreSQL → RabbitMQ, with everything real.

mod bench;
mod delivery;
mod order;
mod store_faults;
mod transport_faults;
