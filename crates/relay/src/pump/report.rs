//! What a pump tells the world: the one list of its events, for logs and metrics.

use posthaste_core::{Class, RouteKey, RowId};

use super::cause::Cause;
use crate::route::TargetKey;

/// Something that happened in a pump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// A route confirmed rows.
    Published {
        /// The route.
        route: RouteKey,
        /// What made the rows be read.
        cause: Cause,
        /// How many.
        count: u64,
    },
    /// A route did not confirm a row.
    Failed {
        /// The row.
        id: RowId,
        /// The route.
        route: RouteKey,
        /// What it means.
        class: Class,
        /// Why.
        detail: String,
        /// Whether the row became `invalid` by it.
        dead: bool,
    },
    /// The user's `when` or `payload` failed on a row, or the row can't be delivered as it stands.
    Unrenderable {
        /// The row.
        id: RowId,
        /// Why.
        detail: String,
    },
    /// A row was left alone.
    Deferred {
        /// The row.
        id: RowId,
        /// Its type.
        event_type: String,
        /// Why.
        detail: String,
    },
    /// A target was paused.
    Paused {
        /// The target.
        target: TargetKey,
        /// The failure that did it.
        detail: String,
    },
    /// A paused target takes messages again.
    Resumed {
        /// The target.
        target: TargetKey,
    },
    /// The database did not answer.
    StoreFailed {
        /// What was tried, and why it failed.
        detail: String,
    },
}
