//! The ports: what a store and a transport must do, as numbered clauses that the conformance
//! suites in `testkit` cite.
//!
//! All are object-safe, batch-shaped and without default methods. Implementations classify what
//! went wrong and never retry; retry, batching, breakers and telemetry stand once, in the relay.

mod hold;
mod inspect;
mod lanes;
mod operate;
mod produce;
mod schema;
mod transport;
mod wake;

pub use hold::{Held, Hold};
pub use inspect::{Access, Filter, Inspect, OutboxStatus, RelayInfo};
pub use lanes::{Lanes, Marked, Page, ReadRequest, Settled, Settlement};
pub use operate::{By, Operate, OperateReport, PruneRequest, Selection};
pub use produce::{EnqueueError, Enqueued, Produce, Receipt};
pub use schema::{Schema, SchemaState};
pub use transport::{Target, Transport, TransportCapabilities};
pub use wake::{Armed, Wake, Waker, Wakeups};

/// One outbox in one database, with everything that can be done to it.
pub trait Store: Lanes + Hold + Inspect + Operate + Schema + Produce {}

impl<T: Lanes + Hold + Inspect + Operate + Schema + Produce> Store for T {}
