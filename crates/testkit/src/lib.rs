//! What the tests of Posthaste share: real servers, servers that may be broken, network faults,
//! the conformance suites, and a scripted transport.
//!
//! Part of the test code only: no crate that ships depends on it.

pub mod proxy;
pub mod scripted;
pub mod server;
pub mod service;
pub mod suite;
pub mod wait;

pub use wait::eventually;
