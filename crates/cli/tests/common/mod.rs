//! Runs the binary over outboxes of the test's own.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod relay;

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use posthaste_testkit::service;
use serde_json::Value;
use tempfile::TempDir;

/// Every command that works on one outbox, with what it needs besides.
pub const COMMANDS: [&[&str]; 9] = [
    &["migrate"],
    &["enqueue", "--type", "t", "--body", "1"],
    &["status"],
    &["list"],
    &["show", "00000000-0000-4000-8000-000000000000"],
    &["explain", "00000000-0000-4000-8000-000000000000"],
    &["retry", "--all"],
    &["discard", "--all"],
    &["prune"],
];

/// What a run gave.
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    /// The lines of stdout.
    pub fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }

    /// Stdout as JSON, one value a line.
    pub fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }

    /// The run, which must have ended with `code`.
    #[track_caller]
    pub fn ended(self, code: i32) -> Run {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }
}

/// The binary with an environment without settings.
pub fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("POSTHASTE_") || text.starts_with("TOA_") {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs it with arguments alone.
pub fn posthaste(args: &[&str]) -> Run {
    run(binary().args(args), b"")
}

/// Runs a command with `input` on its stdin.
pub fn run(command: &mut Command, input: &[u8]) -> Run {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let Output { status, stdout, stderr } = child.wait_with_output().expect("the binary ends");
    writer.join().expect("the input is written");
    Run {
        code: status.code().unwrap_or(-1),
        out: String::from_utf8(stdout).expect("stdout is UTF-8"),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// An outbox of the test's own.
pub struct Outbox {
    pub url: String,
    pub name: String,
    directory: Option<TempDir>,
}

impl Outbox {
    /// One in a SQLite file that does not exist yet.
    pub fn sqlite() -> Outbox {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = format!("sqlite:{}", directory.path().join("app.db").display());
        Outbox { url, name: service::outbox_name().to_string(), directory: Some(directory) }
    }

    /// One in PostgreSQL, migrated.
    pub fn postgres() -> Option<Outbox> {
        let outbox = Outbox { url: service::postgres()?, name: service::outbox_name().to_string(), directory: None };
        outbox.run(&["migrate"]).ended(0);
        Some(outbox)
    }

    /// One of every kind that is at hand, migrated.
    pub fn all() -> Vec<Outbox> {
        let sqlite = Outbox::sqlite();
        sqlite.run(&["migrate"]).ended(0);
        std::iter::once(sqlite).chain(Outbox::postgres()).collect()
    }

    /// Another outbox in the same database, dropped by nobody but with it.
    pub fn named(&self, name: &str) -> Outbox {
        let directory = self.directory.as_ref().map(|_| tempfile::tempdir().expect("a temporary directory"));
        Outbox { url: self.url.clone(), name: name.to_owned(), directory }
    }

    /// The same name in the database of `url`.
    pub fn at(&self, url: String) -> Outbox {
        Outbox { url, name: self.name.clone(), directory: None }
    }

    /// The table's name.
    pub fn table(&self) -> String {
        format!("{}_outbox", self.name)
    }

    /// Runs a command on it.
    pub fn run(&self, args: &[&str]) -> Run {
        self.run_with(args, b"")
    }

    /// Runs a command on it with `input` on stdin.
    pub fn run_with(&self, args: &[&str], input: &[u8]) -> Run {
        run(binary().args(args).args(["--store", &self.url, "--outbox", &self.name]), input)
    }

    /// Enqueues an event, and answers its id.
    #[track_caller]
    pub fn enqueue(&self, args: &[&str]) -> String {
        let run = self.run(&[&["enqueue"], args].concat()).ended(0);
        run.out.trim().to_owned()
    }

    /// Its status.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.run(&["status", "--json"]).ended(0).json().remove(0)
    }

    /// Why a row waits.
    #[track_caller]
    pub fn reason(&self, id: &str) -> Value {
        self.run(&["explain", id, "--json"]).ended(0).json().remove(0)
    }

    /// Runs SQL on its database, behind the back of the binary.
    pub fn sql(&self, sql: &str) {
        match self.url.strip_prefix("sqlite:") {
            Some(file) => {
                rusqlite::Connection::open(file).and_then(|database| database.execute_batch(sql)).expect(sql);
            }
            None => on_postgres(&self.url, sql),
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        if self.directory.is_none() {
            let (name, table) = (&self.name, self.table());
            let sql = format!(
                r#"DO $$ DECLARE f record; BEGIN
                DROP TABLE IF EXISTS "{table}", "{table}_log" CASCADE;
                FOR f IN SELECT oid::regprocedure AS p FROM pg_proc WHERE proname LIKE '{name}%' LOOP
                EXECUTE 'DROP FUNCTION IF EXISTS ' || f.p || ' CASCADE'; END LOOP; END $$"#
            );
            on_postgres(&self.url, &sql);
        }
    }
}

fn on_postgres(url: &str, sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("PostgreSQL");
        let driver = tokio::spawn(connection);
        client.batch_execute(sql).await.expect(sql);
        drop(client);
        let _ = driver.await;
    });
}
