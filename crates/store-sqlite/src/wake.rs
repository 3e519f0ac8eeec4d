//! Wake-ups from a database file: a thread that asks every few milliseconds whether another
//! connection has committed, while a relay waits.
//!
//! Its connection never writes. A change wakes only if rows were added or must be read again, so
//! that a relay's own marks don't wake it.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use posthaste_core::{
    Error, ErrorKind, LaneSet, Result, Seq,
    port::{Armed, Wake, Waker, Wakeups},
};
use rusqlite::Connection;
use tokio::sync::Notify;

use crate::{
    connect::{Database, Opened, Role},
    error::Doing,
    rows::LANE,
    tables::Tables,
};

/// Between looks at the file, while rows have come within the last [`BUSY`].
const POLL: Duration = Duration::from_millis(5);
/// Between looks at a quiet file; costs less than a percent of one core.
const QUIET_POLL: Duration = Duration::from_millis(10);
const BUSY: Duration = Duration::from_secs(1);

/// Rings when rows may have been written.
pub(crate) struct Bell {
    line: Arc<Line>,
    database: Database,
    tables: Tables,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread and the waiting relay share.
#[derive(Default)]
struct Line {
    state: Mutex<State>,
    changed: Condvar,
    rung: Notify,
}

#[derive(Default)]
struct State {
    armed: bool,
    closed: bool,
    wake: Option<Wake>,
}

impl Bell {
    pub fn new(database: Database, tables: Tables) -> Bell {
        Bell { line: Arc::default(), database, tables, thread: Mutex::default() }
    }

    /// Wakes the relay of this process.
    pub fn ring(&self, rewind: bool) {
        self.line.ring(rewind, true);
    }

    fn listen(&self) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        let mut listener = Listener::new(self.line.clone(), self.database.clone(), self.tables.clone());
        let started = thread::Builder::new().name("posthaste-wake".to_owned()).spawn(move || listener.run());
        *thread = Some(started.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "starting a thread that watches the SQLite file").because(error)
        })?);
        Ok(())
    }
}

#[async_trait]
impl Wakeups for Bell {
    async fn arm(&self) -> Result<Armed> {
        // A database in memory changes only through this store, which rings.
        if matches!(self.database, Database::File(_)) {
            self.line.arm(true);
            self.listen()?;
        }
        Ok(Armed::Yes)
    }

    async fn disarm(&self) -> Result<()> {
        self.line.arm(false);
        Ok(())
    }

    async fn next(&self) -> Wake {
        loop {
            let rung = self.line.rung.notified();
            if let Some(wake) = self.line.state().wake.take() {
                return wake;
            }
            rung.await;
        }
    }
}

impl Waker for Bell {
    fn wake(&self, _lanes: LaneSet) {
        self.ring(false);
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.line.state().closed = true;
        self.line.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Where it panicked there is nobody left to tell.
        let _ = thread.map(JoinHandle::join);
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arm(&self, armed: bool) {
        self.state().armed = armed;
        self.changed.notify_all();
    }

    fn ring(&self, rewind: bool, healthy: bool) {
        let mut state = self.state();
        let before = state.wake.take();
        state.wake = Some(Wake {
            lanes: LaneSet::from_iter([LANE]),
            rewind: rewind || before.is_some_and(|wake| wake.rewind),
            healthy: healthy && before.is_none_or(|wake| wake.healthy),
        });
        state.armed &= healthy;
        drop(state);
        self.rung.notify_waiters();
    }

    /// Waits until armed, then for `poll`; whether to go on.
    fn wait(&self, poll: Duration) -> bool {
        let mut state = self.state();
        while !state.armed && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.closed {
            state = self.changed.wait_timeout(state, poll).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.closed
    }
}

/// What was seen last: a change of these is worth a wake-up.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    highest: Seq,
    rewinds: i64,
}

struct Listener {
    line: Arc<Line>,
    database: Database,
    tables: Tables,
    opened: Option<Opened>,
    version: Option<i64>,
    seen: Option<Seen>,
}

impl Listener {
    fn new(line: Arc<Line>, database: Database, tables: Tables) -> Listener {
        Listener { line, database, tables, opened: None, version: None, seen: None }
    }

    fn run(&mut self) {
        let mut rows_came = Instant::now();
        while self.line.wait(if rows_came.elapsed() < BUSY { POLL } else { QUIET_POLL }) {
            match self.look() {
                Ok(None) => {}
                Ok(Some(rewind)) => {
                    rows_came = Instant::now();
                    self.line.ring(rewind, true);
                }
                Err(_) => {
                    // The relay's own reads meet the cause, and say it.
                    (self.opened, self.version, self.seen) = (None, None, None);
                    self.line.ring(false, false);
                }
            }
        }
    }

    /// Whether to wake, and if so whether to read from the start.
    fn look(&mut self) -> Result<Option<bool>> {
        let opened = match &self.opened {
            Some(opened) => opened,
            None => self.opened.insert(self.database.open(Role::Reader, false)?),
        };
        if !opened.is_current(&self.database) {
            return Err(Error::new(ErrorKind::Unavailable, "the database file was removed or replaced"));
        }
        let doing = "watching the database file";
        let version = Some(version(&opened.connection).doing(doing)?);
        if version == self.version {
            return Ok(None);
        }
        let seen = seen(&opened.connection, &self.tables).doing(doing)?;
        self.version = version;
        // What changed before the first look may have been a rewind.
        let before = self.seen.replace(seen);
        Ok((before != Some(seen)).then(|| before.is_none_or(|before| before.rewinds != seen.rewinds)))
    }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

fn seen(connection: &Connection, tables: &Tables) -> rusqlite::Result<Seen> {
    let highest = tables.highest(connection)?;
    let sql = format!("SELECT rewinds FROM {}", tables.meta);
    let rewinds = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    Ok(Seen { highest, rewinds })
}
