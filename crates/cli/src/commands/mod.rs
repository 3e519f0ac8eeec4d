//! One file a command. Each takes its arguments and ends as [`Done`] or with a [`Fault`].

mod demo;
mod doctor;
mod enqueue;
mod explain;
mod list;
mod migrate;
mod operate;
mod prune;
mod relay;
mod show;
mod status;
mod stream;

use crate::{
    args::Command,
    exit::{Done, Fault},
    output::Out,
};

/// Runs a command.
pub async fn run(command: Command) -> Result<Done, Fault> {
    let mut out = Out::stdout();
    let done = match command {
        Command::Migrate(args) => migrate::run(&args, &mut out).await,
        Command::Enqueue(args) => enqueue::run(&args, &mut out).await,
        Command::Status(args) => status::run(&args, &mut out).await,
        Command::List(args) => list::run(&args, &mut out).await,
        Command::Show(args) => show::run(&args, &mut out).await,
        Command::Explain(args) => explain::run(&args, &mut out).await,
        Command::Retry(args) => operate::run(operate::Action::Retry, &args, &mut out).await,
        Command::Discard(args) => operate::run(operate::Action::Discard, &args, &mut out).await,
        Command::Prune(args) => prune::run(&args, &mut out).await,
        Command::Demo(args) => demo::run(&args, &mut out).await,
        Command::Doctor(args) => doctor::run(&args, &mut out).await,
        Command::Relay(args) => relay::run(&args).await,
    }?;
    out.flush()?;
    Ok(done)
}
