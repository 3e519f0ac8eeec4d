//! What Posthaste costs and how fast it is, each figure against a bare loop that does only that
//! work, in the same run.
//!
//! Both sides take turns (A B A B); a ratio is the median of the ratios of neighbours. Absolute
//! rates say more about the machine and its load than about the code.

mod bare;
mod child;
mod counted;
mod measure;
mod meter;
mod ours;
mod queue;
mod report;
mod rounds;
mod scene;
mod watched;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

use crate::{measure::Measure, report::Report, scene::Server};

/// The allocator of the `posthaste` program, for both sides.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What goes wrong here ends the run.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measure Posthaste against bare loops on real servers.
#[derive(Debug, Parser)]
#[command(name = "posthaste-bench")]
struct Arguments {
    /// The measures to run; all without a name
    #[arg(value_enum)]
    measures: Vec<Measure>,

    /// Rows of a drain
    #[arg(long, default_value_t = 20_000)]
    rows: u32,

    /// Published rows that are there already when growth is measured
    #[arg(long, default_value_t = 300_000)]
    history: u32,

    /// Turns of each side
    #[arg(long, default_value_t = 5)]
    reps: u32,

    /// Write all values there as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The PostgreSQL server; a database of the bench's own is made there and dropped again
    #[arg(long, env = "POSTHASTE_TEST_POSTGRES", default_value = "postgres://postgres@127.0.0.1:5432/test")]
    postgres: String,

    /// The RabbitMQ server; queues of the bench's own are made there and deleted again
    #[arg(long, env = "POSTHASTE_TEST_RABBITMQ", default_value = "amqp://guest:guest@127.0.0.1:5672/%2f")]
    rabbitmq: String,
}

/// What every measure is told.
pub(crate) struct Plan {
    server: Server,
    rabbitmq: String,
    rows: u32,
    history: u32,
    reps: u32,
}

fn main() -> ExitCode {
    let ended = if child::is_one() { child::run() } else { run(Arguments::parse()) };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("posthaste-bench: {error}");
            ExitCode::from(2)
        }
    }
}

#[tokio::main]
async fn run(arguments: Arguments) -> Result<()> {
    let server = Server::create(&arguments.postgres).await?;
    let Arguments { measures, rows, history, reps, rabbitmq, json, .. } = arguments;
    let plan = Plan { server, rabbitmq, rows, history, reps: reps.max(1) };
    let ended = tokio::select! {
        ended = run_all(&plan, &measures) => ended,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    plan.server.drop_database().await?;
    let report = ended?;
    println!("{report}");
    if let Some(path) = json {
        std::fs::write(path, report.json())?;
    }
    Ok(())
}

async fn run_all(plan: &Plan, measures: &[Measure]) -> Result<Report> {
    let mut report = Report::new(plan);
    let all = <Measure as clap::ValueEnum>::value_variants();
    for measure in if measures.is_empty() { all } else { measures } {
        eprintln!("{measure:?}");
        report.add(measure.run(plan).await?);
    }
    Ok(report)
}
