//! `stdout:`: one CloudEvents JSON object a line, for whatever reads the process's output.
//!
//! `Ok` means that the reader's end of the pipe has the line. A line that was cut by an error is
//! completed before anything else is written.

use std::{
    io::{self, Write},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    Class, Failure, Message,
    port::{Transport, TransportCapabilities},
};

use crate::{
    CAPABILITIES, STDOUT_CLOSED,
    lines::{Piece, pieces},
    thread::OwnThread,
};

/// Between tries of an output that another process has made non-blocking.
const PATIENCE: Duration = Duration::from_millis(2);

/// Writes lines to standard output.
pub(crate) struct Stdout {
    thread: OwnThread<Output>,
}

struct Output {
    sink: Box<dyn Write + Send>,
    /// Whether what is written there gets anywhere.
    check: fn() -> Result<(), String>,
    /// What is left of a line that was cut.
    rest: Vec<u8>,
}

impl Stdout {
    pub fn new() -> Stdout {
        Stdout::to(Box::new(io::stdout()), check_open)
    }

    fn to(sink: Box<dyn Write + Send>, check: fn() -> Result<(), String>) -> Stdout {
        Stdout { thread: OwnThread::new(Output { sink, check, rest: Vec::new() }) }
    }
}

#[async_trait]
impl Transport for Stdout {
    fn capabilities(&self) -> TransportCapabilities {
        CAPABILITIES
    }

    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>> {
        let count = batch.len();
        match self.thread.run(deadline, move |output| output.publish(&batch)).await {
            Ok(answers) => answers,
            Err(failure) => vec![Err(failure); count],
        }
    }

    /// Whether nobody reads a pipe shows only when it is written to.
    async fn probe(&self, deadline: Duration) -> Result<(), Failure> {
        self.thread.run(deadline, |output| output.check()).await?
    }

    async fn close(&self) {}
}

impl Output {
    fn check(&self) -> Result<(), Failure> {
        (self.check)().map_err(|reason| Failure::new(Class::Transient, format!("stdout {reason}")))
    }

    fn publish(&mut self, batch: &[Message]) -> Vec<Result<(), Failure>> {
        if let Err(failure) = self.check() {
            return vec![Err(failure); batch.len()];
        }
        let mut answers = Vec::with_capacity(batch.len());
        let mut failed = self.complete().err();
        for piece in pieces(batch) {
            if failed.is_none() {
                let (written, error) = self.write(&piece.text);
                answers.extend(piece.ends.iter().filter(|end| **end <= written).map(|_| Ok(())));
                self.rest = rest_of_line(&piece, written);
                failed = error;
            }
            if failed.is_some() {
                break;
            }
        }
        if let Some(error) = failed {
            answers.resize_with(batch.len(), || Err(failure(&error)));
        }
        answers
    }

    fn complete(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.rest);
        let (written, error) = self.write(&rest);
        self.rest = rest[written..].to_vec();
        error.map_or(Ok(()), Err)
    }

    /// How many bytes were written, and why not all.
    fn write(&mut self, text: &[u8]) -> (usize, Option<io::Error>) {
        let mut written = 0;
        while written < text.len() {
            match self.sink.write(&text[written..]) {
                Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PATIENCE),
                Err(error) => return (written, Some(error)),
            }
        }
        (written, self.flush().err())
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            match self.sink.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PATIENCE),
                done => return done,
            }
        }
    }
}

/// What is left of the line in which `written` lies; nothing if a line ends there.
fn rest_of_line(piece: &Piece, written: usize) -> Vec<u8> {
    let begun = written > 0 && !piece.ends.contains(&written);
    match piece.ends.iter().find(|end| **end >= written) {
        Some(end) if begun => piece.text[written..*end].to_vec(),
        _ => Vec::new(),
    }
}

fn failure(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::new(Class::Transient, STDOUT_CLOSED);
    }
    Failure::new(Class::Transient, format!("writing to stdout: {error}"))
}

/// Why what is written to standard output gets nowhere.
///
/// Where the process was started without one, the runtime opens the null device in its place, for
/// reading as well. A redirection to it opens it for writing only, and is somebody's wish.
///
/// # Errors
/// Standard output is closed.
#[cfg(unix)]
pub(crate) fn check_open() -> Result<(), String> {
    use std::{
        fs::File,
        io::Read as _,
        os::{
            fd::AsFd as _,
            unix::fs::{FileTypeExt as _, MetadataExt as _},
        },
    };
    let closed = "is closed, and every event would be lost; give it a reader, or write >/dev/null to throw events away";
    let Ok(mut output) = io::stdout().as_fd().try_clone_to_owned().map(File::from) else {
        return Err(closed.to_owned());
    };
    let (Ok(metadata), Ok(null)) = (output.metadata(), std::fs::metadata("/dev/null")) else { return Ok(()) };
    let is_null = metadata.file_type().is_char_device() && metadata.rdev() == null.rdev();
    if is_null && output.read(&mut [0]).is_ok() { Err(closed.to_owned()) } else { Ok(()) }
}

#[cfg(not(unix))]
pub(crate) fn check_open() -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::common::{DEADLINE, text};

    /// Takes so many bytes, then fails once, then takes the rest.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<SinkState>>);

    #[derive(Default)]
    struct SinkState {
        taken: Vec<u8>,
        fail_at: Option<(usize, io::ErrorKind)>,
    }

    impl Write for Sink {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let mut state = self.0.lock().unwrap();
            let room = match state.fail_at {
                Some((at, kind)) if state.taken.len() == at => {
                    state.fail_at = None;
                    return Err(kind.into());
                }
                Some((at, _)) => at - state.taken.len(),
                None => usize::MAX,
            };
            let count = text.len().min(room);
            state.taken.extend_from_slice(&text[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn failing(at: usize, kind: io::ErrorKind) -> (Sink, Stdout) {
        let sink = Sink::default();
        sink.0.lock().unwrap().fail_at = Some((at, kind));
        (sink.clone(), Stdout::to(Box::new(sink), || Ok(())))
    }

    fn lines(sink: &Sink) -> Vec<serde_json::Value> {
        let text = String::from_utf8(sink.0.lock().unwrap().taken.clone()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_line_that_was_cut_is_completed_before_the_next() {
        for at in [0, 1, 100, 5_000, 10_000] {
            let (sink, stdout) = failing(at, io::ErrorKind::StorageFull);
            let batch: Vec<Message> = (0..3).map(|_| text(&"x".repeat(2_000))).collect();
            let answers = stdout.publish(batch, DEADLINE).await;
            let confirmed = answers.iter().filter(|answer| answer.is_ok()).count();
            assert!(stdout.publish(vec![text("next")], DEADLINE).await[0].is_ok());
            let lines = lines(&sink);
            assert!(lines.len() > confirmed, "{at}: {confirmed} of {lines:?}");
        }
    }

    #[tokio::test]
    async fn only_whole_lines_are_confirmed() {
        let batch: Vec<Message> = (0..3).map(|n| text(&n.to_string())).collect();
        let first = posthaste_core::cloudevents::json_line(&batch[0]).len() + 1;
        for (room, confirmed) in [(first - 1, 0), (first, 1), (first + 1, 1)] {
            let (_, stdout) = failing(room, io::ErrorKind::StorageFull);
            let answers = stdout.publish(batch.clone(), DEADLINE).await;
            assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), confirmed);
            assert!(answers.len() == 3 && answers[..confirmed].iter().all(Result::is_ok));
        }
    }

    #[tokio::test]
    async fn a_closed_pipe_is_told_from_a_fault() {
        let (_, stdout) = failing(0, io::ErrorKind::BrokenPipe);
        let failure = stdout.publish(vec![text("a")], DEADLINE).await.remove(0).unwrap_err();
        assert_eq!(failure.detail, STDOUT_CLOSED);
    }

    #[tokio::test]
    async fn an_output_that_is_not_ready_is_waited_for() {
        let (sink, stdout) = failing(10, io::ErrorKind::WouldBlock);
        assert!(stdout.publish(vec![text("a")], DEADLINE).await[0].is_ok());
        assert_eq!(lines(&sink).len(), 1);
    }

    #[tokio::test]
    async fn port_p9_a_reader_that_stalls_is_answered_for_at_the_deadline() {
        let (mut reader, writer) = io::pipe().unwrap();
        let stdout = Stdout::to(Box::new(writer), || Ok(()));
        let big = text(&"x".repeat(1 << 20));
        let failure = stdout.publish(vec![big], Duration::from_millis(50)).await.remove(0).unwrap_err();
        assert_eq!(failure.outcome, posthaste_core::failure::Outcome::NoAnswer);
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            io::Read::read_to_string(&mut reader, &mut text).unwrap();
            text
        });
        assert!(stdout.publish(vec![text("next")], DEADLINE).await[0].is_ok());
        drop(stdout);
        let text = reading.join().unwrap();
        assert_eq!(text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).count(), 2);
    }
}
