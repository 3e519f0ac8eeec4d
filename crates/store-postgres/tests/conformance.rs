//! Runs the store suite over PostgreSQL.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod harness;

use std::process::ExitCode;

use posthaste_testkit::{service, suite::store};

fn main() -> ExitCode {
    let harness = service::postgres().map(|url| harness::Postgres { url });
    store::main_or_skip(harness, "PostgreSQL is missing")
}
