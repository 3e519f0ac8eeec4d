//! The command `posthaste`: writes, looks at and repairs outboxes from a shell.

mod args;
mod ask;
mod commands;
mod config;
mod exit;
mod explain;
mod http;
mod logs;
mod ndjson;
mod output;
mod registry;
#[cfg(test)]
mod sample;
mod setup;
mod wiring;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{args::Cli, exit::Fault};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(cli.command)),
        Err(error) => Err(Fault::failure(format!("starting threads: {error}"))),
    };
    exit::conclude(outcome)
}
