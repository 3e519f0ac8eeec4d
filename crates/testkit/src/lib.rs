//! What the tests of Posthaste share.

pub mod scripted;
pub mod service;
pub mod suite;
