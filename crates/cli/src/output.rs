//! What goes to stdout: JSON objects one a line, and tables.
//!
//! Everything is written through [`Out`], which answers a closed pipe with a fault that ends the
//! command quietly; nothing here uses the print macros, which panic then.

use std::io::{self, BufWriter, Write};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use posthaste_core::{
    Body, LANES, OutboxName, Row,
    event::is_json,
    port::{OutboxStatus, RelayInfo},
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::exit::Fault;

/// Stdout, buffered.
pub struct Out(BufWriter<Box<dyn Write + Send>>);

impl Out {
    /// The stdout of this process.
    pub fn stdout() -> Out {
        Out(BufWriter::new(Box::new(io::stdout())))
    }

    /// Writes a line.
    pub fn line(&mut self, text: &str) -> Result<(), Fault> {
        self.0.write_all(text.as_bytes())?;
        Ok(self.0.write_all(b"\n")?)
    }

    /// Writes a value as compact JSON on a line of its own.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Fault> {
        serde_json::to_writer(&mut self.0, value).map_err(io::Error::from)?;
        Ok(self.0.write_all(b"\n")?)
    }

    /// Hands over what has been written so far.
    pub fn flush(&mut self) -> Result<(), Fault> {
        Ok(self.0.flush()?)
    }
}

/// A row as `list --json` shows it.
#[derive(Serialize)]
pub struct RowJson<'a> {
    id: String,
    lane: u8,
    r#type: &'a str,
    key: Option<&'a str>,
    tenant: Option<&'a str>,
    priority: i32,
    status: &'static str,
    attempts: u32,
    due_at: String,
    created_at: String,
    published_at: Option<String>,
    last_error: Option<&'a str>,
}

impl<'a> From<&'a Row> for RowJson<'a> {
    fn from(row: &'a Row) -> RowJson<'a> {
        RowJson {
            id: row.id.to_string(),
            lane: row.lane.number(),
            r#type: &row.event_type,
            key: row.key.as_deref(),
            tenant: row.tenant.as_deref(),
            priority: row.priority,
            status: row.status.as_str(),
            attempts: row.attempts,
            due_at: row.due_at.to_string(),
            created_at: row.created_at.to_string(),
            published_at: row.published_at.map(|time| time.to_string()),
            last_error: row.last_error.as_deref(),
        }
    }
}

/// A row as `show --json` shows it. A JSON body without line breaks stands as it is, byte for byte.
#[derive(Serialize)]
struct WholeRowJson<'a> {
    #[serde(flatten)]
    row: RowJson<'a>,
    headers: &'a std::collections::BTreeMap<String, String>,
    content_type: &'a str,
    outstanding: Option<Vec<&'a str>>,
    defect: Option<&'a str>,
}

/// The body of a row in JSON: `body` or `body_base64`, the latter `null` for a NULL body.
pub fn body_member(row: &Row) -> String {
    match &row.body {
        Body::Bytes(bytes) => match verbatim(&row.content_type, bytes) {
            Some(json) => format!("\"body\":{}", json.get()),
            None => format!("\"body_base64\":\"{}\"", STANDARD.encode(bytes)),
        },
        Body::Null => "\"body_base64\":null".to_owned(),
        Body::TooLarge(size) => format!("\"body_size\":{size}"),
    }
}

fn verbatim<'a>(content_type: &str, bytes: &'a Bytes) -> Option<&'a RawValue> {
    let one_line = !bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    if is_json(content_type) && one_line { serde_json::from_slice(bytes).ok() } else { None }
}

/// A row with everything in it, as one JSON object on one line.
pub fn whole_row(row: &Row) -> Result<String, Fault> {
    let whole = WholeRowJson {
        row: RowJson::from(row),
        headers: &row.headers,
        content_type: &row.content_type,
        outstanding: row.outstanding.as_ref().map(|keys| keys.iter().map(|key| key.as_str()).collect()),
        defect: row.defect.as_deref(),
    };
    let mut text = serde_json::to_string(&whole).map_err(io::Error::from)?;
    // The body is put in as text: a serializer that buffers would read its numbers.
    text.pop();
    Ok(format!("{text},{}}}", body_member(row)))
}

/// An outbox as `status --json` shows it.
#[derive(Serialize)]
pub struct StatusJson<'a> {
    outbox: String,
    pending: u64,
    processing: u64,
    failed: u64,
    published: u64,
    invalid: u64,
    oldest_pending_seconds: Option<f64>,
    lanes_owned: u32,
    lanes_unowned: u32,
    relays: Vec<RelayJson<'a>>,
    deferred_types: &'a [String],
    published_is_estimate: bool,
}

#[derive(Serialize)]
struct RelayJson<'a> {
    name: &'a str,
    lanes: u32,
    expires_in_seconds: Option<f64>,
}

impl<'a> StatusJson<'a> {
    /// The status of the outbox called `outbox`.
    pub fn new(outbox: &OutboxName, status: &'a OutboxStatus) -> StatusJson<'a> {
        let owned = lanes_owned(&status.relays);
        StatusJson {
            outbox: outbox.to_string(),
            pending: status.pending,
            processing: status.processing,
            failed: status.failed,
            published: status.published,
            invalid: status.invalid,
            oldest_pending_seconds: status.oldest_pending.map(seconds),
            lanes_owned: owned,
            lanes_unowned: u32::from(LANES) - owned,
            relays: status.relays.iter().map(RelayJson::from).collect(),
            deferred_types: &status.deferred_types,
            published_is_estimate: status.published_is_estimate,
        }
    }
}

impl<'a> From<&'a RelayInfo> for RelayJson<'a> {
    fn from(relay: &'a RelayInfo) -> RelayJson<'a> {
        RelayJson { name: &relay.name, lanes: relay.lanes, expires_in_seconds: relay.expires_in.map(seconds) }
    }
}

/// How many lanes are owned by any of `relays`.
pub fn lanes_owned(relays: &[RelayInfo]) -> u32 {
    relays.iter().map(|relay| relay.lanes).sum::<u32>().min(u32::from(LANES))
}

fn seconds(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

/// Columns with a heading, each as wide as its widest cell, the last one ragged.
pub struct Table {
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Table {
        let mut table = Table { widths: vec![0; headings.len()], rows: Vec::new() };
        table.row(headings.iter().map(|heading| (*heading).to_owned()));
        table
    }

    /// Adds a row. Control characters are shown, not sent to the terminal.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| printable(&cell)).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// Writes the rows added so far and forgets them; widths are kept.
    pub fn write(&mut self, out: &mut Out) -> Result<(), Fault> {
        for row in self.rows.drain(..) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&self.widths) {
                line.push_str(&format!("{cell:width$}  "));
            }
            out.line(line.trim_end())?;
        }
        Ok(())
    }
}

/// `text` without characters that a terminal would act on.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
