//! Filters as SQL conditions.

use posthaste_core::{Status, port::Filter};
use rusqlite::types::Value;

/// Conditions joined by AND, with the values of their parameters.
#[derive(Default)]
pub(crate) struct Conditions {
    sql: String,
    /// The values of `?1`, `?2` and so on.
    pub values: Vec<Value>,
}

impl Conditions {
    /// What `filter` asks for, apart from the status.
    pub fn matching(filter: &Filter) -> Conditions {
        let mut conditions = Conditions::default();
        if let Some(pattern) = &filter.event_type {
            conditions.add("type GLOB", glob(pattern));
        }
        if let Some(key) = &filter.key {
            conditions.add("ordering_key =", key.clone());
        }
        if let Some(tenant) = &filter.tenant {
            conditions.add("tenant =", tenant.clone());
        }
        conditions
    }

    /// Adds a comparison with a value.
    pub fn add(&mut self, left: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        self.sql.push_str(&format!(" AND {left} ?{}", self.values.len()));
    }

    /// The conditions, each with an AND before it.
    pub fn sql(&self) -> &str {
        &self.sql
    }
}

/// The condition of a status; its literal text is what lets SQLite use the index of dead letters.
pub(crate) fn has_status(status: Option<Status>) -> String {
    status.map_or_else(|| "status <> 'discarded'".to_owned(), |status| format!("status = '{status}'"))
}

// `?` and `[` have a meaning of their own in GLOB.
fn glob(pattern: &str) -> String {
    pattern.replace('[', "[[]").replace('?', "[?]")
}
