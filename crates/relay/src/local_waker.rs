//! Wakes the pump from the process that committed: the immediate path.

use std::sync::{Mutex, PoisonError};

use posthaste_core::{LaneSet, port::Waker};
use tokio::sync::Notify;

/// Collects the lanes that were committed to until the pump takes them.
#[derive(Default)]
pub(crate) struct LocalWaker {
    lanes: Mutex<LaneSet>,
    notify: Notify,
}

impl LocalWaker {
    /// The lanes that were woken since the last call; waits for the first. Cancel-safe.
    pub(crate) async fn woken(&self) -> LaneSet {
        loop {
            let notified = self.notify.notified();
            let lanes = std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner));
            if !lanes.is_empty() {
                return lanes;
            }
            notified.await;
        }
    }
}

impl Waker for LocalWaker {
    fn wake(&self, lanes: LaneSet) {
        let mut pending = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        *pending = pending.union(lanes);
        drop(pending);
        self.notify.notify_one();
    }
}
