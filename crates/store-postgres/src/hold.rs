//! Solo ownership by a session's advisory lock: one holder over all processes, freed by the
//! server when the connection ends.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::{
    Result,
    port::{Held, Hold},
};
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;

use crate::{
    PostgresStore,
    connect::{Session, Typed},
    schema::HOLD_LOCK,
};

/// Stands before a relay's name in `application_name`, where `status` and administrators find it.
pub(crate) const NAME_PREFIX: &str = "posthaste relay ";

#[async_trait]
impl Hold for PostgresStore {
    async fn try_hold(&self, name: &str) -> Result<Option<Box<dyn Held>>> {
        let session = self.holding.take(&self.server).await?;
        let doing = format!("holding {}", self.names.table());
        let sql =
            "SELECT pg_try_advisory_lock($1, $2::regclass::oid::integer), set_config('application_name', $3, false)";
        let (table, shown) = (self.names.quoted(), format!("{NAME_PREFIX}{name}"));
        let parameters: [Typed<'_>; 3] = [(&HOLD_LOCK, Type::INT4), (&table, Type::TEXT), (&shown, Type::TEXT)];
        let rows = session.ask(doing, sql, &parameters).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            let keep_alive = self.settings.keep_alive;
            return Ok(Some(Box::new(PostgresHeld { session, keep_alive, table })));
        }
        self.holding.put_back(session);
        Ok(None)
    }
}

/// The lock, as long as its session proves that it has it.
struct PostgresHeld {
    session: Session,
    keep_alive: Duration,
    table: String,
}

#[async_trait]
impl Held for PostgresHeld {
    async fn lost(&mut self) -> String {
        tokio::select! {
            reason = self.session.ended() => reason,
            reason = self.unproved() => reason,
        }
    }

    async fn release(self: Box<Self>) {
        // The end of the connection frees the lock as well, only a little later.
        _ = timeout(Duration::from_secs(1), self.session.client.batch_execute("SELECT pg_advisory_unlock_all()")).await;
    }
}

impl PostgresHeld {
    /// Ends when the lock can't be proved any more.
    async fn unproved(&self) -> String {
        // Through a pooler each statement may meet another server process, which has no such lock.
        let sql = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 \
            AND pid = pg_backend_pid() AND classid = $1::integer::oid AND objid = to_regclass($2))";
        loop {
            sleep(self.keep_alive).await;
            let parameters: [Typed<'_>; 2] = [(&HOLD_LOCK, Type::INT4), (&self.table, Type::TEXT)];
            match self.session.ask_within(self.keep_alive, "proving the lock", sql, &parameters).await {
                Ok(rows) if rows.first().is_some_and(|row| row.get(0)) => {}
                Ok(_) => {
                    return "the session has no lock: the table was made anew, or the URL leads to a connection pooler \
                            in transaction mode instead of the server"
                        .to_owned();
                }
                Err(error) => return error.to_string(),
            }
        }
    }
}
