//! A database file of the test's own.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses a part of it, as a test does")]

use std::{path::PathBuf, time::Duration};

use posthaste_core::{
    Body, Event, Lane, OutboxName, Row, Seq,
    port::{By, Lanes, Page, ReadRequest, Schema},
};
use posthaste_store_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;

/// Generous: reached only when something is broken.
pub const DEADLINE: Duration = Duration::from_secs(30);

pub struct Case {
    pub directory: TempDir,
    pub name: OutboxName,
}

impl Case {
    /// A directory without a database.
    pub fn new() -> Case {
        Case { directory: tempfile::tempdir().unwrap(), name: "orders".parse().unwrap() }
    }

    /// With a migrated database in it.
    pub async fn migrated() -> (Case, SqliteStore) {
        let case = Case::new();
        let store = case.store();
        store.migrate().await.unwrap();
        (case, store)
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("app.db")
    }

    pub fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    pub fn store(&self) -> SqliteStore {
        SqliteStore::new(&self.url(), &self.name).unwrap()
    }

    /// The connection of an application.
    pub fn application(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

pub fn by() -> By {
    By { who: "ada".to_owned(), why: "test".to_owned() }
}

pub fn text(event_type: &str, body: &str) -> Event {
    Event::new(event_type, "text/plain", body.to_owned())
}

pub fn request(after: Seq) -> ReadRequest {
    ReadRequest {
        from: vec![(Lane::new(0).unwrap(), after)],
        per_lane: 1000,
        max_rows: 1000,
        max_bytes: 64 << 20,
        max_body: 8 << 20,
    }
}

pub async fn read(store: &SqliteStore, after: Seq) -> Page {
    store.read(request(after)).await.unwrap()
}

pub fn bodies(rows: &[Row]) -> Vec<String> {
    let text = |row: &Row| match &row.body {
        Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    rows.iter().map(text).collect()
}
