//! Routes: which events become which messages, for which targets.
//!
//! [`Routes::render`] is the pure heart: it makes all messages of a row or none, so that a route
//! that fails never leaves its siblings sent and the row unsettled. Conditions and payloads are
//! always evaluated on the row as it is stored, at the time of publication.

mod cel;
mod expression;
mod lookup;
mod pattern;
mod render;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use posthaste_core::{AddressTemplate, RouteKey, Row};

pub use self::{
    cel::{BadExpression, condition, payload},
    pattern::{BadPattern, TypePattern},
    render::{Rendered, RepeatedRoute, Routes},
};

/// Decides whether a matching route raises a message. An error holds back the whole row.
pub type Condition = Arc<dyn Fn(&Row) -> Result<bool, String> + Send + Sync>;

/// Makes the body of a message, sent as `application/json`. An error holds back the whole row.
pub type Payload = Arc<dyn Fn(&Row) -> Result<Bytes, String> + Send + Sync>;

/// Names a target in the configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey(Arc<str>);

impl TargetKey {
    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for TargetKey {
    fn from(key: &str) -> TargetKey {
        TargetKey(key.into())
    }
}

impl fmt::Display for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Which events, under which condition, become which message, for which target.
#[derive(Clone)]
pub struct Route {
    /// Names it; part of the id of each message that it makes.
    pub key: RouteKey,
    /// The types that it takes.
    pub pattern: TypePattern,
    /// Absent: always raised.
    pub when: Option<Condition>,
    /// Absent: the row's own body.
    pub payload: Option<Payload>,
    /// Where its messages go.
    pub target: TargetKey,
    /// Where on the target.
    pub address: AddressTemplate,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("key", &self.key)
            .field("pattern", &self.pattern)
            .field("when", &self.when.is_some())
            .field("payload", &self.payload.is_some())
            .field("target", &self.target)
            .field("address", &self.address)
            .finish()
    }
}
