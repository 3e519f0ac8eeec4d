//! Enqueueing in a transaction of the store's own.

use async_trait::async_trait;
use posthaste_core::{
    Event,
    port::{EnqueueError, Enqueued, Produce},
};

use crate::{Outbox, PostgresStore, connect::Session};

#[async_trait]
impl Produce for PostgresStore {
    async fn produce(&self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let outbox = self.outbox();
        // An event that breaks a rule is said before a server is needed.
        crate::batch::Batch::new(events, self.settings.limits)?;
        let mut session = self.producing.take(&self.server).await?;
        let answer = self.produce_on(&mut session, &outbox, events).await;
        // Any other error leaves the session in an unknown state; it ends with its transaction.
        if matches!(answer, Ok(_) | Err(EnqueueError::Conflict { .. })) {
            self.producing.put_back(session);
        }
        answer
    }
}

impl PostgresStore {
    async fn produce_on(
        &self,
        session: &mut Session,
        outbox: &Outbox,
        events: &[Event],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let doing = format!("writing to {}", self.names.table());
        session
            .exclusively(doing, async |client| {
                let mut tx = client.transaction().await?;
                let receipt = match outbox.enqueue(&mut tx, events).await {
                    Ok(receipt) => receipt,
                    Err(refused) => {
                        tx.rollback().await?;
                        return Ok(Err(refused));
                    }
                };
                tx.commit().await?;
                Ok(Ok(receipt.rows().to_vec()))
            })
            .await?
    }
}
