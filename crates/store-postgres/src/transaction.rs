//! The managed transaction: begin, the caller's work, commit, and again from the start if a
//! concurrent transaction won.

use std::error::Error as StdError;

use posthaste_core::{
    Error, Event,
    port::{EnqueueError, Enqueued, Receipt},
};
use tokio_postgres::{Client, Transaction};

use crate::{
    Outbox,
    error::{explain, lost_a_race},
};

/// What a managed transaction ended with.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// The body refused, and the transaction was rolled back.
    #[error(transparent)]
    Body(Box<dyn StdError + Send + Sync>),
    /// The transaction could not begin or commit. Where the connection broke during the commit,
    /// nobody knows whether it did.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The outbox inside a managed transaction.
pub struct Managed<'a> {
    outbox: &'a Outbox,
    receipts: Vec<Receipt>,
}

impl Managed<'_> {
    /// [`Outbox::enqueue`]; what it wrote is published right after the commit.
    ///
    /// # Errors
    /// As of [`Outbox::enqueue`].
    pub async fn enqueue(&mut self, tx: &mut Transaction<'_>, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let receipt = self.outbox.enqueue(tx, events).await?;
        let rows = receipt.rows().to_vec();
        self.receipts.push(receipt);
        Ok(rows)
    }
}

impl Outbox {
    /// How often a body is run at most.
    pub const ATTEMPTS: u32 = 5;

    /// Runs `body` in a transaction of `client`, commits, and hands the receipts over. The body is
    /// run again in a new transaction, up to [`Outbox::ATTEMPTS`] times in all, after a
    /// serialization failure or a deadlock, of its own statements or of the commit; so it must make
    /// its events of what it reads in this very run.
    ///
    /// The future can be sent to another thread if the body is an `async move` closure that owns
    /// what it captures.
    ///
    /// # Errors
    /// What the body said, or why the transaction could not begin or commit. A commit whose answer
    /// was lost is not run again.
    ///
    /// # Cancellation
    /// Rolled back, unless the commit was under way.
    pub async fn transaction<T>(
        &self,
        client: &mut Client,
        mut body: impl AsyncFnMut(&mut Transaction<'_>, &mut Managed<'_>) -> Result<T, Box<dyn StdError + Send + Sync>>,
    ) -> Result<T, TransactionError> {
        let mut attempt = 1;
        loop {
            match self.attempt(client, &mut body).await {
                Err(error) if attempt < Outbox::ATTEMPTS && may_be_repeated(&error) => attempt += 1,
                answer => return answer,
            }
        }
    }

    async fn attempt<T>(
        &self,
        client: &mut Client,
        body: &mut impl AsyncFnMut(&mut Transaction<'_>, &mut Managed<'_>) -> Result<T, Box<dyn StdError + Send + Sync>>,
    ) -> Result<T, TransactionError> {
        let tx = client.transaction().await;
        let mut tx = tx.map_err(|error| explain("beginning a transaction", error))?;
        let mut managed = Managed { outbox: self, receipts: Vec::new() };
        match body(&mut tx, &mut managed).await {
            Ok(value) => {
                tx.commit().await.map_err(|error| explain("committing", error))?;
                managed.receipts.into_iter().for_each(|receipt| self.committed(receipt));
                Ok(value)
            }
            Err(refused) => {
                // If this fails the connection is gone, and the transaction with it.
                _ = tx.rollback().await;
                Err(TransactionError::Body(refused))
            }
        }
    }
}

/// Whether a concurrent transaction won, wherever in the chain of causes that stands.
fn may_be_repeated(error: &TransactionError) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = match error {
        TransactionError::Body(refused) => Some(&**refused),
        TransactionError::Store(error) => Some(error),
    };
    while let Some(error) = cause {
        let code = error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
        if code.is_some_and(|code| lost_a_race(code.code())) {
            return true;
        }
        cause = error.source();
    }
    false
}
