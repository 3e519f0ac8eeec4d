//! Holding an outbox: a lock on a file beside the database, freed by the kernel when the holder dies.
//!
//! The file says who holds it. It stays when it is free; deleting it would let two processes each
//! lock a file of that name.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    Error, ErrorKind, LANES, OutboxName, Result,
    port::{Held, Hold, RelayInfo},
};
use tokio::{task, time};

use crate::{
    SqliteStore,
    connect::{Database, Identity, identity, identity_of},
};

/// How often the holder checks that the locked file still is the one in place.
const CHECK: Duration = Duration::from_secs(1);
/// Somebody who only looks holds the lock for an instant: tries, and the wait between them.
const TRIES: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(5);

#[async_trait]
impl Hold for SqliteStore {
    async fn try_hold(&self, name: &str) -> Result<Option<Box<dyn Held>>> {
        let Database::File(database) = &self.shared.database else {
            return Ok(InMemory::take(&self.shared.held).map(|held| Box::new(held) as Box<dyn Held>));
        };
        let path = lock_path(database, &self.shared.outbox);
        for _ in 1..TRIES {
            if let Some(held) = take(path.clone(), name.to_owned()).await? {
                return Ok(Some(Box::new(held)));
            }
            time::sleep(BETWEEN).await;
        }
        Ok(take(path, name.to_owned()).await?.map(|held| Box::new(held) as Box<dyn Held>))
    }
}

/// `FILE-relay`, or `FILE-NAME-relay` for a named outbox.
pub(crate) fn lock_path(database: &Path, outbox: &OutboxName) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    if *outbox != OutboxName::unnamed() {
        path.push(format!("-{outbox}"));
    }
    path.push("-relay");
    PathBuf::from(path)
}

/// Who holds the outbox now.
pub(crate) fn holder(path: &Path) -> Option<RelayInfo> {
    let mut file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let name = text.lines().next().unwrap_or_default().to_owned();
    Some(RelayInfo { name, lanes: u32::from(LANES), expires_in: None })
}

struct LockedFile {
    file: File,
    path: PathBuf,
    identity: Option<Identity>,
}

async fn take(path: PathBuf, name: String) -> Result<Option<LockedFile>> {
    let doing = format!("locking {}", path.display());
    let taken = task::spawn_blocking(move || lock(path, &name)).await;
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::new(ErrorKind::Config, doing.clone())
            .because(error)
            .hint("the directory of the database must be writable, and its file system must support locks")
    };
    taken.map_err(|error| failed(error.into()))?.map_err(|error| failed(error.into()))
}

fn lock(path: PathBuf, name: &str) -> std::io::Result<Option<LockedFile>> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let identity = identity(&path)?;
    if identity.is_none() || identity != identity_of(&file)? {
        return Ok(None);
    }
    // Only `status` reads it: a full disk is no reason not to pump.
    let _ = write_holder(&mut file, name);
    Ok(Some(LockedFile { file, path, identity }))
}

fn write_holder(file: &mut File, name: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{name}\n{}\n", std::process::id()).as_bytes())
}

#[async_trait]
impl Held for LockedFile {
    /// The kernel takes the lock only with the process; what can happen is that the file goes.
    async fn lost(&mut self) -> String {
        loop {
            time::sleep(CHECK).await;
            if identity(&self.path).ok().flatten() != self.identity {
                return format!("{} was removed or replaced: another relay may hold it now", self.path.display());
            }
        }
    }

    async fn release(self: Box<Self>) {
        // Closing the file frees the lock in any case.
        let _ = self.file.set_len(0);
    }
}

/// The right to pump a database that no other process can see.
struct InMemory(Arc<AtomicBool>);

impl InMemory {
    fn take(held: &Arc<AtomicBool>) -> Option<InMemory> {
        let free = held.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok();
        free.then(|| InMemory(held.clone()))
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[async_trait]
impl Held for InMemory {
    async fn lost(&mut self) -> String {
        std::future::pending().await
    }

    async fn release(self: Box<Self>) {}
}
