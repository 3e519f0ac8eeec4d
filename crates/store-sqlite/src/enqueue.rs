//! Enqueueing in the caller's open transaction.
//!
//! Never commits, never opens a connection. Everything that can be checked is checked before the
//! database sees the first event.

use std::{collections::BTreeMap, fmt, sync::Arc};

use posthaste_core::{
    Event, OutboxName, RowId,
    event::Limits,
    port::{EnqueueError, Enqueued, Receipt, Waker},
};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::{
    error::explain,
    rows::{LANE, StoredContent},
    settle::micros,
    tables::{NOW, Tables},
};

/// An outbox as an application writes to it. Holds no connection; cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    pub(crate) statements: Arc<Statements>,
    limits: Limits,
    waker: Option<Arc<dyn Waker>>,
}

pub(crate) struct Statements {
    pub doing: String,
    pub generated: String,
    pub supplied: String,
    pub existing: String,
}

/// The outbox inside a transaction that [`Outbox::transaction`] runs.
pub struct Enlisted<'o> {
    outbox: &'o Outbox,
    rows: Vec<Enqueued>,
}

impl Outbox {
    /// The outbox with this name, whose tables are in the database of the transactions it is given.
    #[must_use]
    pub fn new(name: &OutboxName) -> Outbox {
        Outbox { statements: Arc::new(Statements::new(&Tables::new(name))), limits: Limits::default(), waker: None }
    }

    /// With other limits than the default ones.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Outbox {
        Outbox { limits, ..self }
    }

    /// With a relay of this process to wake after a commit.
    #[must_use]
    pub fn with_waker(self, waker: Arc<dyn Waker>) -> Outbox {
        Outbox { waker: Some(waker), ..self }
    }

    /// Writes the rows of `events` in the open transaction.
    ///
    /// Begin the transaction with `BEGIN IMMEDIATE`: one that reads first and writes later is
    /// refused by SQLite at once, without waiting, if another writer came between.
    ///
    /// # Errors
    /// An event that breaks a rule, before anything is written; an id that is taken by another
    /// event; what SQLite says. The call has written nothing then, and the transaction stays usable
    /// unless SQLite has ended it.
    pub fn enqueue(&self, transaction: &mut Transaction<'_>, events: &[Event]) -> Result<Receipt, EnqueueError> {
        self.check(events)?;
        if events.len() < 2 {
            return insert(transaction, &self.statements, events).map(Receipt::new);
        }
        // Rolled back when dropped: a call that is refused half way leaves nothing behind.
        let refused = |error| EnqueueError::Store(explain(error, &self.statements.doing));
        let savepoint = transaction.savepoint().map_err(refused)?;
        let rows = insert(&savepoint, &self.statements, events)?;
        savepoint.commit().map_err(refused)?;
        Ok(Receipt::new(rows))
    }

    /// Runs `work` in a transaction of its own, commits, and wakes the relay of this process.
    ///
    /// # Errors
    /// What `work` returns, after a roll-back; what SQLite says of the begin or the commit.
    pub fn transaction<T, E: From<EnqueueError>>(
        &self,
        connection: &mut Connection,
        work: impl FnOnce(&mut Transaction<'_>, &mut Enlisted<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let refused = |error, doing: &str| E::from(EnqueueError::Store(explain(error, doing)));
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let mut transaction = begun.map_err(|error| refused(error, "beginning a transaction"))?;
        let mut enlisted = Enlisted { outbox: self, rows: Vec::new() };
        let done = work(&mut transaction, &mut enlisted)?;
        transaction.commit().map_err(|error| refused(error, "committing a transaction"))?;
        self.committed(Receipt::new(enlisted.rows));
        Ok(done)
    }

    /// Says that the transaction of this receipt has committed, so that its rows are published at
    /// once. Harmless if it has not: only rows that are there are published.
    pub fn committed(&self, receipt: Receipt) {
        if let Some(waker) = &self.waker
            && !receipt.rows().is_empty()
        {
            waker.wake(receipt.lanes());
        }
    }

    pub(crate) fn check(&self, events: &[Event]) -> Result<(), EnqueueError> {
        for (index, event) in events.iter().enumerate() {
            event.check(self.limits).map_err(|error| EnqueueError::Event { index, error })?;
        }
        Ok(())
    }
}

impl Enlisted<'_> {
    /// As [`Outbox::enqueue`], in the transaction that is being run.
    ///
    /// # Errors
    /// As there.
    pub fn enqueue(&mut self, transaction: &mut Transaction<'_>, events: &[Event]) -> Result<Vec<RowId>, EnqueueError> {
        let receipt = self.outbox.enqueue(transaction, events)?;
        self.rows.extend_from_slice(receipt.rows());
        Ok(receipt.ids().collect())
    }
}

impl Statements {
    fn new(tables: &Tables) -> Statements {
        let rows = &tables.rows;
        let insert = format!(
            "INSERT INTO {rows} (id, idempotent, type, ordering_key, tenant, priority, headers, content_type, due_at, \
             body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, {NOW} + ?9, ?10)"
        );
        Statements {
            doing: format!("enqueueing into {rows}"),
            supplied: format!("{insert} ON CONFLICT (id) WHERE idempotent = 1 DO NOTHING"),
            generated: insert,
            existing: format!("SELECT {} FROM {rows} WHERE idempotent = 1 AND id = ?1", StoredContent::COLUMNS),
        }
    }
}

/// Inserts checked events one by one, in their order.
pub(crate) fn insert(
    connection: &Connection,
    statements: &Statements,
    events: &[Event],
) -> Result<Vec<Enqueued>, EnqueueError> {
    let refused = |error| EnqueueError::Store(explain(error, &statements.doing));
    let mut rows = Vec::with_capacity(events.len());
    for (index, event) in events.iter().enumerate() {
        let id = event.id.unwrap_or_else(RowId::generate);
        let existing = insert_one(connection, statements, event, id).map_err(refused)? == 0;
        if existing && !is_there(connection, statements, event, id).map_err(refused)? {
            return Err(EnqueueError::Conflict { index, id });
        }
        rows.push(Enqueued { id, lane: LANE, existing });
    }
    Ok(rows)
}

fn insert_one(connection: &Connection, statements: &Statements, event: &Event, id: RowId) -> rusqlite::Result<usize> {
    let sql = if event.id.is_some() { &statements.supplied } else { &statements.generated };
    connection.prepare_cached(sql)?.execute(params![
        &*id.uuid().hyphenated().encode_lower(&mut [0; 36]),
        event.id.map(|_| 1),
        event.event_type,
        event.key,
        event.tenant,
        event.priority,
        headers_json(&event.headers),
        event.content_type,
        micros(event.delay),
        event.body.as_deref(),
    ])
}

/// Whether the row with this id says the same as `event`.
fn is_there(connection: &Connection, statements: &Statements, event: &Event, id: RowId) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(&statements.existing)?;
    let stored = statement.query_row([id.to_string()], StoredContent::read)?;
    Ok(stored.equals(event))
}

pub(crate) fn headers_json(headers: &BTreeMap<String, String>) -> String {
    // Serde writes a map of texts without fail.
    if headers.is_empty() { "{}".to_owned() } else { serde_json::json!(headers).to_string() }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("limits", &self.limits)
            .field("wakes", &self.waker.is_some())
            .finish_non_exhaustive()
    }
}
