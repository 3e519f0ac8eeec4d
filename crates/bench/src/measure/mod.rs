//! The measures. Each builds its own scene, lets both sides take turns, and removes the scene.

mod drain;
mod enqueue;
mod growth;
mod idle;
mod latency;
mod memory;
mod sqlite;

use crate::{Plan, Result, report::Figure};

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Measure {
    /// Commits a second with an event, PostgreSQL, 8 and 32 clients, relay stopped and awake
    Enqueue,
    /// PostgreSQL to RabbitMQ: events a second, CPU of relay and database
    Rabbitmq,
    /// The same with 10,000 ordering keys
    Keyed,
    /// PostgreSQL to nothing: reading and marking alone
    Null,
    /// PostgreSQL to a file
    File,
    /// SQLite: commits with an event, and the drain to a file
    Sqlite,
    /// From the commit to a consumer, 200 events a second
    Latency,
    /// Reads of a relay that has nothing to do
    Idle,
    /// First tenth against last, with a history, with an old snapshot held
    Growth,
    /// Memory of a relay at rest, and with 100 bodies of 5 MB before it
    Memory,
}

impl Measure {
    pub(crate) async fn run(self, plan: &Plan) -> Result<Vec<Figure>> {
        match self {
            Measure::Enqueue => enqueue::run(plan).await,
            Measure::Rabbitmq => drain::to_rabbitmq(plan, 0).await,
            Measure::Keyed => drain::to_rabbitmq(plan, 10_000).await,
            Measure::Null => drain::to_nothing(plan).await,
            Measure::File => drain::to_file(plan).await,
            Measure::Sqlite => sqlite::run(plan).await,
            Measure::Latency => latency::run(plan).await,
            Measure::Idle => idle::run(plan).await,
            Measure::Growth => growth::run(plan).await,
            Measure::Memory => memory::run(plan).await,
        }
    }
}
