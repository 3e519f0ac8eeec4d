//! The demo's broker: in this process, can be taken away and brought back.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    AddressTemplate, Class, Failure, Message, RowId,
    port::{Target, Transport, TransportCapabilities},
};
use tokio::sync::watch;

/// What it has received, and whether it is there.
pub struct Broker {
    up: AtomicBool,
    copies: Mutex<HashMap<RowId, u32>>,
    received: watch::Sender<usize>,
}

impl Broker {
    pub fn new() -> Arc<Broker> {
        let (received, _) = watch::channel(0);
        Arc::new(Broker { up: AtomicBool::new(true), copies: Mutex::default(), received })
    }

    /// Takes it away, or brings it back.
    pub fn set_up(&self, up: bool) {
        self.up.store(up, SeqCst);
    }

    /// Waits until it has received this many events.
    pub async fn received(&self, count: usize) {
        let mut received = self.received.subscribe();
        // The sender lives in this value.
        let _ = received.wait_for(|received| *received >= count).await;
    }

    /// The events it has received, each with the number of copies.
    pub fn copies(&self) -> HashMap<RowId, u32> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The broker as a target.
    pub fn target(self: &Arc<Broker>) -> Target {
        let transport = Arc::clone(self) as Arc<dyn Transport>;
        Target { label: "the demo's broker".to_owned(), address: AddressTemplate::default(), transport }
    }

    fn reach(&self) -> Result<(), Failure> {
        if self.up.load(SeqCst) { Ok(()) } else { Err(Failure::new(Class::Transient, "the broker is down")) }
    }
}

#[async_trait]
impl Transport for Broker {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { max_batch: 100, concurrency: 4, max_body: None }
    }

    async fn publish(&self, batch: Vec<Message>, _deadline: Duration) -> Vec<Result<(), Failure>> {
        let answers: Vec<Result<(), Failure>> = batch.iter().map(|_| self.reach()).collect();
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        for (message, answer) in batch.iter().zip(&answers) {
            if answer.is_ok() {
                *copies.entry(message.row.id).or_insert(0) += 1;
            }
        }
        self.received.send_replace(copies.len());
        answers
    }

    async fn probe(&self, _deadline: Duration) -> Result<(), Failure> {
        self.reach()
    }

    async fn close(&self) {}
}
