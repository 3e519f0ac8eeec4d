//! Enqueueing in the caller's own transaction: one statement for all events of a call.
//!
//! Nothing here commits, connects or swallows an error. Ids are made before the statement runs,
//! and its rows take their places in the order of the events.

use std::sync::Arc;

use posthaste_core::{
    Event, OutboxName,
    event::Limits,
    port::{EnqueueError, Receipt, Waker},
};
use tokio_postgres::{Transaction, types::Type};

use crate::{
    batch::{Batch, Columns, Present},
    connect::Typed,
    error::explain,
    schema::Names,
};

/// An outbox as the application writes to it.
#[derive(Clone)]
pub struct Outbox {
    pub(crate) names: Names,
    pub(crate) limits: Limits,
    waker: Option<Arc<dyn Waker>>,
}

impl Outbox {
    /// The outbox called `name`, whose tables `migrate` has made.
    #[must_use]
    pub fn new(name: OutboxName) -> Outbox {
        Outbox { names: Names::new(name), limits: Limits::default(), waker: None }
    }

    /// With limits other than the default ones.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Outbox {
        Outbox { limits, ..self }
    }

    /// With the relay of this process, which [`Outbox::committed`] wakes.
    #[must_use]
    pub fn with_waker(self, waker: Arc<dyn Waker>) -> Outbox {
        Outbox { waker: Some(waker), ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &OutboxName {
        &self.names.outbox
    }

    /// Writes all of `events` into the caller's transaction, or none. It takes one statement, and
    /// a second one only where an id that the caller supplied is present already.
    ///
    /// # Errors
    /// After `Event` and `Conflict` the transaction is usable and holds nothing of this call. After
    /// `Store` PostgreSQL has aborted the transaction.
    ///
    /// # Cancellation
    /// All or none may have been written; the transaction decides, as ever.
    pub async fn enqueue(&self, tx: &mut Transaction<'_>, events: &[Event]) -> Result<Receipt, EnqueueError> {
        let mut batch = Batch::new(events, self.limits)?;
        let doing = format!("writing to {}", self.names.table());
        while let Some(columns) = batch.next_round(&doing)? {
            let written = insert(tx, &self.names.sql(&batch.insert(&columns)), &columns).await;
            batch.wrote(&written.map_err(|error| explain(&doing, error))?);
            let Some(ids) = batch.missing() else { break };
            let present = present(tx, &self.names.sql(Batch::PRESENT), &ids).await;
            let Err(conflict) = batch.meet(&present.map_err(|error| explain(&doing, error))?) else { continue };
            let undo = self.names.sql(Batch::UNDO);
            let undone = tx.execute_typed(&undo, &[(&batch.written(), Type::TEXT_ARRAY)]).await;
            undone.map_err(|error| explain(&doing, error))?;
            return Err(conflict);
        }
        Ok(batch.receipt())
    }

    /// Says that the transaction of `receipt` has committed: its rows are published at once where
    /// this process relays. Nothing is believed of it: the receipt of a transaction that was rolled
    /// back wakes the relay for nothing.
    pub fn committed(&self, receipt: Receipt) {
        let lanes = receipt.lanes();
        if let Some(waker) = self.waker.as_ref().filter(|_| !lanes.is_empty()) {
            waker.wake(lanes);
        }
    }
}

async fn insert(tx: &Transaction<'_>, sql: &str, columns: &Columns<'_>) -> Result<Vec<String>, tokio_postgres::Error> {
    // Unnamed and in one round trip: as cheap as it gets, and safe behind any pooler.
    let parameters = if columns.is_single() { scalars(columns) } else { arrays(columns) };
    tx.query_typed(sql, &parameters).await?.iter().map(|row| row.try_get(0)).collect()
}

fn scalars<'a>(columns: &'a Columns<'_>) -> [Typed<'a>; 10] {
    [
        (&columns.ids[0], Type::TEXT),
        (&columns.lanes[0], Type::INT2),
        (&columns.types[0], Type::TEXT),
        (&columns.keys[0], Type::TEXT),
        (&columns.tenants[0], Type::TEXT),
        (&columns.priorities[0], Type::INT4),
        (&columns.headers[0], Type::TEXT),
        (&columns.content_types[0], Type::TEXT),
        (&columns.bodies[0], Type::BYTEA),
        (&columns.delays[0], Type::INT8),
    ]
}

fn arrays<'a>(columns: &'a Columns<'_>) -> [Typed<'a>; 10] {
    [
        (&columns.ids, Type::TEXT_ARRAY),
        (&columns.lanes, Type::INT2_ARRAY),
        (&columns.types, Type::TEXT_ARRAY),
        (&columns.keys, Type::TEXT_ARRAY),
        (&columns.tenants, Type::TEXT_ARRAY),
        (&columns.priorities, Type::INT4_ARRAY),
        (&columns.headers, Type::TEXT_ARRAY),
        (&columns.content_types, Type::TEXT_ARRAY),
        (&columns.bodies, Type::BYTEA_ARRAY),
        (&columns.delays, Type::INT8_ARRAY),
    ]
}

async fn present(tx: &Transaction<'_>, sql: &str, ids: &[String]) -> Result<Vec<Present>, tokio_postgres::Error> {
    let rows = tx.query_typed(sql, &[(&ids, Type::TEXT_ARRAY)]).await?;
    let decode = |row: &tokio_postgres::Row| {
        Ok(Present {
            id: row.try_get(0)?,
            lane: row.try_get(1)?,
            event_type: row.try_get(2)?,
            key: row.try_get(3)?,
            tenant: row.try_get(4)?,
            content_type: row.try_get(5)?,
            headers: row.try_get(6)?,
            body: row.try_get(7)?,
        })
    };
    rows.iter().map(decode).collect()
}
