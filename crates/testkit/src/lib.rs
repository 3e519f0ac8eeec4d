//! What the tests of Posthaste share: real servers, servers that may be broken, network faults.
//!
//! Part of the test code only: no crate that ships depends on it.

pub mod proxy;
pub mod server;
pub mod service;
pub mod wait;

pub use wait::eventually;
