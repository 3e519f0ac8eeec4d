//! Proves that the suites have teeth: deliberately wrong stores and transports, each of which must
//! fail the case that is named, while the right one passes it.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod memory;
#[path = "../../../store-postgres/tests/harness/mod.rs"]
mod postgres;
#[path = "../../../store-sqlite/tests/harness/mod.rs"]
mod sqlite;
mod stores;
mod transports;
mod twisted_store;
mod twisted_transport;

use std::future::Future;

/// Runs a check on a runtime as the suites have it.
fn run<T>(check: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(check)
}
