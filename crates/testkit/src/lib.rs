//! posthaste-testkit

pub mod service;
