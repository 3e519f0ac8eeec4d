//! The vocabulary of Posthaste, the ports its parts meet at, and its pure decisions.
//!
//! Nothing here does I/O, spawns a task or reads a clock: stores and transports implement
//! [`port`], the relay drives them, and every rule that can be stated as a function of its
//! input stands here so that it can be tested as one.

pub mod address;
pub mod backoff;
pub mod breaker;
pub mod cloudevents;
pub mod error;
pub mod event;
pub mod failure;
pub mod file_url;
pub mod id;
pub mod lane;
pub mod message;
pub mod options;
pub mod outbox;
pub mod port;
pub mod redact;
pub mod row;
pub mod snapshot;
pub mod timestamp;

pub use address::{Address, AddressTemplate};
pub use backoff::Backoff;
pub use error::{Error, ErrorKind, Result};
pub use event::{Event, EventError};
pub use failure::{Class, Failure};
pub use id::{MessageId, RouteKey, RowId};
pub use lane::{LANES, Lane, LaneSet};
pub use message::Message;
pub use outbox::OutboxName;
pub use redact::Secret;
pub use row::{Body, Row, RowRef, Seq, Status};
pub use snapshot::{Proof, Snapshot};
pub use timestamp::Timestamp;
