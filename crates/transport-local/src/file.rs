//! `file:PATH`: one CloudEvents JSON object a line, appended and synced before it is confirmed.
//!
//! The file ends with a whole line: a half one of ours, left by a crash, is cut off when the file is
//! first used, and what a failed write leaves is cut off at once. A lock keeps a second relay out.
//! Only a regular file keeps what it was given, so nothing else is written to.

use std::{
    fs::{File, Metadata, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    Class, Failure, Message,
    port::{Transport, TransportCapabilities},
};

use crate::{
    CAPABILITIES, directory, identity, identity_at,
    lines::pieces,
    tail::{self, Ending},
    thread::OwnThread,
};

/// Appends lines to a file.
pub(crate) struct LineFile {
    thread: OwnThread<Appender>,
}

/// The file as its thread holds it.
struct Appender {
    path: PathBuf,
    file: Option<File>,
}

impl LineFile {
    pub fn new(path: PathBuf) -> LineFile {
        LineFile { thread: OwnThread::new(Appender { path, file: None }) }
    }
}

#[async_trait]
impl Transport for LineFile {
    fn capabilities(&self) -> TransportCapabilities {
        CAPABILITIES
    }

    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>> {
        let count = batch.len();
        let published = self.thread.run(deadline, move |appender| appender.publish(&batch)).await;
        vec![published.and_then(|published| published); count]
    }

    async fn probe(&self, deadline: Duration) -> Result<(), Failure> {
        self.thread.run(deadline, |appender| appender.probe()).await?
    }

    async fn close(&self) {
        self.thread.hand_over(|appender| appender.file = None);
    }
}

impl Appender {
    /// All lines of the batch, or none.
    fn publish(&mut self, batch: &[Message]) -> Result<(), Failure> {
        let mut file = match self.file.take() {
            Some(file) if self.is_in_place(&file) => file,
            _ => self.open()?,
        };
        match append(&mut file, batch) {
            Ok(()) => {
                self.file = Some(file);
                Ok(())
            }
            // Not kept: the next use looks at its last line again.
            Err(error) => Err(self.failure("writing to", &error)),
        }
    }

    /// Whether the open file still is the one of its name, and not a rotated log.
    fn is_in_place(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|open| identity_at(&self.path) == Some(identity(&open)))
    }

    fn open(&self) -> Result<File, Failure> {
        self.check_kind()?;
        let opening = |error: &io::Error| self.failure("opening", error);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&self.path)
            .map_err(|error| opening(&error))?;
        let metadata = file.metadata().map_err(|error| opening(&error))?;
        self.check(&metadata)?;
        self.lock(&file)?;
        if !self.is_in_place(&file) {
            return Err(self.refusal("was replaced while it was opened"));
        }
        match tail::look(&mut file).map_err(|error| self.failure("reading the end of", &error))? {
            Ending::Whole => {}
            Ending::Half(end) => {
                file.set_len(end).map_err(|error| self.failure("cutting the half line off", &error))?;
            }
            Ending::Foreign => {
                file.write_all(b"\n").map_err(|error| self.failure("ending the last line of", &error))?
            }
            Ending::Database => {
                return Err(self.refusal(DATABASE));
            }
        }
        if metadata.len() == 0 {
            sync_directory(&self.path).map_err(|error| opening(&error))?;
        }
        Ok(file)
    }

    /// Before it is opened: to open a pipe waits for its other end, or wakes it.
    fn check_kind(&self) -> Result<(), Failure> {
        std::fs::metadata(&self.path).map_or(Ok(()), |metadata| self.check(&metadata))
    }

    fn check(&self, metadata: &Metadata) -> Result<(), Failure> {
        check_kind(metadata).map_err(|reason| self.refusal(&reason))
    }

    fn lock(&self, file: &File) -> Result<(), Failure> {
        match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::new(Class::Transient, format!("another relay writes to {}", self.path.display())))
            }
            Err(TryLockError::Error(error)) => Err(self.failure("locking", &error)),
        }
    }

    /// Makes nothing and changes nothing.
    fn probe(&self) -> Result<(), Failure> {
        if self.file.as_ref().is_some_and(|file| self.is_in_place(file)) {
            return Ok(());
        }
        self.check_kind()?;
        match OpenOptions::new().read(true).append(true).open(&self.path) {
            Ok(mut file) => {
                self.lock(&file)?;
                match tail::is_database(&mut file) {
                    Ok(false) => Ok(()),
                    Ok(true) => Err(self.refusal(DATABASE)),
                    Err(error) => Err(self.failure("reading", &error)),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory(&self.path).is_dir() => Ok(()),
            Err(error) => Err(self.failure("opening", &error)),
        }
    }

    /// Never counted: another file, or another configuration, takes what waits.
    fn refusal(&self, reason: &str) -> Failure {
        Failure::new(Class::Transient, format!("{} {reason}", self.path.display()))
    }

    fn failure(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::new(Class::Transient, format!("{doing} {}: {error}", self.path.display()))
    }
}

const DATABASE: &str = "is a SQLite database, and no file of lines; write sqlite:FILE to fill a table in it";

/// Why lines can't be written to what stands at `path`, if anything does.
pub(crate) fn check_place(path: &Path) -> Result<(), String> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    check_kind(&metadata)?;
    match File::open(path).map(|mut file| tail::is_database(&mut file)) {
        Ok(Ok(true)) => Err(DATABASE.to_owned()),
        // What can't be read now is said by the first use.
        _ => Ok(()),
    }
}

/// Why lines are not written to what this describes: only a regular file is known to keep them.
fn check_kind(metadata: &Metadata) -> Result<(), String> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let what = if kind.is_dir() { "a directory" } else { special(kind) };
    Err(format!("is {what}, and no file that keeps what is written to it; for a pipe or a terminal write stdout:"))
}

#[cfg(unix)]
fn special(kind: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match kind {
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn special(_: std::fs::FileType) -> &'static str {
    "a device"
}

/// Writes and syncs the lines, or cuts off what it has written of them.
fn append(file: &mut File, batch: &[Message]) -> io::Result<()> {
    let length = file.metadata()?.len();
    let written = write(file, batch);
    if written.is_err() {
        // Where even that fails the next use does it.
        let _ = file.set_len(length);
    }
    written
}

fn write(file: &mut File, batch: &[Message]) -> io::Result<()> {
    for piece in pieces(batch) {
        file.write_all(&piece.text)?;
    }
    file.sync_data()
}

/// A new file's name is as durable as its lines.
fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory(path))?.sync_all() } else { Ok(()) }
}
