//! Transports that say how far they are: one around another, and one that takes everything.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use posthaste_core::{
    Failure, Message,
    port::{Target, Transport, TransportCapabilities},
};
use tokio::sync::watch;

/// Counts what is confirmed, and notes when each tenth of it was.
pub(crate) struct Count {
    expected: u64,
    confirmed: AtomicU64,
    start: Instant,
    tenths: watch::Sender<Vec<Duration>>,
}

impl Count {
    pub(crate) fn new(expected: u32) -> Arc<Count> {
        Arc::new(Count {
            expected: u64::from(expected.max(1)),
            confirmed: AtomicU64::new(0),
            start: Instant::now(),
            tenths: watch::Sender::new(Vec::new()),
        })
    }

    pub(crate) fn confirm(&self, count: usize) {
        let count = count as u64;
        let before = self.confirmed.fetch_add(count, Relaxed);
        let tenth = |confirmed: u64| (confirmed * 10 / self.expected).min(10);
        for _ in tenth(before)..tenth(before + count) {
            self.tenths.send_modify(|tenths| tenths.push(self.start.elapsed()));
        }
    }

    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed.load(Relaxed)
    }

    /// Waits for all that is expected; answers the time since the start at each tenth.
    pub(crate) async fn all(&self) -> Vec<Duration> {
        let mut tenths = self.tenths.subscribe();
        let done = tenths.wait_for(|tenths| tenths.len() >= 10).await.map(|tenths| tenths.clone());
        // the sender lives as long as `self`
        done.unwrap_or_default()
    }
}

/// A transport whose confirmations are counted.
pub(crate) struct Watched {
    inner: Arc<dyn Transport>,
    count: Arc<Count>,
}

impl Watched {
    pub(crate) fn around(target: Target, count: Arc<Count>) -> Target {
        let transport = Arc::new(Watched { inner: target.transport, count });
        Target { transport, ..target }
    }
}

#[async_trait]
impl Transport for Watched {
    fn capabilities(&self) -> TransportCapabilities {
        self.inner.capabilities()
    }

    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>> {
        let answers = self.inner.publish(batch, deadline).await;
        self.count.confirm(answers.iter().filter(|answer| answer.is_ok()).count());
        answers
    }

    async fn probe(&self, deadline: Duration) -> Result<(), Failure> {
        self.inner.probe(deadline).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// Confirms everything at once.
pub(crate) struct Null;

impl Null {
    pub(crate) fn target() -> Target {
        Target { label: "null:".to_owned(), address: Default::default(), transport: Arc::new(Null) }
    }
}

#[async_trait]
impl Transport for Null {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { max_batch: 250, concurrency: 8, max_body: None }
    }

    async fn publish(&self, batch: Vec<Message>, _deadline: Duration) -> Vec<Result<(), Failure>> {
        vec![Ok(()); batch.len()]
    }

    async fn probe(&self, _deadline: Duration) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(&self) {}
}
