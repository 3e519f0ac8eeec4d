//! One conformance suite a port, run over every backend.
//!
//! A backend supplies only a harness: where its fresh, isolated outboxes or destinations come from.
//! Every case states one thing, is named after the clause it proves, and gets a place of its own
//! that is torn down whatever happens, which the suite checks.

mod case;
pub mod store;
pub mod transport;

pub use case::{Case, Gap, Need};
