//! `file:PATH`: one CloudEvents JSON object a line, appended and synced before it is confirmed.
//!
//! The file ends with a whole line: a half one, left by a crash, is cut off when the file is first
//! used, and what a failed write leaves is cut off at once. A lock keeps a second relay out.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    Class, Failure, Message,
    port::{Transport, TransportCapabilities},
};

use crate::{CAPABILITIES, directory, identity, identity_at, lines::pieces, thread::OwnThread};

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
        let opening = |error: &io::Error| self.failure("opening", error);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&self.path)
            .map_err(|error| opening(&error))?;
        self.lock(&file)?;
        if !self.is_in_place(&file) {
            return Err(Failure::new(
                Class::Transient,
                format!("{} was replaced while it was opened", self.path.display()),
            ));
        }
        let metadata = file.metadata().map_err(|error| opening(&error))?;
        if metadata.is_file() {
            cut_half_line(&mut file).map_err(|error| self.failure("cutting the half line off", &error))?;
            if metadata.len() == 0 {
                sync_directory(&self.path).map_err(|error| opening(&error))?;
            }
        }
        Ok(file)
    }

    /// A device may have many writers.
    fn lock(&self, file: &File) -> Result<(), Failure> {
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Ok(());
        }
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
        match OpenOptions::new().append(true).open(&self.path) {
            Ok(file) => self.lock(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory(&self.path).is_dir() => Ok(()),
            Err(error) => Err(self.failure("opening", &error)),
        }
    }

    fn failure(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::new(Class::Transient, format!("{doing} {}: {error}", self.path.display()))
    }
}

/// Writes and syncs the lines, or cuts off what it has written of them.
fn append(file: &mut File, batch: &[Message]) -> io::Result<()> {
    let metadata = file.metadata()?;
    let written = write(file, batch, metadata.is_file());
    if written.is_err() && metadata.is_file() {
        // Where even that fails the next use does it.
        let _ = file.set_len(metadata.len());
    }
    written
}

fn write(file: &mut File, batch: &[Message], is_regular: bool) -> io::Result<()> {
    for piece in pieces(batch) {
        file.write_all(&piece.text)?;
    }
    // A device has nothing to sync.
    if is_regular { file.sync_data() } else { Ok(()) }
}

/// Cuts the file off after its last line end.
fn cut_half_line(file: &mut File) -> io::Result<()> {
    const BLOCK: u64 = 64 << 10;
    let length = file.seek(SeekFrom::End(0))?;
    let mut end = length;
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        file.take(end - start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            end = start + at as u64 + 1;
            break;
        }
        end = start;
    }
    if end == length { Ok(()) } else { file.set_len(end) }
}

/// A new file's name is as durable as its lines.
fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory(path))?.sync_all() } else { Ok(()) }
}
