//! `cargo xtask bench`: brings up the servers, builds the bench in release and runs it.

use std::process::ExitCode;

use clap::Args;

use crate::{Result, cargo::cargo, services};

/// Measure Posthaste against bare loops on real servers.
///
/// Builds `crates/bench` in release, which takes minutes the first time, and hands the arguments on:
/// `cargo xtask bench -- --help` lists the measures. Each figure is a ratio to a bare loop that does only
/// that work, in turns, in the same run; absolute rates say more about the machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench                                all measures
  cargo xtask bench rabbitmq latency               some of them
  cargo xtask bench rabbitmq --rows 100000 --json drain.json")]
pub struct Arguments {
    /// Install missing servers as Debian packages (as root); CI=true does too
    #[arg(long)]
    install: bool,

    /// Arguments for the bench: measures and options
    #[arg(allow_hyphen_values = true, trailing_var_arg = true, value_name = "ARGUMENT")]
    bench: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let found = services::up(arguments.install)?;
    let mut command = cargo("run");
    command.args(["--release", "-p", "posthaste-bench", "--"]).args(&arguments.bench);
    command.envs(found.iter().map(|(service, url)| (service.variable(), url)));
    let status = command.status().map_err(|error| format!("cargo can't be run: {error}"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
