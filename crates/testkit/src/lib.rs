//! What the tests of Posthaste share: conformance suites, real servers, servers that may be
//! broken, network faults.
//!
//! Part of the test code only: no crate that ships depends on it.

pub mod proxy;
pub mod scripted;
pub mod server;
pub mod service;
pub mod suite;
pub mod wait;

pub use wait::eventually;

use posthaste_core::{
    Lane, Result, RowId, RowRef,
    port::{Marked, Store},
};

/// Marks rows of which a test knows the ids; one that is not there is marked in vain.
///
/// # Errors
/// Those of the store.
pub async fn mark_ids(store: &dyn Store, ids: &[RowId]) -> Result<Marked> {
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        let nowhere = RowRef { seq: i64::MAX, lane: Lane::of_id(*id), id: *id };
        rows.push(store.get(*id).await?.map_or(nowhere, |row| row.reference()));
    }
    store.mark(&rows).await
}
