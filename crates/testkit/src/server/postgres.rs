//! How a PostgreSQL is laid out and started.
//!
//! `initdb` takes seconds, so it is done once a version and machine; each server is a copy. Nothing
//! is synced to disk: what a killed server has written is safe in the kernel, and nobody unplugs.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use rustix::process::Signal;
use tokio::task::spawn_blocking;

use super::{Recipe, Server, run};
use crate::service::Service;

const USER: &str = "postgres";

/// Settings of every server: quick, quiet, on the loopback interface only.
const SETTINGS: [&str; 7] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=32MB",
    "max_connections=200",
    "log_min_messages=warning",
];

/// The files of one PostgreSQL.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    port: u16,
}

impl Recipe for Cluster {
    const SERVICE: Service = Service::Postgres;
    const STOP: Signal = Signal::INT;

    fn lacking() -> Option<String> {
        for name in ["postgres", "initdb", "psql"] {
            if program(name).is_none() {
                return Some(format!("`{name}` is not installed (Debian: package postgresql)"));
            }
        }
        run::lacking_user(USER)
    }

    fn prepare(dir: &Path, port: u16) -> io::Result<Cluster> {
        let cluster = Cluster { dir: dir.to_owned(), port };
        if !cluster.data().exists() {
            run::output(Command::new("cp").arg("-a").arg(template()?).arg(cluster.data()))?;
        }
        // left by a server that was killed; its pid may be a zombie, or a stranger by now
        match fs::remove_file(cluster.data().join("postmaster.pid")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        run::give_to(USER, dir)?;
        Ok(cluster)
    }

    fn launch(&self) -> io::Result<Vec<Child>> {
        let mut server = run::program_as(USER, &installed("postgres")?);
        server.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        server.args(SETTINGS.iter().flat_map(|setting| ["-c", *setting])).current_dir(&self.dir);
        Ok(vec![run::in_background(&mut server, &self.dir)?.spawn()?])
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn port(&self) -> u16 {
        self.port
    }
}

impl Cluster {
    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }
}

impl Server<Cluster> {
    /// Runs SQL in database `test` and gives the rows, unadorned.
    ///
    /// # Panics
    /// If the SQL fails; says why.
    pub async fn psql(&self, sql: &str) -> String {
        let mut command = Command::new(installed("psql").expect("checked at the start"));
        command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", &self.url(), "-c", sql]);
        let output = spawn_blocking(move || run::output(&mut command)).await.expect("psql is run to its end");
        output.unwrap_or_else(|error| panic!("{error}")).trim_end().to_owned()
    }
}

/// A cluster with database `test` to copy from; made by the first who needs it.
fn template() -> io::Result<PathBuf> {
    let version = run::output(Command::new(installed("postgres")?).arg("--version"))?;
    let version: String = version.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
    let folder = super::folder("postgres")?;
    let template = folder.join(version);
    if template.exists() {
        return Ok(template);
    }
    let fresh = tempfile::Builder::new().prefix("new-").tempdir_in(&folder)?;
    run::give_to(USER, fresh.path())?;
    let mut initdb = run::program_as(USER, &installed("initdb")?);
    initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]).arg(fresh.path());
    run::output(initdb.current_dir(&folder))?;
    create_database(fresh.path())?;
    match fs::rename(fresh.path(), &template) {
        // another process was first: the same thing
        Err(error) if !template.exists() => Err(error),
        _ => Ok(template),
    }
}

/// Creates `test` without a server: in single-user mode, which reads from a file.
fn create_database(data: &Path) -> io::Result<()> {
    use std::{io::Write as _, process::Stdio};
    let mut single = run::program_as(USER, &installed("postgres")?);
    single.args(["--single", "-D"]).arg(data).arg("postgres").current_dir(data);
    let mut child = single.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(b"create database test\n")?;
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("postgres --single: {status}"))) }
}

fn installed(name: &str) -> io::Result<PathBuf> {
    program(name).ok_or_else(|| io::Error::other(format!("`{name}` is not installed")))
}

/// Debian keeps the server's programs of each version apart, and out of `PATH`; the newest is used.
fn program(name: &str) -> Option<PathBuf> {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let with_it = versions.filter(|path| path.join("bin").join(name).is_file());
    let newest = with_it.max_by_key(|path| version(path)).map(|path| path.join("bin").join(name));
    newest.or_else(|| run::find(name))
}
