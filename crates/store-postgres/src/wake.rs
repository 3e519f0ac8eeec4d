//! Wake-ups by NOTIFY, paid by writers only while a relay sleeps.
//!
//! The exclusive lock means *asleep*. A writer's trigger tries the same lock shared, for its
//! transaction: it gets it while the relay is awake, and stays silent; it is refused while the
//! relay sleeps, and notifies. The relay gets the lock only when no writer that stayed silent is
//! under way; what commits after that wakes it, and what committed before is in its next read.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    Error, ErrorKind, Lane, LaneSet, Result,
    port::{Armed, Wake, Wakeups},
};
use tokio::{sync::Notify, task::JoinHandle, time::sleep};
use tokio_postgres::types::{Oid, Type};

use crate::{
    connect::{Role, Server, Session, Typed},
    schema::{Names, WAKE_LOCK},
};

/// The listening side of one relay. Connects at the first `arm`, and again at the first one after a loss.
pub(crate) struct PostgresWakeups {
    server: Arc<Server>,
    names: Names,
    inbox: Arc<Inbox>,
    listener: Mutex<Option<Arc<Listener>>>,
}

impl PostgresWakeups {
    pub(crate) fn new(server: Arc<Server>, names: Names) -> PostgresWakeups {
        PostgresWakeups { server, names, inbox: Arc::default(), listener: Mutex::new(None) }
    }

    fn listener(&self) -> Option<Arc<Listener>> {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.clone().filter(|listener| listener.session.is_usable())
    }

    async fn connect(&self) -> Result<Arc<Listener>> {
        if let Some(listener) = self.listener() {
            return Ok(listener);
        }
        let inbox = self.inbox.clone();
        let session = self
            .server
            .connect_listening(Role::Listen, move |notification| inbox.take_in(notification.payload()))
            .await?;
        let listener = Arc::new(Listener::start(session, &self.names, &self.server, self.inbox.clone()).await?);
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener.clone());
        Ok(listener)
    }
}

#[async_trait]
impl Wakeups for PostgresWakeups {
    async fn arm(&self) -> Result<Armed> {
        self.connect().await?.arm().await
    }

    async fn disarm(&self) -> Result<()> {
        // A listener that is gone has taken its lock along.
        let Some(listener) = self.listener() else { return Ok(()) };
        listener.disarm().await
    }

    async fn next(&self) -> Wake {
        self.inbox.next().await
    }
}

/// A session that listens, and the task that watches it.
struct Listener {
    session: Arc<Session>,
    table: Oid,
    keep_alive: Duration,
    /// The lock is ours for sure.
    armed: AtomicBool,
    /// The lock may be ours: it was asked for, and the answer did not come.
    unsure: AtomicBool,
    watch: JoinHandle<()>,
}

impl Listener {
    async fn start(session: Session, names: &Names, server: &Server, inbox: Arc<Inbox>) -> Result<Listener> {
        let doing = format!("listening for rows of {}", names.table());
        let (quoted, keep_alive) = (names.quoted(), server.settings().keep_alive);
        let rows = session.ask_within(keep_alive, &doing, "SELECT $1::regclass::oid", &[(&quoted, Type::TEXT)]).await?;
        let table: Oid = rows.first().ok_or_else(|| Error::new(ErrorKind::Corrupt, &doing))?.get(0);
        let listen = format!("LISTEN posthaste_{table}");
        session.within_deadline(keep_alive, &doing, session.client.batch_execute(&listen)).await?;
        let session = Arc::new(session);
        let watched = session.clone();
        let watch = tokio::spawn(async move {
            let reason = tokio::select! {
                reason = watched.ended() => reason,
                reason = silence(&watched, &quoted, table, keep_alive) => reason,
            };
            watched.give_up();
            tracing::warn!(%reason, "wake-ups are lost until the next try");
            inbox.lose();
        });
        let (armed, unsure) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Listener { session, table, keep_alive, armed, unsure, watch })
    }

    async fn arm(&self) -> Result<Armed> {
        if self.armed.load(SeqCst) {
            return Ok(Armed::Yes);
        }
        self.disarm().await?;
        self.unsure.store(true, SeqCst);
        let sql = "SELECT pg_try_advisory_lock($1, $2::oid::integer)";
        let parameters: [Typed<'_>; 2] = [(&WAKE_LOCK, Type::INT4), (&self.table, Type::OID)];
        let rows = self.session.ask_within(self.keep_alive, "falling asleep", sql, &parameters).await?;
        let ours = rows.first().is_some_and(|row| row.get(0));
        self.armed.store(ours, SeqCst);
        self.unsure.store(false, SeqCst);
        Ok(if ours { Armed::Yes } else { Armed::WriterUnderWay })
    }

    async fn disarm(&self) -> Result<()> {
        if !self.armed.load(SeqCst) && !self.unsure.load(SeqCst) {
            return Ok(());
        }
        self.unsure.store(true, SeqCst);
        self.armed.store(false, SeqCst);
        let unlocked = self.session.client.batch_execute("SELECT pg_advisory_unlock_all()");
        self.session.within_deadline(self.keep_alive, "waking up", unlocked).await?;
        self.unsure.store(false, SeqCst);
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.watch.abort();
        self.session.give_up();
    }
}

/// Ends when the server does not answer any more, or the table is another one.
async fn silence(session: &Session, quoted: &str, table: Oid, keep_alive: Duration) -> String {
    loop {
        sleep(keep_alive).await;
        let (doing, sql) = ("keeping the listener alive", "SELECT to_regclass($1)::oid");
        match session.ask_within(keep_alive, doing, sql, &[(&quoted, Type::TEXT)]).await {
            Ok(rows) if rows.first().is_some_and(|row| row.get::<_, Option<Oid>>(0) == Some(table)) => {}
            Ok(_) => return "the table was dropped or made anew".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
}

/// What came in and was not taken yet, merged: nothing queues up.
#[derive(Default)]
struct Inbox {
    pending: Mutex<Pending>,
    came: Notify,
}

#[derive(Default)]
struct Pending {
    lanes: LaneSet,
    rewind: bool,
    lost: bool,
}

impl Inbox {
    fn take_in(&self, payload: &str) {
        let lane = payload.parse().ok().and_then(Lane::new);
        self.change(|pending| {
            pending.lanes = pending.lanes.union(lane.map_or(LaneSet::ALL, |lane| LaneSet::from_iter([lane])));
            pending.rewind |= payload == REWIND;
        });
    }

    fn lose(&self) {
        self.change(|pending| {
            pending.lanes = LaneSet::ALL;
            pending.lost = true;
        });
    }

    fn change(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        self.came.notify_one();
    }

    async fn next(&self) -> Wake {
        loop {
            let pending = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
            if !pending.lanes.is_empty() {
                return Wake { lanes: pending.lanes, rewind: pending.rewind, healthy: !pending.lost };
            }
            // A change since then has left a permit.
            self.came.notified().await;
        }
    }
}

/// The payload that says that rows behind the cursors are due again.
const REWIND: &str = "rewind";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_w1_hints_are_merged_until_they_are_taken() {
        let inbox = Inbox::default();
        inbox.take_in("3");
        inbox.take_in("7");
        let lanes = [3, 7].into_iter().filter_map(Lane::new).collect();
        assert_eq!(inbox.next().await, Wake { lanes, rewind: false, healthy: true });
        inbox.take_in("");
        inbox.take_in(REWIND);
        assert_eq!(inbox.next().await, Wake { lanes: LaneSet::ALL, rewind: true, healthy: true });
    }

    #[tokio::test]
    async fn port_w3_a_loss_is_told_once() {
        let inbox = Inbox::default();
        inbox.take_in("3");
        inbox.lose();
        assert!(!inbox.next().await.healthy);
        inbox.take_in("3");
        assert!(inbox.next().await.healthy);
    }
}
