//! The relay: reads rows that a store holds, publishes them through transports, records what came
//! of it. Knows the ports of `posthaste-core`, never a backend.

mod health;
mod local_waker;
mod pulse;
pub mod pump;
mod relay;
mod retention;
pub mod route;
mod settings;
mod telemetry;

pub use health::{Health, Observer, OutboxHealth};
pub use posthaste_core::port::Waker;
pub use pump::{Cause, Progress, Report};
pub use relay::{BuildError, Relay, RelayBuilder, RelayHandle};
pub use settings::{Bounds, RetryPolicy, Settings};
