//! Installing missing servers: Debian packages, as root, and only where it was asked for.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use posthaste_testkit::{server, service::Service};

use crate::Result;

/// Asked by maintainer scripts whether they may start a server; 101 is no.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The Debian package that has the server.
pub fn package(service: Service) -> &'static str {
    match service {
        Service::Postgres => "postgresql",
        Service::RabbitMq => "rabbitmq-server",
    }
}

/// Installs the servers that this machine lacks. What can't be installed is said, and is found
/// missing later by those who need it.
pub fn what_is_lacking() {
    let lacking = Service::ALL.into_iter().filter(|service| server::lacking(*service).is_some());
    let packages: Vec<&str> = lacking.map(package).collect();
    if packages.is_empty() {
        return;
    }
    eprintln!("installing {}", packages.join(" "));
    if let Err(error) = install(&packages) {
        eprintln!("{} can't be installed: {error}", packages.join(" "));
    }
}

fn install(packages: &[&str]) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(format!("that needs root: run `sudo apt-get install {}`", packages.join(" ")).into());
    }
    let _no_starts = NoStarts::ensure()?;
    apt_get(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments)
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    // never a question, and its words kept off our stdout
    command.arg("--quiet").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.stdin(Stdio::null()).stdout(io::stderr()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("apt-get {}: {status}; what it says is above", arguments.join(" ")).into()),
        Err(error) => Err(format!("apt-get: {error}: is this Debian or Ubuntu?").into()),
    }
}

/// Keeps packages from starting servers on the default ports while this value lives.
struct NoStarts {
    ours: bool,
}

impl NoStarts {
    fn ensure() -> Result<NoStarts> {
        use io::Write as _;
        let created = fs::File::options().write(true).create_new(true).mode(0o755).open(POLICY);
        match created {
            Ok(mut file) => {
                let guard = NoStarts { ours: true };
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                Ok(guard)
            }
            // the machine's own policy stands
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(NoStarts { ours: false }),
            Err(error) => Err(format!("{POLICY} can't be written: {error}").into()),
        }
    }
}

impl Drop for NoStarts {
    fn drop(&mut self) {
        if self.ours
            && Path::new(POLICY).exists()
            && let Err(error) = fs::remove_file(POLICY)
        {
            eprintln!("{POLICY} can't be removed: {error}; remove it, or packages never start their servers");
        }
    }
}
