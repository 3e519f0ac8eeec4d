//! A transport that is right but for one twist.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    Failure, Message,
    port::{Target, Transport, TransportCapabilities},
};
use posthaste_testkit::suite::transport::{Destination, Facts, Received, TransportHarness};

type Answers = Vec<Result<(), Failure>>;

/// What is wrong with the transport; nothing by default.
#[derive(Clone, Copy)]
pub struct Twist {
    /// The `nth` message of the transport, from 0: what is sent of it; `None` is dropped and confirmed.
    pub message: fn(usize, Message) -> Option<Message>,
    pub answers: fn(Answers) -> Answers,
    pub probe: fn(Result<(), Failure>) -> Result<(), Failure>,
    pub probe_sends: bool,
    pub one_at_a_time: bool,
}

impl Default for Twist {
    fn default() -> Twist {
        Twist {
            message: |_, message| Some(message),
            answers: |answers| answers,
            probe: |result| result,
            probe_sends: false,
            one_at_a_time: false,
        }
    }
}

/// The harness of a right transport, twisted.
pub struct Twisted<H> {
    pub right: H,
    pub twist: Twist,
}

#[async_trait]
impl<H: TransportHarness> TransportHarness for Twisted<H> {
    fn name(&self) -> &'static str {
        "twisted"
    }

    fn facts(&self) -> Facts {
        self.right.facts()
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(TwistedDestination { right: self.right.destination().await, twist: self.twist })
    }

    fn unreachable(&self) -> Target {
        twisted(self.right.unreachable(), self.twist)
    }

    fn at(&self, address: SocketAddr) -> Option<Target> {
        self.right.at(address).map(|target| twisted(target, self.twist))
    }
}

struct TwistedDestination {
    right: Arc<dyn Destination>,
    twist: Twist,
}

#[async_trait]
impl Destination for TwistedDestination {
    fn open(&self) -> Target {
        twisted(self.right.open(), self.twist)
    }

    async fn received(&self, count: usize) -> Vec<Received> {
        self.right.received(count).await
    }

    fn refused(&self, message: Message) -> Message {
        self.right.refused(message)
    }

    async fn teardown(&self) {
        self.right.teardown().await;
    }

    async fn leftovers(&self) -> Vec<String> {
        self.right.leftovers().await
    }
}

fn twisted(target: Target, twist: Twist) -> Target {
    let transport = TwistedTransport {
        right: target.transport,
        twist,
        sent: AtomicUsize::new(0),
        busy: tokio::sync::Semaphore::new(1),
        last: std::sync::Mutex::default(),
    };
    Target { transport: Arc::new(transport), ..target }
}

struct TwistedTransport {
    right: Arc<dyn Transport>,
    twist: Twist,
    sent: AtomicUsize,
    busy: tokio::sync::Semaphore,
    last: std::sync::Mutex<Option<Message>>,
}

#[async_trait]
impl Transport for TwistedTransport {
    fn capabilities(&self) -> TransportCapabilities {
        self.right.capabilities()
    }

    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>> {
        let _permit = match (self.twist.one_at_a_time, self.busy.try_acquire()) {
            (true, Err(_)) => return Vec::new(),
            (_, permit) => permit,
        };
        *self.last.lock().unwrap() = batch.last().cloned();
        let twist = |message| (self.twist.message)(self.sent.fetch_add(1, Ordering::SeqCst), message);
        let sent: Vec<Option<Message>> = batch.into_iter().map(twist).collect();
        let kept: Vec<bool> = sent.iter().map(Option::is_some).collect();
        tokio::task::yield_now().await;
        let mut answers = self.right.publish(sent.into_iter().flatten().collect(), deadline).await.into_iter();
        let answered = kept.into_iter().map(|kept| if kept { answers.next().unwrap() } else { Ok(()) });
        (self.twist.answers)(answered.collect())
    }

    async fn probe(&self, deadline: Duration) -> Result<(), Failure> {
        let last = self.last.lock().unwrap().clone();
        if self.twist.probe_sends {
            let batch = last.into_iter().collect();
            self.right.publish(batch, deadline).await;
        }
        (self.twist.probe)(self.right.probe(deadline).await)
    }

    async fn close(&self) {
        self.right.close().await;
    }
}
