//! The servers that all tests share, and must therefore never stop, block or fill.
//!
//! Each function gives a server's URL, or `None` when there is none: the test then returns, and
//! the skip is on record. Tests that break a server start one of their own ([`crate::server`]).

use std::{
    env,
    fs::OpenOptions,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    sync::OnceLock,
    thread,
    time::Duration,
};

use posthaste_core::OutboxName;

/// Longest wait for a server on this machine to say that it is there.
const PROBE: Duration = Duration::from_secs(5);

/// A kind of server that tests need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// PostgreSQL: user `postgres`, no password, database `test`.
    Postgres,
    /// RabbitMQ: user and password `guest`, virtual host `/`.
    RabbitMq,
}

impl Service {
    /// Every kind.
    pub const ALL: [Service; 2] = [Service::Postgres, Service::RabbitMq];

    /// Its name in messages and in `POSTHASTE_TEST_REQUIRE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Service::Postgres => "postgres",
            Service::RabbitMq => "rabbitmq",
        }
    }

    /// The name of a server of a test's own ([`crate::server`]), in the same places.
    #[must_use]
    pub fn own_name(self) -> &'static str {
        match self {
            Service::Postgres => "own-postgres",
            Service::RabbitMq => "own-rabbitmq",
        }
    }

    /// The environment variable that names a server to use, whatever else answers.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Service::Postgres => "POSTHASTE_TEST_POSTGRES",
            Service::RabbitMq => "POSTHASTE_TEST_RABBITMQ",
        }
    }

    /// The port that an installed server listens on.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Service::Postgres => 5432,
            Service::RabbitMq => 5672,
        }
    }

    /// The port of the one that `cargo xtask services up` starts.
    #[must_use]
    pub fn own_port(self) -> u16 {
        match self {
            Service::Postgres => 15432,
            Service::RabbitMq => 15682,
        }
    }

    /// The URL that tests use for a server on this port of this machine.
    #[must_use]
    pub fn url(self, port: u16) -> String {
        match self {
            Service::Postgres => format!("postgres://postgres@127.0.0.1:{port}/test"),
            Service::RabbitMq => format!("amqp://guest:guest@127.0.0.1:{port}/%2f"),
        }
    }

    /// Asks whether a server that tests can use is on this port of this machine.
    ///
    /// # Errors
    /// Says what was found there instead. Takes a few seconds at most.
    pub fn probe(self, port: u16) -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), PROBE)?;
        stream.set_read_timeout(Some(PROBE))?;
        stream.set_write_timeout(Some(PROBE))?;
        match self {
            Service::Postgres => log_in_to_postgres(&mut stream),
            Service::RabbitMq => greet_rabbitmq(&mut stream),
        }
    }

    /// The URL of the shared server: the one its variable names, else whichever answers.
    #[must_use]
    pub fn find(self) -> Option<String> {
        if let Ok(url) = env::var(self.variable())
            && !url.is_empty()
        {
            return Some(url);
        }
        [self.default_port(), self.own_port()].into_iter().find(|port| self.probe(*port).is_ok()).map(|p| self.url(p))
    }
}

/// The URL of the shared PostgreSQL, or `None` and the skip is on record.
///
/// # Panics
/// If `POSTHASTE_TEST_REQUIRE` says that the tests can't do without it.
#[must_use]
pub fn postgres() -> Option<String> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    shared(Service::Postgres, &FOUND)
}

/// The URL of the shared RabbitMQ, or `None` and the skip is on record.
///
/// # Panics
/// If `POSTHASTE_TEST_REQUIRE` says that the tests can't do without it.
#[must_use]
pub fn rabbitmq() -> Option<String> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    shared(Service::RabbitMq, &FOUND)
}

/// A name that no other test uses; drop its table at the end of the test.
///
/// # Panics
/// Never: the name is made of letters and digits.
#[must_use]
pub fn outbox_name() -> OutboxName {
    format!("t{}", uuid::Uuid::now_v7().simple()).parse().expect("33 letters and digits")
}

fn shared(service: Service, found: &OnceLock<Option<String>>) -> Option<String> {
    let url = found.get_or_init(|| service.find()).clone();
    if url.is_none() {
        missing(service.name(), service, "no server answers");
    }
    url
}

/// Puts on record that this test can't run for lack of what is named.
///
/// # Panics
/// If `POSTHASTE_TEST_REQUIRE` (names with commas between, or `all`) holds the name.
pub(crate) fn missing(name: &str, service: Service, why: &str) {
    if required(&env::var("POSTHASTE_TEST_REQUIRE").unwrap_or_default(), name) {
        panic!(
            "{name} is required by POSTHASTE_TEST_REQUIRE, but is missing: {why}. Get it with `cargo xtask services \
             up` (add --install to install packages){}",
            if name == service.name() {
                format!(", or set {} to the URL of one", service.variable())
            } else {
                String::new()
            }
        );
    }
    let skip = format!("{}: {name} is missing: {why}\n", test_name());
    eprint!("SKIPPED {skip}");
    let Some(file) = env::var_os("POSTHASTE_TEST_SKIPS") else { return };
    let written =
        OpenOptions::new().create(true).append(true).open(&file).and_then(|mut f| f.write_all(skip.as_bytes()));
    if let Err(error) = written {
        panic!("the skip of a test can't be noted in {}: {error}", Path::new(&file).display());
    }
}

fn required(list: &str, name: &str) -> bool {
    list.split(',').map(str::trim).any(|item| item == "all" || item == name)
}

/// The test binary without its hash, and the name of the thread, which is that of the test.
fn test_name() -> String {
    let exe = env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_str()?.to_owned())).unwrap_or_default();
    let binary = exe.rsplit_once('-').filter(|(_, hash)| hash.len() == 16).map_or(exe.as_str(), |(name, _)| name);
    match thread::current().name() {
        Some(test) if test != "main" => format!("{binary} {test}"),
        _ => binary.to_owned(),
    }
}

/// The first step of a session as `postgres` on `test`; anything but "you are in" is refused.
fn log_in_to_postgres(stream: &mut TcpStream) -> io::Result<()> {
    let parameters = b"user\0postgres\0database\0test\0\0";
    let mut startup = Vec::from(u32::try_from(8 + parameters.len()).map_err(io::Error::other)?.to_be_bytes());
    startup.extend(0x0003_0000_u32.to_be_bytes());
    startup.extend(parameters);
    stream.write_all(&startup)?;
    let mut answer = [0; 9];
    stream.read_exact(&mut answer)?;
    match answer {
        [b'R', 0, 0, 0, 8, 0, 0, 0, 0] => stream.write_all(&[b'X', 0, 0, 0, 4]),
        [b'R', ..] => Err(io::Error::other("it wants a password for user postgres")),
        [b'E', ..] => {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest)?;
            Err(io::Error::other(error_of_postgres(&rest)))
        }
        _ => Err(io::Error::other("what answers is not PostgreSQL")),
    }
}

/// The human text among the zero-terminated fields of an error message.
fn error_of_postgres(fields: &[u8]) -> String {
    let text = fields.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"M"));
    format!("it refuses a session: {}", text.map_or("no reason given".into(), String::from_utf8_lossy))
}

/// An AMQP 0-9-1 broker answers the protocol header with `connection.start` (class 10, method 10).
fn greet_rabbitmq(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"AMQP\x00\x00\x09\x01")?;
    let mut answer = [0; 11];
    stream.read_exact(&mut answer)?;
    match answer {
        [1, 0, 0, _, _, _, _, 0, 10, 0, 10] => Ok(()),
        _ => Err(io::Error::other("what answers is not an AMQP 0-9-1 broker")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_service_is_required_by_its_name_or_by_all() {
        assert!(required("all", "postgres") && required("rabbitmq, postgres", "postgres"));
        assert!(!required("", "postgres") && !required("rabbitmq", "postgres"));
    }

    #[test]
    fn outbox_names_differ() {
        assert_ne!(outbox_name(), outbox_name());
    }

    #[test]
    fn a_port_that_speaks_something_else_is_no_service() {
        for (service, answer) in [
            (Service::RabbitMq, &b"HTTP/1.1 400 Bad Request"[..]),
            (Service::RabbitMq, b""),
            (Service::Postgres, b"HTTP/1.1 400 Bad Request"),
            (Service::Postgres, b"R\0\0\0\x08\0\0\0\x03"),
            (Service::Postgres, b"E\0\0\0\x30SFATAL\0C3D000\0Mdatabase \"test\" does not exist\0\0"),
        ] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 8];
                stream.read_exact(&mut request).unwrap();
                stream.write_all(answer).unwrap();
            });
            assert!(service.probe(port).is_err(), "{service:?} accepted {answer:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn what_postgres_says_is_passed_on() {
        let fields = b"FATAL\0VFATAL\0C3D000\0Mdatabase \"test\" does not exist\0Fpostinit.c\0\0";
        assert_eq!(error_of_postgres(fields), "it refuses a session: database \"test\" does not exist");
    }
}
