//! `sqlite:FILE`: a row a message in the table `delivered`, once for each message id.
//!
//! A batch is one transaction, which survives a power failure once it is confirmed.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    Class, Failure, Message,
    cloudevents::{attributes, user_headers},
    port::{Transport, TransportCapabilities},
};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};

use crate::{CAPABILITIES, Identity, directory, identity_at, thread::OwnThread};

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const CREATE: &str = "CREATE TABLE IF NOT EXISTS delivered (
  message_id   TEXT PRIMARY KEY,
  row_id       TEXT NOT NULL,
  source       TEXT NOT NULL,
  type         TEXT NOT NULL,
  time         TEXT NOT NULL,
  subject      TEXT,
  tenant       TEXT,
  traceparent  TEXT,
  tracestate   TEXT,
  headers      TEXT NOT NULL,
  content_type TEXT NOT NULL,
  body         BLOB,
  received_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
)";

const INSERT: &str = "INSERT INTO delivered (message_id, row_id, source, type, time, subject, tenant, traceparent, \
    tracestate, headers, content_type, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) \
    ON CONFLICT (message_id) DO NOTHING";

/// Inserts into a delivery table.
pub(crate) struct Table {
    thread: OwnThread<Inserter>,
}

struct Inserter {
    path: PathBuf,
    open: Option<Open>,
}

struct Open {
    connection: Connection,
    identity: Option<Identity>,
}

impl Table {
    pub fn new(path: PathBuf) -> Table {
        Table { thread: OwnThread::new(Inserter { path, open: None }) }
    }
}

#[async_trait]
impl Transport for Table {
    fn capabilities(&self) -> TransportCapabilities {
        CAPABILITIES
    }

    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>> {
        let count = batch.len();
        match self.thread.run(deadline, move |inserter| inserter.publish(&batch)).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(failure)) | Err(failure) => vec![Err(failure); count],
        }
    }

    async fn probe(&self, deadline: Duration) -> Result<(), Failure> {
        self.thread.run(deadline, |inserter| inserter.probe()).await?
    }

    async fn close(&self) {
        self.thread.hand_over(|inserter| inserter.open = None);
    }
}

impl Inserter {
    fn publish(&mut self, batch: &[Message]) -> Result<Vec<Result<(), Failure>>, Failure> {
        // A file that was replaced has taken its rows with it; the new one gets what comes now.
        let in_place = |open: &Open| open.identity.is_some() && open.identity == identity_at(&self.path);
        let mut open = match self.open.take().filter(in_place) {
            Some(open) => open,
            None => Open::at(&self.path).map_err(|error| self.failure("opening", &error))?,
        };
        let inserted = insert_all(&mut open.connection, batch);
        let answers = inserted.map_err(|error| self.failure("writing to", &error))?;
        self.open = Some(open);
        Ok(answers)
    }

    /// Makes nothing and changes nothing.
    fn probe(&self) -> Result<(), Failure> {
        if !self.path.exists() {
            let there = directory(&self.path).is_dir();
            let missing = || format!("there is no directory {}", directory(&self.path).display());
            return if there { Ok(()) } else { Err(Failure::new(Class::Transient, missing())) };
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let read = Connection::open_with_flags(&self.path, flags)
            .and_then(|connection| connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(())));
        read.map_err(|error| self.failure("opening", &error))
    }

    fn failure(&self, doing: &str, error: &rusqlite::Error) -> Failure {
        Failure::new(Class::Transient, format!("{doing} {}: {error}", self.path.display()))
    }
}

impl Open {
    fn at(path: &Path) -> rusqlite::Result<Open> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        if pages == 0 {
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        }
        connection.execute_batch(CREATE)?;
        Ok(Open { connection, identity: identity_at(path) })
    }
}

fn insert_all(connection: &mut Connection, batch: &[Message]) -> rusqlite::Result<Vec<Result<(), Failure>>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut answers = Vec::with_capacity(batch.len());
    for message in batch {
        answers.push(match insert(&transaction, message) {
            Ok(()) => Ok(()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::TooBig) => {
                Err(Failure::new(Class::Permanent, "the body is larger than SQLite can hold"))
            }
            Err(error) => return Err(error),
        });
    }
    transaction.commit()?;
    Ok(answers)
}

fn insert(transaction: &Transaction<'_>, message: &Message) -> rusqlite::Result<()> {
    let attributes = attributes(message);
    let attribute = |name: &str| attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
    let headers: serde_json::Map<String, serde_json::Value> =
        user_headers(message).map(|(name, value)| (name.to_owned(), value.into())).collect();
    let parameters = params![
        attribute("id"),
        attribute("rowid"),
        attribute("source"),
        attribute("type"),
        attribute("time"),
        attribute("subject"),
        attribute("tenant"),
        attribute("traceparent"),
        attribute("tracestate"),
        serde_json::Value::from(headers).to_string(),
        message.content_type(),
        message.body().map(|body| &body[..]),
    ];
    transaction.prepare_cached(INSERT)?.execute(parameters).map(|_| ())
}
