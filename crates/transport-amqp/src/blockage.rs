//! Whether the broker has blocked a connection, and why.

use futures_util::{Stream, StreamExt};
use lapin::Event;
use posthaste_core::{Class, Failure};
use tokio::{sync::watch, task::JoinHandle};

/// Follows `connection.blocked` and `connection.unblocked` until it is dropped.
pub(crate) struct Blockage {
    reason: watch::Receiver<Option<String>>,
    following: JoinHandle<()>,
}

impl Blockage {
    pub(crate) fn follow(events: impl Stream<Item = Event> + Send + 'static) -> Blockage {
        let (say, reason) = watch::channel(None);
        let following = tokio::spawn(events.for_each(move |event| {
            match event {
                Event::ConnectionBlocked(reason) => drop(say.send_replace(Some(reason))),
                Event::ConnectionUnblocked => drop(say.send_replace(None)),
                _ => {}
            }
            std::future::ready(())
        }));
        Blockage { reason, following }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// What a message that can't be sent for it is answered.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.reason.borrow().as_ref().map(|reason| failure(reason))
    }

    /// Waits until the connection is blocked.
    pub(crate) async fn begins(&self) -> Failure {
        let mut reason = self.reason.clone();
        if let Ok(reason) = reason.wait_for(Option::is_some).await {
            return failure(reason.as_deref().unwrap_or_default());
        }
        // The connection has ended: it will not be blocked any more.
        std::future::pending().await
    }
}

impl Drop for Blockage {
    fn drop(&mut self) {
        self.following.abort();
    }
}

fn failure(reason: &str) -> Failure {
    Failure::new(Class::Transient, format!("blocked by the broker: {reason}"))
}
