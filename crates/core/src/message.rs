//! A message: what a broker receives.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Address, MessageId, RouteKey, Row, row::Body};

/// What a route made of a row, ready to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The same on every attempt, path and replica.
    pub id: MessageId,
    /// The route that made it.
    pub route: RouteKey,
    /// The row it was made of.
    pub row: Arc<Row>,
    /// CloudEvents `source`: `/posthaste/{outbox}` by default.
    pub source: Arc<str>,
    /// Where it goes.
    pub address: Address,
    /// What the route's `payload` made of the event; `None` sends the row's own body.
    pub payload: Option<Bytes>,
}

impl Message {
    /// The exact bytes to send; `None` where the row's body is NULL.
    #[must_use]
    pub fn body(&self) -> Option<&Bytes> {
        match (&self.payload, &self.row.body) {
            (Some(payload), _) => Some(payload),
            (None, Body::Bytes(bytes)) => Some(bytes),
            (None, Body::Null | Body::TooLarge(_)) => None,
        }
    }

    /// The media type of [`Message::body`].
    #[must_use]
    pub fn content_type(&self) -> &str {
        if self.payload.is_some() { "application/json" } else { &self.row.content_type }
    }
}
