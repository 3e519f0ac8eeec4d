//! Retention: published rows older than `outbox.retention` are deleted in small batches.

use std::{sync::Arc, time::Duration};

use posthaste_core::{
    OutboxName, Status,
    port::{Operate, PruneRequest},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Rows deleted in one transaction.
const BATCH: u32 = 1_000;
/// Between two transactions, so that deleting never crowds out the application.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks.
const EVERY: Duration = Duration::from_secs(60);

/// Prunes until `stop`. Ends within one short transaction after it.
pub(crate) async fn run(store: Arc<dyn Operate>, outbox: OutboxName, retention: Duration, stop: CancellationToken) {
    let request = PruneRequest { status: Status::Published, older_than: retention };
    loop {
        let wait = match store.prune(&request, BATCH).await {
            Ok(count) if count == u64::from(BATCH) => PAUSE,
            Ok(_) => EVERY.min(retention.max(Duration::from_secs(1))),
            Err(error) => {
                tracing::warn!(%outbox, "old rows could not be deleted: {error}");
                EVERY
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = stop.cancelled() => return,
        }
    }
}
