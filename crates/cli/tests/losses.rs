//! What would lose events, or seem to have delivered them, is refused or said.

mod common;

use std::{
    io::Read as _,
    process::{Command, Stdio},
};

use common::{
    COMMANDS, Outbox, binary, posthaste,
    relay::{Folder, config, enqueue, lines, relay, start, status, terminate, until},
    run,
};
use posthaste_testkit::service;

/// It starts empty and ends with the command: an event would be lost, and nothing could be seen.
#[test]
fn a_database_in_memory_is_refused_by_every_command_that_opens_it() {
    let relay: &[&str] = &["relay", "--to", "stdout:", "--until-empty"];
    for command in COMMANDS.iter().chain([&relay, &&["doctor"][..]]) {
        let run = posthaste(&[command, &["--store", "sqlite::memory:"][..]].concat()).ended(2);
        assert!(run.err.contains("is lost when the command ends") && run.out.is_empty(), "{} {}", run.out, run.err);
    }
    let print = posthaste(&["migrate", "--print", "--store", "sqlite::memory:"]).ended(0);
    assert!(print.out.contains("CREATE TABLE"));
}

#[test]
fn a_table_of_somebody_else_is_refused_with_2_by_every_command() {
    let postgres = service::postgres().map(|url| Outbox::sqlite().at(url));
    for outbox in std::iter::once(Outbox::sqlite()).chain(postgres) {
        outbox.sql(&format!("CREATE TABLE \"{}\" (theirs integer)", outbox.table()));
        for command in COMMANDS {
            let run = outbox.run(command).ended(2);
            assert!(run.err.contains("no outbox of Posthaste") && run.err.contains("hint: rename it"), "{}", run.err);
        }
        outbox.sql(&format!("DROP TABLE \"{}\"", outbox.table()));
    }
}

/// Else what is written there is gone, and marked as published.
#[test]
fn a_file_that_keeps_nothing_and_a_closed_stdout_are_refused_at_the_start() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(3));
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let database = outbox.url.trim_start_matches("sqlite:");
    for (path, said) in
        [(pipe.to_str().expect("UTF-8"), "is a pipe"), ("/dev/null", "is a device"), (database, "is a SQLite database")]
    {
        let refused = run(&mut relay(&outbox, &["--to", &format!("file:{path}"), "--until-empty"]), b"").ended(2);
        assert!(refused.err.contains(said), "{}", refused.err);
    }
    let script = "exec \"$@\" >&-";
    let mut closed = Command::new("sh");
    let inner = relay(&outbox, &["--to", "stdout:", "--until-empty"]);
    closed.args(["-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    let refused = run(&mut closed, b"").ended(2);
    assert!(refused.err.contains("stdout:: is closed, and every event would be lost"), "{}", refused.err);
    assert_eq!(status(&outbox)["pending"].as_u64(), Some(3), "nothing was published");

    let mut wished = relay(&outbox, &["--to", "stdout:", "--until-empty"]);
    assert!(wished.stdin(Stdio::null()).stdout(Stdio::null()).status().expect("it runs").success());
    assert_eq!(status(&outbox)["published"].as_u64(), Some(3));
}

#[test]
fn what_waits_behind_a_discarded_row_goes_at_once() {
    for outbox in Outbox::all() {
        let folder = Folder::new();
        let first = outbox.enqueue(&["--type", "t", "--key", "k", "--body", "1", "--delay", "1h"]);
        let file = config(&folder, &outbox, "outbox: { interval: 1h }\n");
        let mut child = start(binary().args(["relay", "--config", &file, "--to", &folder.target()]));
        let other = outbox.enqueue(&["--type", "t", "--body", "2"]);
        until("the relay runs", || (folder.delivered().len() == 1).then_some(()));
        outbox.enqueue(&["--type", "t", "--key", "k", "--body", "3"]);
        outbox.enqueue(&["--type", "t", "--body", "4"]);
        until("it has passed over the one that waits", || (folder.delivered().len() == 2).then_some(()));
        outbox.run(&["discard", &first]).ended(0);
        until("the one behind it", || (folder.delivered().len() == 3).then_some(()));
        let last = folder.delivered().pop().expect("a line");
        assert!(last.contains("\"data\":3") && !last.contains(&other), "{last}");
        terminate(&child);
        assert!(child.wait().expect("ended").success());
    }
}

#[test]
fn a_relay_that_was_to_come_to_its_end_and_was_interrupted_says_so_with_1() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    let first = outbox.enqueue(&["--type", "t", "--key", "k", "--body", "1", "--delay", "1h"]);
    outbox.enqueue(&["--type", "t", "--body", "2"]);
    let mut child = start(&mut relay(&outbox, &["--to", &folder.target(), "--until-empty"]));
    until("the first line", || (folder.delivered().len() == 1).then_some(()));
    terminate(&child);
    let ended = child.wait().expect("ended");
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("read");
    assert_eq!(ended.code(), Some(1), "{said}");
    assert!(said.contains("interrupted: 1 rows are left"), "{said}");
    outbox.run(&["discard", &first]).ended(0);
}

#[test]
fn a_timeout_without_an_end_is_wrong_usage() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    let refused = run(&mut relay(&outbox, &["--to", &folder.target(), "--timeout", "1s"]), b"").ended(2);
    assert!(refused.err.contains("--until-empty|--once"), "{}", refused.err);
}
