//! Enqueueing in a transaction of the store's own: the command line, tests.

use async_trait::async_trait;
use posthaste_core::{
    Event,
    port::{EnqueueError, Enqueued, Produce},
};
use rusqlite::Connection;

use crate::{
    SqliteStore,
    connect::durably,
    enqueue::{Outbox, insert},
    error::explain,
    settle::begin,
};

#[async_trait]
impl Produce for SqliteStore {
    /// Once it answers, the rows survive a power failure.
    async fn produce(&self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let outbox = self.outbox();
        outbox.check(events)?;
        let events = events.to_vec();
        let produced = self.writer.run(move |connection| Ok(produce(connection, &outbox, &events))).await??;
        self.bell.ring(false);
        Ok(produced)
    }
}

fn produce(connection: &mut Connection, outbox: &Outbox, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
    let refused = |error| EnqueueError::Store(explain(error, &outbox.statements.doing));
    durably(connection, |connection| {
        let transaction = begin(connection).map_err(refused)?;
        let produced = insert(&transaction, &outbox.statements, events)?;
        transaction.commit().map_err(refused)?;
        Ok(produced)
    })
    .map_err(refused)?
}
