//! `cargo xtask services`: the servers that all tests share.
//!
//! What answers already is used and never stopped. What is started here has ports and a folder of
//! its own, stays up for later runs, and is ended and removed by `down`.

use std::{
    env, fs,
    io::{self, Write as _},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use clap::{Args, Subcommand};
use posthaste_testkit::{server, service::Service};

use crate::{Result, cargo::root, install, is_ci};

/// Bring up what the tests need: PostgreSQL and RabbitMQ.
///
/// For each the first that works: the server that POSTHASTE_TEST_POSTGRES or POSTHASTE_TEST_RABBITMQ
/// names; one on the default port (5432, 5672); an installed one, started on a port of its own (15432,
/// 15682); Docker Compose, where a Docker engine answers. PostgreSQL is used with user postgres, no
/// password and database test; RabbitMQ with guest and guest.
#[derive(Debug, Args)]
#[command(after_help = "stdout has the variables, stderr the rest:\n  eval \"$(cargo xtask services up)\"")]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Action {
    /// Start what does not answer yet (the default). Status 1 if something could not be had.
    Up {
        /// Install missing Debian packages (as root); CI=true does too
        #[arg(long)]
        install: bool,
    },
    /// End and remove what `up` started; nothing else.
    Down,
    /// Say what is there. Status 1 if something is missing.
    Status,
}

/// The servers that could be had, with their URLs.
pub type Found = Vec<(Service, String)>;

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let found = match arguments.action.unwrap_or(Action::Up { install: false }) {
        Action::Up { install } => up(install)?,
        Action::Status => status(),
        Action::Down => return down().map(|()| ExitCode::SUCCESS),
    };
    let mut out = io::stdout().lock();
    for (service, url) in &found {
        // a URL has no single quote: it would be written %27
        writeln!(out, "export {}='{}'", service.variable(), url.replace('\'', "%27"))?;
    }
    Ok(if found.len() == Service::ALL.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Brings up all that can be had, and says of each service how it went.
pub fn up(install: bool) -> Result<Found> {
    let lock = fs::File::create(folder()?.join("lock"))?;
    lock.lock().map_err(|error| format!("another `services up` can't be waited for: {error}"))?;
    if install || is_ci() {
        install::what_is_lacking();
    }
    let mut found = Vec::new();
    for service in Service::ALL {
        match bring_up(service) {
            Ok((url, how)) => {
                say(service, &how);
                found.push((service, url));
            }
            Err(why) => say(service, &format!("MISSING: {why}")),
        }
    }
    Ok(found)
}

fn bring_up(service: Service) -> Result<(String, String)> {
    if let Some(found) = present(service) {
        return Ok(found);
    }
    let port = service.own_port();
    let url = service.url(port);
    let Some(lack) = server::lacking(service) else {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(server::leave_running(service, &own_folder(service)?, port))?;
        return Ok((url, format!("started on port {port}; `cargo xtask services down` ends it")));
    };
    if let Err(error) = docker("info").status_quietly() {
        return Err(how_to_get(service, &format!("{lack}; and no Docker engine answers ({error})")).into());
    }
    docker_compose(&["up", "--detach", "--wait", service.name()]).status_quietly()?;
    service.probe(port).map_err(|error| format!("Docker Compose started it, but on port {port}: {error}"))?;
    Ok((url, format!("started by Docker Compose on port {port}; `cargo xtask services down` ends it")))
}

/// A server that is there already: its URL and how it was found.
fn present(service: Service) -> Option<(String, String)> {
    let named = env::var(service.variable()).ok().filter(|url| !url.is_empty());
    if let Some(url) = named {
        return Some((url, format!("used as {} says", service.variable())));
    }
    for port in [service.default_port(), service.own_port()] {
        match service.probe(port) {
            Ok(()) => return Some((service.url(port), format!("answers on port {port}"))),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => say(service, &format!("port {port} is of no use: {error}")),
        }
    }
    None
}

fn how_to_get(service: Service, why: &str) -> String {
    let package = install::package(service);
    format!(
        "{why}. Install it (`cargo xtask services up --install` as root, or `sudo apt-get install {package}`), or start \
         Docker, or set {} to the URL of one",
        service.variable()
    )
}

fn status() -> Found {
    let mut found = Vec::new();
    for service in Service::ALL {
        match present(service) {
            Some((url, how)) => {
                say(service, &how);
                found.push((service, url));
            }
            None => say(service, "MISSING: `cargo xtask services up` gets it"),
        }
        match server::lacking(service) {
            None => eprintln!("{}: fault tests can start it", service.own_name()),
            Some(lack) => eprintln!("{}: MISSING: {lack}", service.own_name()),
        }
    }
    found
}

fn down() -> Result<()> {
    for service in Service::ALL {
        let ended = server::end(&own_folder(service)?)?;
        say(service, if ended { "ended and removed" } else { "none that `up` started was running" });
    }
    if docker("info").status_quietly().is_ok() {
        docker_compose(&["down", "--volumes"]).status_quietly()?;
    }
    Ok(())
}

fn say(service: Service, text: &str) {
    eprintln!("{}: {text}", service.name());
}

fn folder() -> io::Result<PathBuf> {
    server::folder("services")
}

fn own_folder(service: Service) -> io::Result<PathBuf> {
    Ok(folder()?.join(service.name()))
}

fn docker(subcommand: &str) -> Command {
    let mut command = Command::new("docker");
    command.arg(subcommand);
    command
}

fn docker_compose(arguments: &[&str]) -> Command {
    let mut command = docker("compose");
    command.arg("--file").arg(root().join("xtask/compose.yaml")).args(["--project-name", "posthaste-test"]);
    command.args(arguments);
    command
}

trait StatusQuietly {
    /// Runs to the end with its words on record only if it fails.
    fn status_quietly(&mut self) -> Result<()>;
}

impl StatusQuietly for Command {
    fn status_quietly(&mut self) -> Result<()> {
        let name = self.get_program().display().to_string();
        let output = self.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{name}: {}", said.trim().lines().last().unwrap_or("failed without a word")).into())
    }
}
