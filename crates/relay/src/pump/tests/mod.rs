//! The pump's state machine against a model of a database and of brokers.

mod model;
mod random;
mod slow;
mod stories;
