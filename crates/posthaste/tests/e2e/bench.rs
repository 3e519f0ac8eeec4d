//! An outbox in PostgreSQL and a queue in RabbitMQ, both of a test's own.

use std::{ops::Deref, time::Duration};

use lapin::message::Delivery;
use posthaste::{Event, RelayHandle, Settings};
use posthaste_store_postgres::Settings as StoreSettings;
use posthaste_testkit::service;

use crate::{
    desk::{Desk, Plan},
    queue::Queue,
};

/// Longest wait for anything: a loaded machine takes its time.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Bench {
    desk: Desk,
    pub queue: Queue,
}

impl Deref for Bench {
    type Target = Desk;

    fn deref(&self) -> &Desk {
        &self.desk
    }
}

impl Bench {
    /// On the shared servers, or nothing where one is missing.
    pub async fn new() -> Option<Bench> {
        let (postgres, amqp) = (service::postgres()?, service::rabbitmq()?);
        Some(Bench::on(&postgres, &amqp).await)
    }

    /// On these servers.
    pub async fn on(postgres: &str, amqp: &str) -> Bench {
        Bench::with(postgres, amqp, StoreSettings::default()).await
    }

    pub async fn with(postgres: &str, amqp: &str, settings: StoreSettings) -> Bench {
        Bench { desk: Desk::on(postgres, settings).await, queue: Queue::on(amqp).await }
    }

    /// A relay from the outbox to the queue.
    pub fn relay(&self, settings: Settings) -> RelayHandle {
        self.start(Plan::all_to(self.queue.target()), settings)
    }

    /// Takes `count` messages out of the queue.
    pub async fn receive(&self, count: usize) -> Vec<Delivery> {
        self.queue.receive(count).await
    }

    /// How many messages are in the queue now.
    pub async fn queued(&self) -> u32 {
        self.queue.queued().await
    }

    /// Removes what the test made.
    pub async fn tear_down(self) {
        self.queue.delete().await;
        self.clear().await;
    }
}

/// An event with a number for its body.
pub fn event(number: usize) -> Event {
    Event::json("order.placed", &serde_json::json!({ "n": number })).unwrap()
}

/// Events with the numbers of a range.
pub fn events(numbers: std::ops::Range<usize>) -> Vec<Event> {
    numbers.map(event).collect()
}
