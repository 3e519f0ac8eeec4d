//! Opening the database file: when, how, and again when another file has taken its place.
//!
//! Nothing but `migrate` creates a file. The file itself is only ever opened by SQLite: closing
//! any other descriptor of it would drop SQLite's locks.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use posthaste_core::{Error, ErrorKind, Result, file_url::file_path, options::ConfigError};
use rusqlite::{Connection, OpenFlags};

use crate::error::Doing;

/// How long a statement waits for the write lock.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the database is.
#[derive(Clone, Debug)]
pub(crate) enum Database {
    /// In this process, and gone with the store.
    Memory,
    /// In this file.
    File(PathBuf),
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Reads and writes.
    Writer,
    /// Reads only.
    Reader,
}

/// A connection and the file that it was opened on.
pub(crate) struct Opened {
    /// The connection.
    pub connection: Connection,
    identity: Option<Identity>,
}

/// Tells a file from another that took its name.
pub(crate) type Identity = (u64, u64);

impl Database {
    /// The database of a store URL: `sqlite:FILE` or `sqlite::memory:`.
    pub fn parse(url: &str) -> Result<Database, ConfigError> {
        if url == "sqlite::memory:" {
            return Ok(Database::Memory);
        }
        file_path(url, "sqlite").map(Database::File)
    }

    /// Whether there is something to open.
    pub fn exists(&self) -> Result<bool> {
        let Database::File(path) = self else { return Ok(true) };
        if path.is_dir() {
            let text = format!("opening {}: it is a directory", path.display());
            let hint = format!("name a file in it: sqlite:{}", path.join("app.db").display());
            return Err(Error::new(ErrorKind::Config, text).hint(hint));
        }
        match identity(path) {
            Ok(identity) => Ok(identity.is_some()),
            Err(error) => Err(Error::new(ErrorKind::Config, format!("looking for {}", path.display())).because(error)),
        }
    }

    /// Opens it; an absent file only if `create` says so.
    pub fn open(&self, role: Role, create: bool) -> Result<Opened> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let Database::File(path) = self else {
            let connection = Connection::open_in_memory_with_flags(flags).doing("opening a database in memory")?;
            return Ok(Opened { connection, identity: None });
        };
        if create {
            self.exists()?;
            check_directory(path)?;
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        } else if !self.exists()? {
            return Err(absent(path));
        }
        let doing = format!("opening {}", path.display());
        let connection = Connection::open_with_flags(path, flags).doing(&doing)?;
        configure(&connection, role).doing(&doing)?;
        Ok(Opened { connection, identity: identity(path).ok().flatten() })
    }
}

impl Opened {
    /// Whether `database` still is the file that was opened.
    pub fn is_current(&self, database: &Database) -> bool {
        match database {
            Database::Memory => true,
            Database::File(path) => self.identity.is_some() && identity(path).ok().flatten() == self.identity,
        }
    }
}

/// NORMAL suffices for what a relay records: a mark that a power failure takes back is repeated.
/// What must last is written under `FULL`; see [`durably`].
fn configure(connection: &Connection, role: Role) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "query_only", role == Role::Reader)
}

/// Runs `work` so that what it commits survives a power failure.
pub(crate) fn durably<T>(connection: &mut Connection, work: impl FnOnce(&mut Connection) -> T) -> rusqlite::Result<T> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let done = work(connection);
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(done)
}

/// The identity of the file at `path`; `None` if there is none.
pub(crate) fn identity(path: &Path) -> io::Result<Option<Identity>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(identity_in(&metadata))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The identity of an open file that is not the database.
pub(crate) fn identity_of(file: &fs::File) -> io::Result<Option<Identity>> {
    Ok(Some(identity_in(&file.metadata()?)))
}

#[cfg(unix)]
fn identity_in(metadata: &fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

/// Elsewhere an open file can't be replaced.
#[cfg(not(unix))]
fn identity_in(_: &fs::Metadata) -> Identity {
    (0, 0)
}

fn check_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if directory.is_dir() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Config,
        format!("creating {}: there is no directory {}", path.display(), directory.display()),
    )
    .hint(format!("create the directory {}", directory.display())))
}

fn absent(path: &Path) -> Error {
    Error::new(ErrorKind::MissingSchema, format!("opening {}: there is no such file", path.display()))
        .hint("create it with `posthaste migrate`, or correct the path")
}
