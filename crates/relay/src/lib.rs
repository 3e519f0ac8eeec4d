//! posthaste-relay

pub mod route;
