//! `enqueue --ndjson`: lines in, ids out, batch by batch.
//!
//! A batch is written in one transaction, so that a bad line leaves nothing of its batch behind.
//! Only one batch is held in memory. A reader of the ids that goes away stops nothing.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal as _, Read as _},
    path::Path,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use posthaste_core::{
    ErrorKind, Event,
    event::Limits,
    port::{EnqueueError, Enqueued, Store},
};

use super::enqueue::{id_line, warn_of_priority};
use crate::{
    exit::{Done, Fault},
    ndjson,
    output::Out,
};

/// Most lines of a batch.
const LINES: usize = 1_000;
/// A batch ends once its bodies have this many bytes.
const BYTES: usize = 8 << 20;
/// What a line may have beyond twice its body: base64 takes a third more, the rest are small texts.
const LINE_ALLOWANCE: u64 = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Enqueues all lines.
pub async fn run(mut lines: Lines, store: &dyn Store, out: &mut Out) -> Result<Done, Fault> {
    let mut progress = Progress::new(lines.size);
    let mut ids = Ids { out, closed: false };
    let (mut written, mut warned) = (0, false);
    loop {
        let (read, returned) = read_batch(lines).await?;
        lines = returned;
        let batch = read.map_err(|error| bad_line(&error, written))?;
        if batch.events.is_empty() {
            break;
        }
        if !warned && batch.events.iter().any(|event| event.priority != 0) {
            warn_of_priority();
            warned = true;
        }
        let enqueued = store.produce(&batch.events).await.map_err(|error| not_written(error, &batch, written))?;
        written = batch.last_line();
        ids.write(&enqueued)?;
        progress.advance(lines.bytes, written);
    }
    Ok(Done::Clean)
}

/// Reading blocks, above all from a pipe, so a thread for such work does it.
async fn read_batch(mut lines: Lines) -> Result<(Result<Batch, BadLine>, Lines), Fault> {
    let read = tokio::task::spawn_blocking(move || (lines.next_batch(), lines)).await;
    read.map_err(|error| Fault::failure(format!("reading lines: {error}")))
}

/// Events with the lines they stand on.
struct Batch {
    events: Vec<Event>,
    numbers: Vec<u64>,
}

impl Batch {
    fn last_line(&self) -> u64 {
        self.numbers.last().copied().unwrap_or(0)
    }
}

/// A line that can't be used.
struct BadLine {
    number: u64,
    error: String,
}

/// Lines of a file or of stdin, each an event.
pub struct Lines {
    reader: Box<dyn BufRead + Send>,
    limits: Limits,
    number: u64,
    bytes: u64,
    size: Option<u64>,
}

impl Lines {
    /// The lines of the file at `path`, or of stdin for `-`.
    pub fn open(path: &Path, limits: Limits) -> Result<Lines, Fault> {
        let (reader, size): (Box<dyn BufRead + Send>, _) = if path == Path::new("-") {
            (Box::new(BufReader::new(io::stdin())), None)
        } else {
            let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
            let (metadata, file) = opened.map_err(|error| Fault::usage(format!("{}: {error}", path.display())))?;
            (Box::new(BufReader::with_capacity(1 << 16, file)), metadata.is_file().then_some(metadata.len()))
        };
        Ok(Lines { reader, limits, number: 0, bytes: 0, size })
    }

    fn next_batch(&mut self) -> Result<Batch, BadLine> {
        let mut batch = Batch { events: Vec::new(), numbers: Vec::new() };
        let (mut line, mut bytes) = (Vec::new(), 0);
        while batch.events.len() < LINES && bytes < BYTES && self.next_line(&mut line)? {
            let event = self.event(&line).map_err(|error| self.bad(error))?;
            bytes += event.body.as_ref().map_or(0, |body| body.len());
            batch.events.push(event);
            batch.numbers.push(self.number);
        }
        Ok(batch)
    }

    fn event(&self, line: &[u8]) -> Result<Event, String> {
        let event = ndjson::parse(line)?;
        event.check(self.limits).map_err(|error| error.to_string())?;
        Ok(event)
    }

    /// Reads the next line that is not blank; answers whether there is one.
    fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool, BadLine> {
        let most = 2 * self.limits.max_body as u64 + LINE_ALLOWANCE;
        loop {
            line.clear();
            let read = self.reader.by_ref().take(most).read_until(b'\n', line);
            self.number += 1;
            let read = read.map_err(|error| self.bad(format!("reading: {error}")))? as u64;
            self.bytes += read;
            if read == 0 {
                return Ok(false);
            }
            // Some editors put a byte order mark there.
            if self.number == 1 && line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
            }
            if read == most && line.last() != Some(&b'\n') {
                return Err(self.bad(format!("longer than {most} bytes; outbox.max_body is {}", self.limits.max_body)));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(true);
            }
        }
    }

    fn bad(&self, error: String) -> BadLine {
        BadLine { number: self.number, error }
    }
}

fn bad_line(bad: &BadLine, written: u64) -> Fault {
    Fault::usage(format!("line {}: {}; {}", bad.number, bad.error, what_is_written(written)))
}

fn not_written(error: EnqueueError, batch: &Batch, written: u64) -> Fault {
    let unsure = matches!(&error, EnqueueError::Store(error) if error.kind() == ErrorKind::Unavailable);
    let line = match &error {
        EnqueueError::Event { index, .. } | EnqueueError::Conflict { index, .. } => batch.numbers.get(*index).copied(),
        EnqueueError::Store(_) => None,
    };
    let mut said = what_is_written(written);
    if unsure {
        said.push_str(&format!(", lines {}-{} may be", written + 1, batch.last_line()));
    }
    let place = line.map_or_else(|| said.clone(), |line| format!("line {line}; {said}"));
    Fault::from(error).context(&place)
}

fn what_is_written(written: u64) -> String {
    if written == 0 { "nothing was written".to_owned() } else { format!("lines 1-{written} are written") }
}

/// Ids go out batch by batch. A closed pipe ends that, and nothing else: what was asked for is that
/// the lines are enqueued.
struct Ids<'a> {
    out: &'a mut Out,
    closed: bool,
}

impl Ids<'_> {
    fn write(&mut self, enqueued: &[Enqueued]) -> Result<(), Fault> {
        if self.closed {
            return Ok(());
        }
        let mut rows = enqueued.iter();
        match rows.try_for_each(|row| self.out.line(&id_line(row))).and_then(|()| self.out.flush()) {
            Err(Fault::ClosedPipe) => {
                self.closed = true;
                Ok(())
            }
            other => other,
        }
    }
}

/// A progress bar on a terminal, for what takes over a second.
struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Progress {
    fn new(size: Option<u64>) -> Progress {
        let template = if size.is_some() {
            "{bar:30} {bytes}/{total_bytes}, {msg} lines, {eta} left"
        } else {
            "{spinner} {msg} lines, {bytes}"
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::hidden()).with_style(style);
        Progress { bar, started: Instant::now(), shown: false }
    }

    fn advance(&mut self, bytes: u64, lines: u64) {
        if !self.shown && self.started.elapsed() > Duration::from_secs(1) && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_message(lines.to_string());
        self.bar.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, max_body: usize) -> Lines {
        let reader = Box::new(io::Cursor::new(text.as_bytes().to_vec()));
        Lines { reader, limits: Limits { max_body }, number: 0, bytes: 0, size: None }
    }

    const LINE: &str = "{\"type\":\"t\",\"body\":1}\n";

    #[test]
    fn batches_are_bounded_and_blank_lines_count_but_say_nothing() {
        let mut lines = lines(&format!("\n{}\r\n \n{}", LINE.repeat(1_200), LINE.trim_end()), 100);
        let (first, second, third) = (lines.next_batch(), lines.next_batch(), lines.next_batch());
        let sizes = [first, second, third].map(|batch| {
            let batch = batch.ok().unwrap();
            (batch.events.len(), batch.last_line())
        });
        assert_eq!(sizes, [(1_000, 1_001), (201, 1_204), (0, 0)]);
    }

    #[test]
    fn a_batch_ends_at_its_byte_bound() {
        let big = format!("{{\"type\":\"t\",\"body\":\"{}\"}}\n", "x".repeat(BYTES / 2));
        let mut lines = lines(&big.repeat(5), BYTES);
        let sizes: Vec<usize> = (0..4).map(|_| lines.next_batch().ok().unwrap().events.len()).collect();
        assert_eq!(sizes, [2, 2, 1, 0]);
    }

    #[test]
    fn rows_r14_a_line_without_end_is_refused_without_being_read_whole() {
        let mut lines = lines(&"x".repeat(4 << 20), 1_000);
        let bad = lines.next_batch().err().unwrap();
        assert!(bad.number == 1 && bad.error.contains("longer than"), "{}", bad.error);
        assert!(lines.bytes < 2 << 20);
    }

    #[test]
    fn what_is_written_is_said() {
        let bad = BadLine { number: 4, error: "not JSON".to_owned() };
        let Fault::Failed { code, error, .. } = bad_line(&bad, 0) else { panic!() };
        assert_eq!((code, error.as_str()), (2, "line 4: not JSON; nothing was written"));
        let Fault::Failed { error, .. } = bad_line(&bad, 3_000) else { panic!() };
        assert_eq!(error, "line 4: not JSON; lines 1-3000 are written");
        let batch = Batch { events: vec![], numbers: vec![1_001, 1_003] };
        let lost = EnqueueError::Store(posthaste_core::Error::new(ErrorKind::Unavailable, "enqueueing"));
        let Fault::Failed { code, error, .. } = not_written(lost, &batch, 1_000) else { panic!() };
        assert_eq!((code, error.as_str()), (3, "lines 1-1000 are written, lines 1001-1003 may be: enqueueing"));
    }
}
