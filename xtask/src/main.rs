//! The project's own commands: `cargo xtask services`, `test`, `check` and `bench`.
//!
//! CI runs exactly these, so what passes here passes there.

mod bench;
mod cargo;
mod check;
mod install;
mod services;
mod test;

use std::{error::Error, process::ExitCode};

use clap::{Parser, Subcommand};

/// What a command says when it can't do its work: what is wrong and what to do.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Work on Posthaste: real servers for the tests, the tests, the checks, the measurements.
#[derive(Debug, Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    after_help = "A first run:\n  cargo xtask test          everything that this machine can test\n  cargo xtask check         what CI checks besides the tests"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Services(services::Arguments),
    Test(test::Arguments),
    Check(check::Arguments),
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Services(arguments) => services::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::from(2)
    })
}

/// Whether this is a run of continuous integration: nothing may be skipped there.
fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}
