//! How a file of lines ends, as it was found.
//!
//! A half line is cut off only where it is plain that we wrote it, or that a crash left it: whatever
//! else stands in the file is its owner's.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
};

use crate::lines::BEGINNING;

const BLOCK: u64 = 64 << 10;
const DATABASE_HEADER: &[u8] = b"SQLite format 3\0";

/// What stands at the end of a file.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Nothing, or a line with its end.
    Whole,
    /// The half of one of our lines, or the NUL bytes that a file system leaves where it lost power;
    /// the file is whole up to here.
    Half(u64),
    /// A line of somebody else's without its end.
    Foreign,
    /// The file is no file of lines but a SQLite database.
    Database,
}

/// Looks at the beginning and the end of `file`; changes nothing but its position.
///
/// # Errors
/// The file can't be read.
pub(crate) fn look(file: &mut File) -> io::Result<Ending> {
    if is_database(file)? {
        return Ok(Ending::Database);
    }
    let length = file.seek(SeekFrom::End(0))?;
    let (mut start, mut only_nul) = (length, true);
    while start > 0 {
        let from = start.saturating_sub(BLOCK);
        let block = read(file, from, start - from)?;
        let line_end = block.iter().rposition(|byte| *byte == b'\n');
        let last_line = line_end.map_or(&block[..], |at| &block[at + 1..]);
        only_nul &= last_line.iter().all(|byte| *byte == 0);
        start -= last_line.len() as u64;
        if line_end.is_some() {
            break;
        }
    }
    if start == length {
        return Ok(Ending::Whole);
    }
    let begins = read(file, start, (length - start).min(BEGINNING.len() as u64))?;
    let is_ours = BEGINNING.starts_with(&begins);
    Ok(if is_ours || only_nul { Ending::Half(start) } else { Ending::Foreign })
}

/// Whether `file` is a SQLite database.
///
/// # Errors
/// The file can't be read.
pub(crate) fn is_database(file: &mut File) -> io::Result<bool> {
    Ok(read(file, 0, DATABASE_HEADER.len() as u64)? == DATABASE_HEADER)
}

fn read(file: &mut File, from: u64, length: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}
