//! Runs the store suite over SQLite.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod harness;

use std::process::ExitCode;

fn main() -> ExitCode {
    posthaste_testkit::suite::store::main(harness::Sqlite)
}
