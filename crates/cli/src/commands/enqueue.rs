//! `enqueue`: one event in its own transaction, or a stream of them.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use posthaste_core::{Event, event::Limits, port::Enqueued};

use super::stream::{self, Lines};
use crate::{
    args::Enqueue,
    exit::{Done, Fault, say},
    ndjson::is_json_text,
    output::Out,
    setup::{IfEmpty, Setup},
};

pub async fn run(args: &Enqueue, out: &mut Out) -> Result<Done, Fault> {
    let setup = Setup::read(&args.at.place)?;
    let limits = setup.limits();
    if let Some(path) = &args.ndjson {
        let lines = Lines::open(path, limits)?;
        let store = setup.open_single(&args.at, IfEmpty::Make).await?;
        return stream::run(lines, store.as_ref(), out).await;
    }
    let event = event(args, limits)?;
    event.check(limits)?;
    if args.priority.is_some() {
        warn_of_priority();
    }
    let store = setup.open_single(&args.at, IfEmpty::Make).await?;
    for row in store.produce(&[event]).await? {
        out.line(&id_line(&row))?;
    }
    Ok(Done::Clean)
}

/// The id of a row as it is printed.
pub fn id_line(row: &Enqueued) -> String {
    if row.existing { format!("{} existing", row.id) } else { row.id.to_string() }
}

/// Says that a priority changes nothing.
pub fn warn_of_priority() {
    say("warning: the priority has no effect while lanes own rows; rows are delivered in the order they came");
}

fn event(args: &Enqueue, limits: Limits) -> Result<Event, Fault> {
    let body = match (&args.body, &args.file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => read(path, limits)?,
        (None, None) => return Err(Fault::usage("the body is missing").hint("give --body TEXT or --file FILE")),
    };
    let event_type = args.event_type.clone().unwrap_or_default();
    let content_type = args.content_type.clone().unwrap_or_else(|| guess(&body).to_owned());
    let mut event = Event::new(event_type, content_type, body);
    event.id = args.id;
    event.key.clone_from(&args.key);
    event.tenant.clone_from(&args.tenant);
    event.priority = args.priority.unwrap_or(0);
    event.delay = args.delay.unwrap_or_default();
    for (name, value) in &args.headers {
        if event.headers.insert(name.clone(), value.clone()).is_some() {
            return Err(Fault::usage(format!("header {name} is given twice")));
        }
    }
    Ok(event)
}

fn guess(body: &[u8]) -> &'static str {
    match std::str::from_utf8(body) {
        Ok(_) if is_json_text(body) => "application/json",
        Ok(_) => "text/plain; charset=utf-8",
        Err(_) => "application/octet-stream",
    }
}

/// Reads a body, and no more of it than shows that it is too large.
fn read(path: &Path, limits: Limits) -> Result<Vec<u8>, Fault> {
    let source: io::Result<Box<dyn Read>> = if path == Path::new("-") {
        Ok(Box::new(io::stdin()))
    } else {
        File::open(path).map(|file| Box::new(file) as _)
    };
    let mut body = Vec::new();
    let most = limits.max_body as u64 + 1;
    let read = source.and_then(|source| source.take(most).read_to_end(&mut body));
    read.map_err(|error| Fault::usage(format!("{}: {error}", path.display())))?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_39_a_body_is_json_if_it_parses_else_text() {
        for (body, content_type) in [
            (&b"{\"a\":1}"[..], "application/json"),
            (b"42", "application/json"),
            (b" null ", "application/json"),
            (b"{", "text/plain; charset=utf-8"),
            (b"hello", "text/plain; charset=utf-8"),
            (b"", "text/plain; charset=utf-8"),
            (b"\xff\0", "application/octet-stream"),
        ] {
            assert_eq!(guess(body), content_type);
        }
    }
}
