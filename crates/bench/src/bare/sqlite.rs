//! SQLite by hand: the second INSERT, and the loop of one thread that reads, writes lines and marks.

use std::{io::Write as _, path::Path};

use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::Result;

const PAGE: usize = 500;

/// The table that a second INSERT needs, and nothing more.
pub(crate) const TABLE: &str = "CREATE TABLE bare (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, type TEXT NOT NULL, \
    headers TEXT NOT NULL, content_type TEXT NOT NULL, created_at INTEGER NOT NULL, \
    status TEXT NOT NULL DEFAULT 'pending', published_at INTEGER, body BLOB)";

pub(crate) fn insert(connection: &Connection, body: &[u8]) -> Result<()> {
    let sql = "INSERT INTO bare (id, type, headers, content_type, created_at, body) \
               VALUES (?1, 'order.placed', '{}', 'application/json', unixepoch(), ?2)";
    connection.prepare_cached(sql)?.execute(params![Uuid::now_v7().to_string(), body])?;
    Ok(())
}

/// Drains the table into a file.
pub(crate) fn drain(connection: &mut Connection, path: &Path) -> Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut last = 0;
    loop {
        let page = page(connection, last)?;
        let Some((seq, _)) = page.last() else { return Ok(()) };
        let first = std::mem::replace(&mut last, *seq);
        let mut lines = Vec::new();
        for (_, body) in &page {
            lines.extend_from_slice(body);
            lines.push(b'\n');
        }
        file.write_all(&lines)?;
        file.sync_data()?;
        let mark = "UPDATE bare SET status = 'published', published_at = unixepoch() WHERE seq > ?1 AND seq <= ?2";
        connection.prepare_cached(mark)?.execute([first, last])?;
    }
}

fn page(connection: &Connection, after: i64) -> rusqlite::Result<Vec<(i64, Vec<u8>)>> {
    let sql = format!("SELECT seq, body FROM bare WHERE seq > ?1 AND status = 'pending' ORDER BY seq LIMIT {PAGE}");
    let mut read = connection.prepare_cached(&sql)?;
    read.query_map([after], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
