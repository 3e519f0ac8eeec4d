//! Targets on this machine: lines on standard output, lines in a file, rows in a SQLite file.
//!
//! A line is written whole or not at all, and what is answered with `Ok` is on the disk (or with
//! the reader of standard output). A message id that the SQLite file has already is not added again.

mod file;
mod lines;
mod stdout;
mod table;
mod tail;
mod thread;

use std::{path::Path, sync::Arc};

use posthaste_core::{
    AddressTemplate,
    file_url::file_path,
    options::{ConfigError, Options},
    port::{Target, Transport, TransportCapabilities},
};

/// The detail of the failure that says that nobody reads standard output any more: the end of a
/// command in a pipe, and no fault.
pub const STDOUT_CLOSED: &str = "stdout is closed";

/// What all of them can do: each is one sequence of writes.
const CAPABILITIES: TransportCapabilities = TransportCapabilities { max_batch: 1000, concurrency: 1, max_body: None };

/// The target of a URL: `stdout:`, `file:PATH` or `sqlite:FILE`. Does no I/O.
///
/// # Errors
/// Another scheme, a path that can't be used, an option (there are none).
pub fn parse(url: &str, options: Options) -> Result<Target, ConfigError> {
    let bad = |detail: &str| ConfigError::Url { url: url.to_owned(), detail: detail.to_owned() };
    let transport: Arc<dyn Transport> = match url.split_once(':') {
        Some(("stdout", "")) => Arc::new(stdout::Stdout::new()),
        Some(("stdout", _)) => return Err(bad("write stdout: with nothing after it")),
        Some(("file", _)) => Arc::new(file::LineFile::new(file_path(url, "file")?)),
        Some(("sqlite", ":memory:")) => return Err(bad("a delivery table needs a file: sqlite:FILE")),
        Some(("sqlite", _)) => Arc::new(table::Table::new(file_path(url, "sqlite")?)),
        _ => return Err(bad("not a target of this machine: stdout:, file:PATH or sqlite:FILE")),
    };
    options.finish(&[])?;
    Ok(Target { label: url.to_owned(), address: AddressTemplate::default(), transport })
}

/// Looks at what `url` names, as it is now: a target that never could take a message is better
/// refused at the start than met by the first event. What is missing may still come, and passes.
/// URLs of other kinds pass as well. Changes nothing.
///
/// # Errors
/// A `file:` that is no regular file or a SQLite database; a `sqlite:` that is a directory; a `stdout:` that is
/// closed.
pub fn check_place(url: &str) -> Result<(), ConfigError> {
    let checked = match url.split_once(':') {
        Some(("stdout", "")) => stdout::check_open(),
        Some(("file", _)) => file::check_place(&file_path(url, "file")?),
        Some(("sqlite", _)) if file_path(url, "sqlite")?.is_dir() => {
            Err("is a directory; name a file in it: sqlite:DIRECTORY/delivered.db".to_owned())
        }
        _ => Ok(()),
    };
    checked.map_err(|detail| ConfigError::Url { url: url.to_owned(), detail })
}

/// The directory that must be there for `path` to be made.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Tells a file from another that took its name.
type Identity = (u64, u64);

/// The identity of the file at `path`, if there is one.
fn identity_at(path: &Path) -> Option<Identity> {
    std::fs::metadata(path).ok().map(|metadata| identity(&metadata))
}

#[cfg(unix)]
fn identity(metadata: &std::fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

/// Elsewhere an open file can't be replaced.
#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> Identity {
    (0, 0)
}

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
