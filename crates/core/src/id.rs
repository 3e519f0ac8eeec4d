//! Identifiers: of a row, of a route, and of the message that a route makes of a row.

use std::{fmt, str::FromStr, sync::Arc};

use uuid::Uuid;

/// Identifies an event for ever. Version 7 when Posthaste makes it; any UUID when the caller does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(Uuid);

impl RowId {
    /// A new id, greater than every id this process generated before it.
    #[must_use]
    pub fn generate() -> RowId {
        RowId(Uuid::now_v7())
    }

    /// The id as a UUID.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }

    /// The id of the message that `route` makes of this row: the same on every attempt, path and replica.
    #[must_use]
    pub fn message_id(self, route: &RouteKey) -> MessageId {
        MessageId(Uuid::new_v5(&self.0, route.as_str().as_bytes()))
    }
}

impl From<Uuid> for RowId {
    fn from(id: Uuid) -> RowId {
        RowId(id)
    }
}

impl FromStr for RowId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<RowId, uuid::Error> {
        Uuid::parse_str(text).map(RowId)
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a message: name-based on (row id, route key).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(Uuid);

impl MessageId {
    /// The id as a UUID.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a route in the configuration, and in a row's `outstanding`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey(Arc<str>);

impl RouteKey {
    /// The key of the single route that `relay --to` makes.
    #[must_use]
    pub fn single() -> RouteKey {
        RouteKey::from("default")
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for RouteKey {
    fn from(key: &str) -> RouteKey {
        RouteKey(key.into())
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_005_ids_of_one_process_increase_strictly() {
        let ids: Vec<RowId> = (0..10_000).map(|_| RowId::generate()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn rows_r18_message_ids_depend_on_row_and_route_alone() {
        let row: RowId = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
        let a = row.message_id(&RouteKey::from("a"));
        assert_eq!(a, row.message_id(&RouteKey::from("a")));
        assert_ne!(a, row.message_id(&RouteKey::from("b")));
        assert_ne!(a, RowId::generate().message_id(&RouteKey::from("a")));
    }
}
