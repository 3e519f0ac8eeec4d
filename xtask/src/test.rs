//! `cargo xtask test`: the one command that tests everything, and says what it could not test.

use std::{collections::BTreeMap, fmt::Write as _, fs, process::ExitCode};

use clap::Args;
use posthaste_testkit::{server, service::Service};

use crate::{
    Result,
    cargo::{cargo, selection},
    is_ci, services,
};

/// Run the tests against real servers.
///
/// Brings up PostgreSQL and RabbitMQ (see `cargo xtask services --help`), runs `cargo test` on the whole
/// workspace, and ends with the list of tests that were skipped because something is missing on this
/// machine. Under CI=true nothing is skipped: what is missing is installed, or its tests fail.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask test                                 all of it
  cargo xtask test tw_04                           tests with that in their name
  cargo xtask test -p posthaste-relay              one package
  cargo xtask test tw_04 -- --nocapture            with what the tests print")]
pub struct Arguments {
    /// Install missing servers as Debian packages (as root); CI=true does too
    #[arg(long)]
    install: bool,

    /// Arguments for `cargo test`: a filter, packages, options
    #[arg(allow_hyphen_values = true, value_name = "ARGUMENT")]
    cargo: Vec<String>,

    /// Arguments for the test programs
    #[arg(last = true, value_name = "ARGUMENT")]
    programs: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let found = services::up(arguments.install)?;
    let skips = tempfile::NamedTempFile::new()?;
    let mut command = cargo("test");
    command.args(selection(&arguments.cargo)).arg("--no-fail-fast").args(&arguments.cargo);
    command.arg("--").args(&arguments.programs);
    command.envs(found.iter().map(|(service, url)| (service.variable(), url)));
    command.env("POSTHASTE_TEST_REQUIRE", required(&found)).env("POSTHASTE_TEST_SKIPS", skips.path());
    let status = command.status().map_err(|error| format!("cargo can't be run: {error}"))?;
    let skipped = fs::read_to_string(skips.path())?;
    eprint!("{}", report(&skipped));
    let verdict = if status.success() { "passed" } else { "FAILED" };
    eprintln!("xtask test: {verdict}, {} skipped", skipped.lines().count());
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// What must not be skipped: in CI everything, elsewhere what is there now.
fn required(found: &services::Found) -> String {
    if is_ci() {
        return "all".to_owned();
    }
    let shared = found.iter().map(|(service, _)| service.name());
    let startable = Service::ALL.into_iter().filter(|service| server::lacking(*service).is_none());
    shared.chain(startable.map(Service::own_name)).collect::<Vec<_>>().join(",")
}

/// The skipped tests, by what was missing. A line is `TEST: NAME is missing: WHY`.
fn report(skips: &str) -> String {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (test, reason) in skips.lines().filter_map(|line| line.split_once(": ")) {
        by_reason.entry(reason).or_default().push(test);
    }
    let mut report = String::new();
    for (reason, mut tests) in by_reason {
        tests.sort_unstable();
        // writing to a string can't fail
        let _ = writeln!(report, "\nskipped because {reason}");
        tests.iter().for_each(|test| {
            let _ = writeln!(report, "  {test}");
        });
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_listed_by_what_is_missing() {
        let skips = "quirks b: postgres is missing: no server answers\nquirks a: postgres is missing: no server answers\n\
                     faults c: own-rabbitmq is missing: `epmd` is not installed\n";
        let expected = "\nskipped because own-rabbitmq is missing: `epmd` is not installed\n  faults c\n\
                        \nskipped because postgres is missing: no server answers\n  quirks a\n  quirks b\n";
        assert_eq!(report(skips), expected);
        assert_eq!(report(""), "");
    }
}
