//! A thread that owns what is written to, since files and pipes block.
//!
//! Jobs come one at a time and end in order. A job that hangs (a pipe that nobody reads) is left
//! to itself once its deadline has passed: those after it wait behind it, up to theirs. When the
//! transport is dropped the thread ends with its last job; it is not waited for, since a write to
//! a stalled pipe can't be interrupted.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use posthaste_core::{Class, Failure};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread with a state of its own; starts at the first job.
pub(crate) struct OwnThread<S> {
    place: Mutex<Place<S>>,
}

enum Place<S> {
    Here(Option<S>),
    Running(mpsc::Sender<Job<S>>),
}

impl<S: Send + 'static> OwnThread<S> {
    pub fn new(state: S) -> OwnThread<S> {
        OwnThread { place: Mutex::new(Place::Here(Some(state))) }
    }

    /// Runs `job` and waits for its answer until the deadline.
    ///
    /// # Cancellation
    /// A job that was handed over runs to its end.
    pub async fn run<T: Send + 'static>(
        &self,
        deadline: Duration,
        job: impl FnOnce(&mut S) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, answered) = oneshot::channel();
        let job: Job<S> = Box::new(|state| {
            // Nobody waits for the answer once the deadline has passed.
            let _ = answer.send(job(state));
        });
        let jobs = self.jobs()?;
        let ended = || Failure::lost("the thread that writes has ended");
        let done = timeout(deadline, async {
            jobs.send(job).await.map_err(|_| ended())?;
            answered.await.map_err(|_| ended())
        });
        done.await.unwrap_or_else(|_| Err(Failure::no_answer(format!("not written within {deadline:?}"))))
    }

    /// Hands `job` over without waiting for it; drops it if another waits already.
    pub fn hand_over(&self, job: impl FnOnce(&mut S) + Send + 'static) {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Place::Running(jobs) = &*place {
            let _ = jobs.try_send(Box::new(job));
        }
    }

    fn jobs(&self) -> Result<mpsc::Sender<Job<S>>, Failure> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match &mut *place {
            Place::Running(jobs) => return Ok(jobs.clone()),
            Place::Here(state) => state.take(),
        };
        let Some(mut state) = state else { return Err(Failure::lost("the thread that writes could not be started")) };
        let (jobs, mut waiting) = mpsc::channel::<Job<S>>(1);
        let thread = std::thread::Builder::new().name("posthaste-write".to_owned()).spawn(move || {
            while let Some(job) = waiting.blocking_recv() {
                job(&mut state);
            }
        });
        if let Err(error) = thread {
            return Err(Failure::new(Class::Transient, format!("starting a thread that writes: {error}")));
        }
        *place = Place::Running(jobs.clone());
        Ok(jobs)
    }
}
