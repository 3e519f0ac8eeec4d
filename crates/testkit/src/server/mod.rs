//! Servers of a test's own, which it may stop, kill, pause and fill.
//!
//! They run on free ports of the loopback interface, in a folder of their own, and end with the
//! test: on drop, and also if the test's process is killed. Linux only (`/proc`); as root they run
//! as the users `postgres` and `rabbitmq`.

mod postgres;
mod process;
mod rabbitmq;
mod run;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use self::process::{Keeper, Processes};
pub use self::{postgres::Cluster, rabbitmq::Node};
use crate::service::{self, Service};

/// Longest time for a server to be ready, or to have stopped: a loaded machine takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

/// A PostgreSQL of the test's own.
pub type Postgres = Server<Cluster>;

/// A RabbitMQ of the test's own.
pub type RabbitMq = Server<Node>;

/// How a kind of server is laid out and started.
pub trait Recipe: Sized + Send + 'static {
    /// The kind.
    const SERVICE: Service;

    /// The signal that asks the server to stop in an orderly way, without waiting for clients.
    const STOP: Signal;

    /// Says what this machine lacks to run one, if anything.
    fn lacking() -> Option<String>;

    /// Lays out a server's files in a folder that exists; those already there are kept.
    ///
    /// # Errors
    /// When a file can't be written, or a program of the server fails.
    fn prepare(dir: &Path, port: u16) -> io::Result<Self>;

    /// Starts the server's processes, the server itself last. Does not wait until it is ready.
    ///
    /// # Errors
    /// When a program can't be started.
    fn launch(&self) -> io::Result<Vec<Child>>;

    /// The folder that was prepared.
    fn dir(&self) -> &Path;

    /// The port that clients connect to.
    fn port(&self) -> u16;
}

/// A server that ends with this value.
#[derive(Debug)]
pub struct Server<R: Recipe> {
    recipe: R,
    processes: Processes,
    // ends what this value did not end itself
    _keeper: Keeper,
    dir: TempDir,
}

impl<R: Recipe> Server<R> {
    /// Starts one and waits until it is ready; `None` (and the skip is on record) where it is not
    /// installed. Dropping the future ends what was started.
    ///
    /// # Panics
    /// If it is installed but does not start, or is missing although required.
    pub async fn start() -> Option<Server<R>> {
        if let Some(lack) = R::lacking() {
            service::missing(R::SERVICE.own_name(), R::SERVICE, &lack);
            return None;
        }
        match Server::try_start().await {
            Ok(server) => Some(server),
            Err(error) => panic!("{} of the test's own: {error}", R::SERVICE.name()),
        }
    }

    async fn try_start() -> io::Result<Server<R>> {
        let dir = tempfile::Builder::new().prefix("posthaste-").tempdir()?;
        let prepare = move || R::prepare(dir.path(), free_port()?).map(|recipe| (recipe, dir));
        let (recipe, dir) = spawn_blocking(prepare).await??;
        let keeper = Keeper::watch(dir.path())?;
        let mut server = Server { recipe, processes: Processes::default(), _keeper: keeper, dir };
        server.processes = run(&server.recipe).await?;
        Ok(server)
    }

    /// The URL that clients connect to; the same after a restart.
    #[must_use]
    pub fn url(&self) -> String {
        R::SERVICE.url(self.recipe.port())
    }

    /// The address that clients connect to, for a proxy.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.recipe.port()))
    }

    /// Stops it in an orderly way, and waits until it has. Clients lose their sessions.
    ///
    /// # Panics
    /// If it has not stopped after two minutes.
    pub async fn stop(&mut self) {
        self.processes.ask(R::STOP);
        let end = Instant::now() + PATIENCE;
        while self.processes.ended().expect("a child can be asked").is_none() {
            assert!(Instant::now() < end, "{} did not stop in {PATIENCE:?}", R::SERVICE.name());
            sleep(Duration::from_millis(10)).await;
        }
        // helpers of the server, which outlive it
        self.processes.kill(self.dir.path());
    }

    /// Starts it again after [`Server::stop`] or [`Server::kill9`], with its data, and waits until it
    /// is ready.
    ///
    /// # Panics
    /// If it runs, or does not start.
    pub async fn start_again(&mut self) {
        let name = R::SERVICE.name();
        assert!(self.processes.ended().expect("a child can be asked").is_some(), "{name} runs: stop it first");
        match run(&self.recipe).await {
            Ok(processes) => self.processes = processes,
            Err(error) => panic!("{name} does not start again: {error}"),
        }
    }

    /// Ends all its processes by SIGKILL at once; they are gone when this returns.
    pub fn kill9(&mut self) {
        self.processes.kill(self.dir.path());
    }

    /// Stops all its processes where they are: connections stay open, nothing answers. New
    /// connections are taken by the kernel and get no answer either.
    pub fn pause(&self) {
        self.processes.freeze();
    }

    /// Lets it go on after [`Server::pause`].
    pub fn resume(&self) {
        self.processes.thaw();
    }
}

impl<R: Recipe> Drop for Server<R> {
    fn drop(&mut self) {
        self.processes.kill(self.dir.path());
    }
}

/// Says what this machine lacks to run servers of a test's own of this kind, if anything.
#[must_use]
pub fn lacking(service: Service) -> Option<String> {
    match service {
        Service::Postgres => Cluster::lacking(),
        Service::RabbitMq => Node::lacking(),
    }
}

/// Starts a server that outlives this process, in a folder that stays, and waits until it is ready.
/// [`end`] ends it.
///
/// # Errors
/// What is lacking, or why it did not start.
pub async fn leave_running(service: Service, dir: &Path, port: u16) -> io::Result<()> {
    if let Some(lack) = lacking(service) {
        return Err(io::Error::other(lack));
    }
    // one that was killed half way, or no longer answers
    process::kill_left_running(dir);
    fs::create_dir_all(dir)?;
    match service {
        Service::Postgres => leave::<Cluster>(dir, port).await,
        Service::RabbitMq => leave::<Node>(dir, port).await,
    }
}

async fn leave<R: Recipe>(dir: &Path, port: u16) -> io::Result<()> {
    let dir = dir.to_owned();
    let recipe = spawn_blocking(move || R::prepare(&dir, port)).await??;
    run(&recipe).await?.leave_running();
    Ok(())
}

/// A folder of ours, in that for temporary files, which users that our servers run as can pass
/// through. Somebody else's folder of that name is refused: its owner could put anything there for
/// our servers to run.
///
/// # Errors
/// When it can't be made, or is not ours.
pub fn folder(name: &str) -> io::Result<PathBuf> {
    let us = rustix::process::geteuid();
    let folder = std::env::temp_dir().join(format!("posthaste-{name}-{}", us.as_raw()));
    let mode = if us.is_root() { 0o711 } else { 0o700 };
    match fs::DirBuilder::new().mode(mode).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)?;
    if found.is_dir() && found.uid() == us.as_raw() {
        return Ok(folder);
    }
    Err(io::Error::other(format!("{} is not ours: remove it, or set TMPDIR", folder.display())))
}

/// Ends a server that was left running, by SIGKILL, and removes its folder. False if none ran.
///
/// # Errors
/// When the folder can't be removed.
pub fn end(dir: &Path) -> io::Result<bool> {
    let ran = process::kill_left_running(dir);
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(ran),
    }
}

async fn run<R: Recipe>(recipe: &R) -> io::Result<Processes> {
    let mut processes = Processes::of(recipe.launch()?, recipe.dir())?;
    let port = recipe.port();
    let end = Instant::now() + PATIENCE;
    loop {
        let probe = spawn_blocking(move || R::SERVICE.probe(port)).await?;
        if let Some(ending) = processes.ended()? {
            return Err(io::Error::other(format!("it ended at once ({ending}). {}", run::last_words(recipe.dir()))));
        }
        let Err(error) = probe else { return Ok(processes) };
        if Instant::now() > end {
            let words = run::last_words(recipe.dir());
            return Err(io::Error::other(format!("not ready after {PATIENCE:?} ({error}). {words}")));
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The first of three ports in a row that nobody listens on. They are below the range from which
/// the kernel gives ports to outgoing connections, so a stopped server's port stays free.
fn free_port() -> io::Result<u16> {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    for _ in 0..1000 {
        let random = uuid::Uuid::now_v7().as_u128() % 11_000;
        let port = 20_000 + u16::try_from(random).map_err(io::Error::other)?;
        if (port..port + 3).all(free) {
            return Ok(port);
        }
    }
    Err(io::Error::other("no three free ports in a row between 20000 and 31000"))
}

#[cfg(test)]
mod tests;
