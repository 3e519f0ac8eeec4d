//! The schema of an outbox.

use async_trait::async_trait;

use crate::Result;

/// Creates, upgrades and checks the tables of one outbox.
#[async_trait]
pub trait Schema: Send + Sync {
    /// The schema as it stands.
    async fn schema(&self) -> Result<SchemaState>;

    /// Creates or upgrades it.
    ///
    /// # Contract
    /// - D1 Safe when many run at once: all succeed.
    /// - D2 A schema of an unknown newer version is refused, not guessed.
    /// - D3 Does nothing when it is current.
    async fn migrate(&self) -> Result<()>;

    /// The statements that create it from nothing.
    fn sql(&self) -> String;
}

/// The schema as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemaState {
    /// None of it is there, and the database holds nothing else either.
    EmptyDatabase,
    /// None of it is there.
    Missing,
    /// An older version.
    Older(u32),
    /// What this build works with.
    Current,
    /// A version that this build does not know.
    Newer(u32),
}
