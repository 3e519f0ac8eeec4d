//! A transaction driven from elsewhere: drivers lend a transaction for the life of a borrow, the
//! suite wants one that it can hold. The task or thread that owns the connection serves commands.

use async_trait::async_trait;
use posthaste_core::{
    Event,
    port::{EnqueueError, Receipt},
};
use tokio::sync::{mpsc, oneshot};

use super::WriterTx;

/// What the owner of the transaction is asked to do. The channel's end means roll back.
pub enum TxCommand {
    /// Enqueue.
    Enqueue(Vec<Event>, oneshot::Sender<Result<Receipt, EnqueueError>>),
    /// Run a statement.
    Execute(String, oneshot::Sender<Result<(), String>>),
    /// Tell the database's number for the transaction.
    Transaction(oneshot::Sender<Option<u64>>),
    /// Commit and end.
    Commit(oneshot::Sender<()>),
    /// Roll back and end.
    Rollback(oneshot::Sender<()>),
}

/// The suite's end of a transaction that another task or thread owns.
pub struct RemoteTx(mpsc::Sender<TxCommand>);

/// A transaction and the commands that its owner must serve.
#[must_use]
pub fn remote_tx() -> (RemoteTx, mpsc::Receiver<TxCommand>) {
    let (commands, served) = mpsc::channel(1);
    (RemoteTx(commands), served)
}

impl RemoteTx {
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> TxCommand) -> T {
        let (reply, answer) = oneshot::channel();
        assert!(self.0.send(command(reply)).await.is_ok(), "the owner of the transaction is gone");
        answer.await.expect("the owner of the transaction failed; see its panic above")
    }
}

#[async_trait]
impl WriterTx for RemoteTx {
    async fn enqueue(&mut self, events: &[Event]) -> Result<Receipt, EnqueueError> {
        self.ask(|reply| TxCommand::Enqueue(events.to_vec(), reply)).await
    }

    async fn execute(&mut self, statement: &str) -> Result<(), String> {
        self.ask(|reply| TxCommand::Execute(statement.to_owned(), reply)).await
    }

    async fn transaction(&mut self) -> Option<u64> {
        self.ask(TxCommand::Transaction).await
    }

    async fn commit(self: Box<Self>) {
        self.ask(TxCommand::Commit).await;
    }

    async fn rollback(self: Box<Self>) {
        self.ask(TxCommand::Rollback).await;
    }
}
