//! A thread that owns a connection, since SQLite blocks.
//!
//! Jobs come over a bounded channel and run one after the other; the thread ends, and is joined,
//! when its worker is dropped. A job that was handed over runs even if its caller has gone.

use std::{
    sync::OnceLock,
    thread::{self, JoinHandle},
};

use posthaste_core::{Error, ErrorKind, Result};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::connect::{Database, Opened, Role};

const WAITING_JOBS: usize = 64;

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// A thread with a connection of its own; starts at the first job.
pub(crate) struct Worker {
    database: Database,
    role: Role,
    thread: OnceLock<Running>,
}

struct Running {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread has before it: the connection, once there is something to open.
pub(crate) struct Desk {
    database: Database,
    role: Role,
    opened: Option<Opened>,
}

impl Desk {
    /// The connection to the file that has the database's name now.
    pub fn connection(&mut self, create: bool) -> Result<&mut Connection> {
        let current = self.opened.take().filter(|opened| opened.is_current(&self.database));
        let opened = match current {
            Some(opened) => opened,
            None => self.database.open(self.role, create)?,
        };
        Ok(&mut self.opened.insert(opened).connection)
    }
}

impl Worker {
    pub fn new(database: Database, role: Role) -> Worker {
        Worker { database, role, thread: OnceLock::new() }
    }

    /// Runs `job` on the connection. An absent file is [`ErrorKind::MissingSchema`].
    ///
    /// # Cancellation
    /// The job may or may not run.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_at_desk(|desk| job(desk.connection(false)?)).await
    }

    /// Runs `job`, which opens the connection itself.
    ///
    /// # Cancellation
    /// The job may or may not run.
    pub async fn run_at_desk<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Desk) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(|desk| {
            // Nobody waits for the answer where the caller has gone.
            let _ = answer.send(job(desk));
        });
        let ended = || Error::new(ErrorKind::Unknown, "the thread of the SQLite connection has ended");
        let jobs = self.jobs()?;
        jobs.send(job).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }

    fn jobs(&self) -> Result<&mpsc::Sender<Job>> {
        if self.thread.get().is_none() {
            let running = self.start()?;
            // Where another caller was faster, its thread stays and this one ends again.
            let _ = self.thread.set(running);
        }
        let running = self.thread.get().and_then(|running| running.jobs.as_ref());
        running.ok_or_else(|| Error::new(ErrorKind::Unknown, "the thread of the SQLite connection has ended"))
    }

    fn start(&self) -> Result<Running> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(WAITING_JOBS);
        let mut desk = Desk { database: self.database.clone(), role: self.role, opened: None };
        let thread = thread::Builder::new().name("posthaste-sqlite".to_owned()).spawn(move || {
            while let Some(job) = waiting.blocking_recv() {
                job(&mut desk);
            }
        });
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "starting a thread for the SQLite connection").because(error)
        })?;
        Ok(Running { jobs: Some(jobs), thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            // A job that panicked has told its caller by dropping the answer.
            let _ = thread.join();
        }
    }
}
