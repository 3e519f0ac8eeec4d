//! Passwords and TLS, against a server that this test starts and stops.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use posthaste_core::{
    ErrorKind, Event, OutboxName,
    port::{Produce, Schema},
};
use posthaste_store_postgres::{PostgresStore, Settings};

const PASSWORD: &str = "p@s:s/w%r#d?{}^ +é%41";
const ESCAPED: &str = "p%40s%3As%2Fw%25r%23d%3F%7B%7D%5E%20%2B%C3%A9%2541";

/// Passwords by SCRAM, TLS by a certificate for `localhost` of an authority of its own.
struct Server {
    directory: tempfile::TempDir,
    port: u16,
    process: Child,
}

impl Server {
    /// Starts one, or says why not.
    fn start() -> Option<Server> {
        let Some(programs) = programs() else {
            eprintln!("skipped: initdb or openssl is not to be found");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        give_away(directory.path());
        run(as_server(&programs.join("initdb")).args(["-A", "scram-sha-256", "-U", "postgres", "--no-sync"]).args([
            "-E",
            "UTF8",
            "--pwfile",
            directory.path().join("password").to_str().unwrap(),
            "-D",
            data.to_str().unwrap(),
        ]));
        certificates(&data);
        give_away(directory.path());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = as_server(&programs.join("postgres"))
            .args(["-D", data.to_str().unwrap(), "-p", &port.to_string(), "-c", "fsync=off", "-c", "ssl=on"])
            .args(["-c", "listen_addresses=localhost", "-c", "unix_socket_directories="])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Server { directory, port, process })
    }

    fn url(&self, password: &str, rest: &str) -> String {
        format!("postgres://postgres:{password}@{rest}").replace("PORT", &self.port.to_string())
    }

    fn authority(&self) -> String {
        self.directory.path().join("data/ca.pem").to_str().unwrap().replace('/', "%2F")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGINT is PostgreSQL's fast shutdown; it reaches the server through `setpriv` or directly.
        _ = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        _ = self.process.wait();
    }
}

/// Where the server's programs are, if everything is there that this test needs.
fn programs() -> Option<PathBuf> {
    let found = Command::new("openssl").arg("version").output().is_ok_and(|openssl| openssl.status.success());
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut bins = versions.flatten().map(|version| version.path().join("bin"));
    bins.find(|bin| found && bin.join("initdb").exists())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n")
}

/// PostgreSQL refuses to run as root.
fn as_server(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

fn give_away(directory: &Path) {
    fs::write(directory.join("password"), PASSWORD).unwrap();
    if is_root() {
        run(Command::new("chown").args(["-R", "postgres:postgres"]).arg(directory));
    }
}

fn certificates(data: &Path) {
    fs::write(data.join("names"), "subjectAltName=DNS:localhost").unwrap();
    for arguments in [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=authority -days 2",
        "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt",
    ] {
        run(Command::new("openssl").args(arguments.split(' ')).current_dir(data));
    }
    run(Command::new("chmod").args(["600", "server.key"]).current_dir(data));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn store(url: &str) -> PostgresStore {
    PostgresStore::new(url, OutboxName::unnamed(), Settings::default()).unwrap()
}

/// The server as it is once it has started.
async fn ready(url: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = store(url).schema().await {
        assert!(error.kind() == ErrorKind::Unavailable && Instant::now() < deadline, "{error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn report_115_passwords_and_tls_as_the_url_says() {
    let Some(server) = Server::start() else { return };
    let ca = server.authority();
    ready(&server.url(ESCAPED, "localhost:PORT/postgres")).await;
    for (rest, works) in [
        ("localhost:PORT/postgres?sslmode=disable".to_owned(), true),
        ("localhost:PORT/postgres?sslmode=require".to_owned(), true),
        ("127.0.0.1:PORT/postgres?sslmode=require".to_owned(), true),
        (format!("localhost:PORT/postgres?sslmode=require&sslrootcert={ca}"), true),
        ("localhost:PORT/postgres?sslmode=verify-ca".to_owned(), false),
        (format!("127.0.0.1:PORT/postgres?sslmode=verify-ca&sslrootcert={ca}"), true),
        ("localhost:PORT/postgres?sslmode=verify-full".to_owned(), false),
        (format!("localhost:PORT/postgres?sslmode=verify-full&sslrootcert={ca}"), true),
        (format!("127.0.0.1:PORT/postgres?sslmode=verify-full&sslrootcert={ca}"), false),
    ] {
        let outcome = store(&server.url(ESCAPED, &rest)).schema().await;
        assert_eq!(outcome.is_ok(), works, "{rest}: {outcome:?}");
        if let Err(error) = outcome {
            assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
            assert!(error.to_string().contains("certificate"), "{error}");
        }
    }
    let wrong = store(&server.url("s3cret", "localhost:PORT/postgres")).schema().await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Config);
    assert!(wrong.to_string().contains("password") && !format!("{wrong:?}").contains("s3cret"), "{wrong:?}");
    let whole = store(&server.url(ESCAPED, "localhost:PORT/postgres"));
    whole.migrate().await.unwrap();
    whole.produce(&[Event::tombstone("t")]).await.unwrap();
}

#[tokio::test]
async fn an_empty_database_is_told_from_one_without_the_outbox() {
    let Some(server) = Server::start() else { return };
    let url = server.url(ESCAPED, "localhost:PORT/postgres");
    ready(&url).await;
    let store = store(&url);
    assert_eq!(store.schema().await.unwrap(), posthaste_core::port::SchemaState::EmptyDatabase);
    let other = PostgresStore::new(&url, "other".parse().unwrap(), Settings::default()).unwrap();
    other.migrate().await.unwrap();
    assert_eq!(store.schema().await.unwrap(), posthaste_core::port::SchemaState::Missing);
}
