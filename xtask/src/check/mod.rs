//! `cargo xtask check`: what must hold besides the tests.

mod arrows;
mod sizes;

use std::process::{Command, ExitCode};

use clap::Args;

use crate::{
    Result,
    cargo::{cargo, root, selection},
};

/// Check format, lints, the arrows between the crates, and the size of files.
///
/// All checks run, whatever the first ones find. Status 1 if one fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Checks:
  format   cargo fmt; run `cargo fmt` to mend it
  lints    cargo clippy on all targets, where a warning is an error
  arrows   core depends on no other crate of ours; relay, stores and transports on core alone;
           testkit only serves tests and xtask
  sizes    no source file over 600 lines, no file of tests over 800")]
pub struct Arguments {}

pub fn run(_: &Arguments) -> Result<ExitCode> {
    let results = [
        ("format", succeeds(cargo("fmt").args(["--all", "--check"]))),
        ("lints", succeeds(cargo("clippy").args(selection(&[])).args(["--all-targets", "--", "-D", "warnings"]))),
        ("arrows", arrows::check(&metadata()?)),
        ("sizes", sizes::check(&root())),
    ];
    for (name, result) in &results {
        match result {
            Ok(()) => eprintln!("check {name}: passed"),
            Err(error) => eprintln!("check {name}: FAILED: {error}"),
        }
    }
    Ok(if results.iter().all(|(_, result)| result.is_ok()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn succeeds(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("cargo can't be run: {error}"))?;
    if status.success() { Ok(()) } else { Err("what it found is above".into()) }
}

fn metadata() -> Result<serde_json::Value> {
    let output = cargo("metadata").args(["--no-deps", "--format-version=1"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
