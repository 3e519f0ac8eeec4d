//! Which route goes where.

use posthaste_core::{RouteKey, Row};

use super::{Routes, TargetKey};

impl Routes {
    /// The keys of all routes.
    pub fn keys(&self) -> impl Iterator<Item = &RouteKey> {
        self.all().iter().map(|route| &route.key)
    }

    /// The routes that would take `row`, conditions left aside.
    #[must_use]
    pub fn keys_of(&self, row: &Row) -> Vec<RouteKey> {
        let wanted = |key: &RouteKey| row.outstanding.as_ref().is_none_or(|keys| keys.is_empty() || keys.contains(key));
        let routes = self.all().iter().filter(|route| route.pattern.matches(&row.event_type) && wanted(&route.key));
        routes.map(|route| route.key.clone()).collect()
    }

    /// The routes to a target.
    #[must_use]
    pub fn keys_for_target(&self, target: &TargetKey) -> Vec<RouteKey> {
        self.all().iter().filter(|route| route.target == *target).map(|route| route.key.clone()).collect()
    }

    /// The target of a route.
    #[must_use]
    pub fn target_of(&self, route: &RouteKey) -> Option<&TargetKey> {
        self.all().iter().find(|candidate| candidate.key == *route).map(|route| &route.target)
    }
}
