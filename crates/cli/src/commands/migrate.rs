//! `migrate`: creates or upgrades schemas, or prints their SQL.

use crate::{
    args::Migrate,
    exit::{Done, Fault, say},
    output::Out,
    setup::{Setup, called},
};

pub async fn run(args: &Migrate, out: &mut Out) -> Result<Done, Fault> {
    let setup = Setup::read(&args.at.place)?;
    for name in setup.several(&args.at) {
        if args.print {
            out.line(setup.sql(&name)?.trim_end())?;
            continue;
        }
        setup.store(&name)?.migrate().await?;
        say(&format!("the schema of {} is up to date", called(&name)));
    }
    Ok(Done::Clean)
}
