//! How a RabbitMQ is laid out and started.
//!
//! Each has its own port mapper (`epmd`), cookie and node name, so that it never meets the brokers of
//! other tests or of the machine. It uses its port and the two that follow.

use std::{
    env, fs, io,
    net::{Ipv4Addr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tokio::task::spawn_blocking;

use super::{Recipe, Server, run};
use crate::service::Service;

const USER: &str = "rabbitmq";

/// The files of one RabbitMQ.
#[derive(Debug, Clone)]
pub struct Node {
    dir: PathBuf,
    port: u16,
}

impl Recipe for Node {
    const SERVICE: Service = Service::RabbitMq;
    const STOP: Signal = Signal::TERM;

    fn lacking() -> Option<String> {
        for name in ["rabbitmq-server", "rabbitmqctl", "epmd"] {
            if program(name).is_none() {
                return Some(format!("`{name}` is not installed (Debian: package rabbitmq-server)"));
            }
        }
        run::lacking_user(USER)
    }

    fn prepare(dir: &Path, port: u16) -> io::Result<Node> {
        for folder in ["mnesia", "logs"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        let limits = "disk_free_limit.absolute = 50MB\nvm_memory_high_watermark.absolute = 1GB\n";
        let listen = format!("listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = false\n");
        fs::write(dir.join("rabbitmq.conf"), listen + limits)?;
        fs::write(dir.join("enabled_plugins"), "[].\n")?;
        let cookie = dir.join(".erlang.cookie");
        if !cookie.exists() {
            fs::write(&cookie, uuid::Uuid::now_v7().simple().to_string())?;
            fs::set_permissions(&cookie, fs::Permissions::from_mode(0o400))?;
        }
        run::give_to(USER, dir)?;
        Ok(Node { dir: dir.to_owned(), port })
    }

    fn launch(&self) -> io::Result<Vec<Child>> {
        let mut epmd = run::program_as(USER, &installed("epmd")?);
        epmd.args(["-address", "127.0.0.1", "-port", &self.epmd_port().to_string()]).current_dir(&self.dir);
        let mut children = Started(vec![run::in_background(&mut epmd, &self.dir)?.spawn()?]);
        // a broker that finds none starts one itself, which would outlive it
        wait_for_port(self.epmd_port())?;
        let mut server = self.command("rabbitmq-server")?;
        children.0.push(run::in_background(&mut server, &self.dir)?.spawn()?);
        Ok(std::mem::take(&mut children.0))
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn port(&self) -> u16 {
        self.port
    }
}

impl Node {
    fn epmd_port(&self) -> u16 {
        self.port + 1
    }

    /// A program of RabbitMQ with the environment of this node, and nothing of the machine's own.
    fn command(&self, name: &str) -> io::Result<Command> {
        let mut command = run::program_as(USER, &installed(name)?);
        command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default()).env("LANG", "C.UTF-8");
        for (variable, file) in [
            ("HOME", ""),
            ("RABBITMQ_HOME", ""),
            ("RABBITMQ_MNESIA_BASE", "mnesia"),
            ("RABBITMQ_LOG_BASE", "logs"),
            ("RABBITMQ_LOGS", "logs/broker"),
            ("RABBITMQ_CONFIG_FILE", "rabbitmq.conf"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "enabled_plugins"),
        ] {
            command.env(variable, self.dir.join(file));
        }
        command
            .env("RABBITMQ_NODENAME", format!("posthaste{}@localhost", self.port))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_DIST_PORT", (self.port + 2).to_string())
            .env("ERL_EPMD_PORT", self.epmd_port().to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            // one scheduler thread that does not spin: many of these run beside the tests
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}")
            // the script then becomes the broker instead of staying as its parent
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .current_dir(&self.dir);
        Ok(command)
    }
}

impl Server<Node> {
    /// Runs `rabbitmqctl` on this broker. Takes about a second.
    ///
    /// # Panics
    /// If it can't be run; that the broker refuses is in the output.
    pub async fn ctl(&self, arguments: &[&str]) -> Output {
        let mut command = self.recipe.command("rabbitmqctl").expect("checked at the start");
        command.args(arguments).stdin(Stdio::null());
        let output = spawn_blocking(move || command.output()).await.expect("rabbitmqctl is run to its end");
        output.expect("rabbitmqctl can be run")
    }
}

/// Children that end if the launch fails half way.
struct Started(Vec<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for_port(port: u16) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(30);
    while let Err(error) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
        if Instant::now() > end {
            return Err(io::Error::other(format!("epmd does not answer on port {port}: {error}")));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn installed(name: &str) -> io::Result<PathBuf> {
    program(name).ok_or_else(|| io::Error::other(format!("`{name}` is not installed")))
}

/// The scripts themselves where they can be had: those in `PATH` insist on the machine's own set-up.
fn program(name: &str) -> Option<PathBuf> {
    let script = Path::new("/usr/lib/rabbitmq/bin").join(name);
    if script.is_file() { Some(script) } else { run::find(name) }
}
