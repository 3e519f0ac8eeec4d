//! The pump: read, publish, mark. [`state`] decides, [`run`] does.

mod admit;
mod answer;
mod cause;
mod conclude;
mod cursors;
mod doze;
mod gates;
mod held;
mod outcomes;
mod report;
mod room;
mod run;
mod state;
mod targets;
mod verdict;

pub use cause::Cause;
pub use report::Report;
pub(crate) use run::{Pump, Wires};
pub use state::Progress;

#[cfg(test)]
mod tests;
