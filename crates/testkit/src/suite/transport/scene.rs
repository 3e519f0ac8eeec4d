//! The scene of a case: a fresh destination, and messages to send there.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use posthaste_core::{
    Body, Event, Failure, Message, RouteKey, Row, RowId, Status, Timestamp,
    port::{Target, Transport},
};

use super::{Destination, Received, TransportHarness};

/// Time enough for any publication that a case expects to succeed.
pub(super) const AMPLE: Duration = Duration::from_secs(30);

/// What a case plays with.
pub struct Scene {
    /// The target under test.
    pub target: Target,
    /// Where its messages arrive.
    pub destination: Arc<dyn Destination>,
    pub(super) harness: Arc<dyn TransportHarness>,
}

impl Scene {
    pub(super) async fn set(harness: Arc<dyn TransportHarness>) -> Scene {
        let destination = harness.destination().await;
        Scene { target: destination.open(), destination, harness }
    }

    /// Closes the target, tears down the destination, and checks that nothing is left.
    pub(super) async fn strike(self) {
        self.target.transport.close().await;
        self.destination.teardown().await;
        assert_eq!(self.destination.leftovers().await, Vec::<String>::new(), "left behind");
    }

    pub(super) fn transport(&self) -> &dyn Transport {
        &*self.target.transport
    }

    /// The message that the single route makes of the event.
    pub(super) fn message(&self, event: Event) -> Message {
        message(&self.target, event)
    }

    pub(super) async fn publish(&self, batch: Vec<Message>) -> Vec<Result<(), Failure>> {
        self.transport().publish(batch, AMPLE).await
    }

    /// Publishes in one batch; every message must be confirmed.
    pub(super) async fn deliver(&self, batch: Vec<Message>) {
        let count = batch.len();
        assert_eq!(self.publish(batch).await, vec![Ok(()); count]);
    }

    /// Everything that has arrived once `count` messages have, and no more may have.
    pub(super) async fn arrived(&self, count: usize) -> Vec<Received> {
        let received = self.destination.received(count).await;
        assert_eq!(received.len(), count, "each message arrives once");
        received
    }

    /// Publishes one event and takes it at the other end.
    pub(super) async fn carry(&self, event: Event) -> Received {
        self.deliver(vec![self.message(event)]).await;
        self.arrived(1).await.remove(0)
    }
}

/// An event with a small JSON body.
pub(super) fn event() -> Event {
    Event::new("order.placed", "application/json", r#"{"n":1}"#)
}

/// An event with exactly these bytes.
pub(super) fn blob(body: impl Into<Bytes>) -> Event {
    Event::new("blob", "application/octet-stream", body)
}

/// The message that a route to `target` makes of the event.
pub(super) fn message(target: &Target, event: Event) -> Message {
    let route = RouteKey::single();
    let row = Arc::new(row(event));
    Message {
        id: row.id.message_id(&route),
        route,
        source: "/posthaste/suite".into(),
        address: target.address.fill(&row),
        payload: None,
        row,
    }
}

fn row(event: Event) -> Row {
    let id = event.id.unwrap_or_else(RowId::generate);
    let taken_at = Timestamp::from_micros(1_767_323_045_678_901);
    Row {
        id,
        seq: 1,
        lane: event.lane(id),
        event_type: event.event_type,
        key: event.key,
        tenant: event.tenant,
        priority: event.priority,
        headers: event.headers,
        content_type: event.content_type,
        body: event.body.map_or(Body::Null, Body::Bytes),
        due_at: taken_at,
        status: Status::Pending,
        attempts: 0,
        last_error: None,
        outstanding: None,
        created_at: taken_at,
        published_at: None,
        defect: None,
    }
}
