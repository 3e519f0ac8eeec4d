//! The pump's state machine against a model of a database and of brokers.

mod model;
mod operators;
mod panics;
mod random;
mod slow;
mod stories;
