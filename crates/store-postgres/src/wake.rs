//! Wake-ups by NOTIFY, paid by writers only while a relay sleeps.
//!
//! The exclusive lock means *asleep*. A writer's trigger tries the same lock shared, for its
//! transaction: it gets it while the relay is awake, and stays silent; it is refused while the
//! relay sleeps, and notifies. The relay gets the lock only when no writer that stayed silent is
//! under way; what commits after that wakes it, and what committed before is in its next read.
//!
//! Of several relays of one outbox one has the lock, and the others that sleep are its guests: writers
//! notify all. One that wakes up tells its guests, who then try for the lock themselves. If it dies
//! instead, they find out by their interval.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    Error, ErrorKind, Lane, LaneSet, Result, RowId,
    port::{Armed, Wake, Wakeups},
};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    task::JoinHandle,
    time::sleep,
};
use tokio_postgres::types::{Oid, Type};

use crate::{
    connect::{Role, Server, Session, Typed},
    schema::{Names, WAKE_LOCK},
};

/// Between a guest's tries for the lock while a writer that stayed silent is under way.
const TRY_AGAIN: Duration = Duration::from_millis(25);

/// The listening side of one relay. Connects at the first `arm`, and again at the first one after a loss.
pub(crate) struct PostgresWakeups {
    server: Arc<Server>,
    names: Names,
    inbox: Arc<Inbox>,
    listener: Mutex<Option<Arc<Listener>>>,
}

impl PostgresWakeups {
    pub(crate) fn new(server: Arc<Server>, names: Names) -> PostgresWakeups {
        PostgresWakeups { server, names, inbox: Arc::new(Inbox::new()), listener: Mutex::new(None) }
    }

    fn listener(&self) -> Option<Arc<Listener>> {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.clone().filter(|listener| listener.bed.session.is_usable())
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
        self.connect().await?.bed.arm().await
    }

    async fn disarm(&self) -> Result<()> {
        // A listener that is gone has taken its lock along.
        let Some(listener) = self.listener() else { return Ok(()) };
        listener.bed.disarm().await
    }

    async fn next(&self) -> Wake {
        self.inbox.next().await
    }
}

/// A session that listens, and the tasks that watch it.
struct Listener {
    bed: Arc<Bed>,
    watch: JoinHandle<()>,
    guest: JoinHandle<()>,
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
        let sleep = AsyncMutex::new(Sleep::Awake);
        let bed = Arc::new(Bed { session: session.clone(), table, keep_alive, sleep, inbox: inbox.clone() });
        let guest = tokio::spawn({
            let bed = bed.clone();
            async move { bed.take_over().await }
        });
        let watch = tokio::spawn(async move {
            let reason = tokio::select! {
                reason = session.ended() => reason,
                reason = silence(&session, &quoted, table, keep_alive) => reason,
            };
            session.give_up();
            tracing::warn!(%reason, "wake-ups are lost until the next try");
            inbox.lose();
        });
        Ok(Listener { bed, watch, guest })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.watch.abort();
        self.guest.abort();
        self.bed.session.give_up();
    }
}

/// Whether writers wake this relay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleep {
    Awake,
    /// The lock is ours.
    Asleep,
    /// The lock is another relay's.
    Guest,
    /// The lock may be ours: it was asked for, and the answer did not come.
    Unsure,
}

/// The lock of one outbox, and what is known of it.
struct Bed {
    session: Arc<Session>,
    table: Oid,
    keep_alive: Duration,
    sleep: AsyncMutex<Sleep>,
    inbox: Arc<Inbox>,
}

impl Bed {
    async fn arm(&self) -> Result<Armed> {
        let mut sleep = self.sleep.lock().await;
        if matches!(*sleep, Sleep::Asleep | Sleep::Guest) {
            return Ok(Armed::Yes);
        }
        self.wake_up(&mut sleep).await?;
        self.lie_down(&mut sleep).await
    }

    async fn disarm(&self) -> Result<()> {
        self.wake_up(&mut *self.sleep.lock().await).await
    }

    async fn lie_down(&self, sleep: &mut Sleep) -> Result<Armed> {
        *sleep = Sleep::Unsure;
        let sql = "SELECT pg_try_advisory_lock($1, $2::oid::integer), EXISTS (SELECT FROM pg_locks \
            WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 2 AND pid <> pg_backend_pid() \
              AND classid = $1::oid AND objid = $2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
        let parameters: [Typed<'_>; 2] = [(&WAKE_LOCK, Type::INT4), (&self.table, Type::OID)];
        let rows = self.session.ask_within(self.keep_alive, "falling asleep", sql, &parameters).await?;
        *sleep = match rows.first().map(|row| (row.get(0), row.get(1))) {
            Some((true, _)) => Sleep::Asleep,
            Some((false, true)) => Sleep::Guest,
            _ => Sleep::Awake,
        };
        Ok(if *sleep == Sleep::Awake { Armed::WriterUnderWay } else { Armed::Yes })
    }

    async fn wake_up(&self, sleep: &mut Sleep) -> Result<()> {
        if matches!(*sleep, Sleep::Awake | Sleep::Guest) {
            *sleep = Sleep::Awake;
            return Ok(());
        }
        *sleep = Sleep::Unsure;
        let sql = format!(
            "SELECT pg_advisory_unlock_all(); SELECT pg_notify('posthaste_{}', '{}')",
            self.table,
            self.inbox.farewell()
        );
        let unlocked = self.session.client.batch_execute(&sql);
        self.session.within_deadline(self.keep_alive, "waking up", unlocked).await?;
        *sleep = Sleep::Awake;
        Ok(())
    }

    /// A guest whose host has woken up tries for the lock until it has it, or is another one's guest.
    /// After each try the relay reads: what committed meanwhile has woken nobody.
    async fn take_over(&self) {
        loop {
            self.inbox.left.notified().await;
            while !self.try_take_over().await {
                sleep(TRY_AGAIN).await;
            }
        }
    }

    /// Whether this relay is awake, or asleep for sure.
    async fn try_take_over(&self) -> bool {
        let mut sleep = self.sleep.lock().await;
        if *sleep != Sleep::Guest {
            return true;
        }
        let armed = self.lie_down(&mut sleep).await;
        self.inbox.wake_all();
        match armed {
            Ok(Armed::Yes) => true,
            Ok(Armed::WriterUnderWay) => {
                *sleep = Sleep::Guest;
                false
            }
            // The watch tells of the broken session.
            Err(_) => true,
        }
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
struct Inbox {
    /// Tells this relay from others.
    token: String,
    pending: Mutex<Pending>,
    came: Notify,
    /// A relay that had the lock has woken up.
    left: Notify,
}

#[derive(Default)]
struct Pending {
    lanes: LaneSet,
    rewind: bool,
    lost: bool,
}

impl Inbox {
    fn new() -> Inbox {
        let token = RowId::generate().to_string();
        Inbox { token, pending: Mutex::default(), came: Notify::new(), left: Notify::new() }
    }

    fn take_in(&self, payload: &str) {
        if let Some(of) = payload.strip_prefix(FAREWELL) {
            if of != self.token {
                self.left.notify_one();
            }
            return;
        }
        let lane = payload.parse().ok().and_then(Lane::new);
        self.change(|pending| {
            pending.lanes = pending.lanes.union(lane.map_or(LaneSet::ALL, |lane| LaneSet::from_iter([lane])));
            pending.rewind |= payload == REWIND;
        });
    }

    /// What this relay says when it gives the lock back.
    fn farewell(&self) -> String {
        format!("{FAREWELL}{}", self.token)
    }

    fn wake_all(&self) {
        self.change(|pending| pending.lanes = LaneSet::ALL);
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
/// The payload that says, with who it was, that the lock was given back.
const FAREWELL: &str = "awake ";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_w1_hints_are_merged_until_they_are_taken() {
        let inbox = Inbox::new();
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
        let inbox = Inbox::new();
        inbox.take_in("3");
        inbox.lose();
        assert!(!inbox.next().await.healthy);
        inbox.take_in("3");
        assert!(inbox.next().await.healthy);
    }
}
