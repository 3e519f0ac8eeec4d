//! From a row to its messages: all of them, or the reason why there are none.

use std::{
    any::Any,
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use posthaste_core::{Body, Message, RouteKey, Row};

use super::{Route, TargetKey, TypePattern, cel::too_deep};

/// The routes of one outbox.
#[derive(Clone, Debug)]
pub struct Routes {
    routes: Vec<Route>,
    discards: Vec<TypePattern>,
    source: Arc<str>,
    max_body: u64,
}

/// Two routes bear one key: their messages would bear one id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("two routes are named {0}; the key is part of the id of a message, name one of them differently")]
pub struct RepeatedRoute(pub RouteKey);

/// What the routes make of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rendered {
    /// Not this process's to judge: left as it is.
    Deferred {
        /// What is missing.
        reason: String,
    },
    /// The row can't become a message as it stands, whatever is configured.
    Invalid {
        /// Why.
        reason: String,
    },
    /// A `when` or `payload` failed: nothing of the row may be sent.
    RenderFailed {
        /// Which one, and why.
        reason: String,
    },
    /// The row is done once each message is confirmed and `unknown` is empty; with neither, it is
    /// done now.
    Messages {
        /// One a route, in the order of the routes. A route whose `when` is false has none.
        messages: Vec<(TargetKey, Message)>,
        /// Routes that the row still waits for and that this process can't serve: they stay
        /// outstanding.
        unknown: Vec<RouteKey>,
    },
}

impl Routes {
    /// Routes, and the types to drop where no route matches. `source` is the CloudEvents source
    /// of every message; `max_body` is the limit in bytes that rows were read with.
    ///
    /// # Errors
    /// Two routes have the same key.
    pub fn new(
        routes: Vec<Route>,
        discards: Vec<TypePattern>,
        source: Arc<str>,
        max_body: u64,
    ) -> Result<Routes, RepeatedRoute> {
        let mut seen = HashSet::new();
        match routes.iter().find(|route| !seen.insert(&route.key)) {
            Some(repeated) => Err(RepeatedRoute(repeated.key.clone())),
            None => Ok(Routes { routes, discards, source, max_body }),
        }
    }

    /// The routes in their order.
    #[must_use]
    pub fn all(&self) -> &[Route] {
        &self.routes
    }

    /// Renders every message of `row` before any can be sent. A `when` or `payload` that panics
    /// counts as failed.
    #[must_use]
    pub fn render(&self, row: &Arc<Row>) -> Rendered {
        if let Some(defect) = &row.defect {
            return Rendered::Invalid { reason: defect.clone() };
        }
        let (selected, unknown) = self.select(row);
        if selected.is_empty() {
            return self.without_route(row, unknown);
        }
        if let Body::TooLarge(size) = row.body {
            let limit = self.max_body;
            return Rendered::Invalid {
                reason: format!("body has {size} bytes, {limit} are allowed (outbox.max_body)"),
            };
        }
        let rendered: Result<Vec<_>, String> =
            selected.into_iter().filter_map(|route| self.message(route, row).transpose()).collect();
        match rendered {
            Ok(messages) => Rendered::Messages { messages, unknown },
            // No configuration and no wait can change that.
            Err(reason) if too_deep(row).is_some_and(|why| reason.ends_with(&why)) => Rendered::Invalid { reason },
            Err(reason) => Rendered::RenderFailed { reason },
        }
    }

    /// The routes that the row waits for, and the keys of those that are not here to serve it: a
    /// route that another configuration knows, or one that does not match the type any more.
    fn select(&self, row: &Row) -> (Vec<&Route>, Vec<RouteKey>) {
        let matching = self.routes.iter().filter(|route| route.pattern.matches(&row.event_type));
        // No relay writes an empty list. Sending twice under the same ids is better than dropping.
        let Some(outstanding) = row.outstanding.as_ref().filter(|keys| !keys.is_empty()) else {
            return (matching.collect(), Vec::new());
        };
        let selected: Vec<&Route> = matching.filter(|route| outstanding.contains(&route.key)).collect();
        let is_here = |key: &RouteKey| selected.iter().any(|route| route.key == *key);
        let unknown = outstanding.iter().filter(|key| !is_here(key)).cloned().collect();
        (selected, unknown)
    }

    fn without_route(&self, row: &Row, unknown: Vec<RouteKey>) -> Rendered {
        let event_type = &row.event_type;
        if !unknown.is_empty() {
            let names: Vec<&str> = unknown.iter().map(RouteKey::as_str).collect();
            let names = names.join(", ");
            let reason = format!("waits for routes that this relay does not have for type {event_type:?}: {names}");
            return Rendered::Deferred { reason };
        }
        if self.discards.iter().any(|pattern| pattern.matches(event_type)) {
            return Rendered::Messages { messages: Vec::new(), unknown };
        }
        Rendered::Deferred { reason: format!("no route of this relay matches type {event_type:?}") }
    }

    /// The message that `route` makes of `row`; `None` if its condition is false.
    fn message(&self, route: &Route, row: &Arc<Row>) -> Result<Option<(TargetKey, Message)>, String> {
        let key = &route.key;
        if let Some(when) = &route.when
            && !guarded(|| when(row)).map_err(|cause| format!("route {key}: when: {cause}"))?
        {
            return Ok(None);
        }
        let payload = match &route.payload {
            None => None,
            Some(payload) => Some(guarded(|| payload(row)).map_err(|cause| format!("route {key}: payload: {cause}"))?),
        };
        let message = Message {
            id: row.id.message_id(key),
            route: key.clone(),
            row: Arc::clone(row),
            source: Arc::clone(&self.source),
            address: route.address.fill(row),
            payload,
        };
        Ok(Some((route.target.clone(), message)))
    }
}

/// Calls the user's code; a panic is its error.
fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // Nothing that the closure could leave half changed is used afterwards.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(format!("panicked: {}", panic_text(&*panic))))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
#[path = "render_tests.rs"]
pub(super) mod tests;
