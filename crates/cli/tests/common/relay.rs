//! Relays as processes.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Outbox, binary, posthaste, run};

const PATIENCE: Duration = Duration::from_secs(60);

pub fn lines(count: usize) -> String {
    (0..count)
        .map(|n| format!("{{\"type\":\"order.placed\",\"key\":\"k{}\",\"body\":{{\"n\":{n},\"x\":1.50}}}}\n", n % 40))
        .collect()
}

pub fn enqueue(outbox: &Outbox, ndjson: &str) {
    let args = ["enqueue", "--store", &outbox.url, "--outbox", &outbox.name, "--ndjson", "-"];
    run(binary().args(args), ndjson.as_bytes()).ended(0);
}

pub fn relay(outbox: &Outbox, more: &[&str]) -> Command {
    let mut command = binary();
    command.args(["relay", "--store", &outbox.url, "--outbox", &outbox.name]).args(more);
    command
}

pub fn status(outbox: &Outbox) -> Value {
    posthaste(&["status", "--store", &outbox.url, "--outbox", &outbox.name, "--json"]).ended(0).json().remove(0)
}

/// A folder of a test's own.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn target(&self) -> String {
        format!("file:{}", self.path("out.ndjson").display())
    }

    pub fn delivered(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("out.ndjson")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Waits until `found` answers something.
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the relay starts")
}

pub fn terminate(child: &Child) {
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

pub fn config(folder: &Folder, outbox: &Outbox, rest: &str) -> String {
    let file = folder.path("posthaste.yaml");
    let text = format!("store: \"{}\"\noutboxes: [\"{}\"]\n{rest}", outbox.url, outbox.name);
    fs::write(&file, text).expect("written");
    file.display().to_string()
}

pub fn get(address: &str, path: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(address) else { return (0, String::new()) };
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// A relay with `--http`, and where it serves.
pub struct Served {
    pub child: Child,
    pub address: String,
    drain: Option<JoinHandle<std::io::Result<u64>>>,
}

impl Served {
    pub fn start(command: &mut Command) -> Served {
        let mut child = start(command.args(["--http", "127.0.0.1:0"]));
        let mut err = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.starts_with("serving ") {
            line.clear();
            assert_ne!(err.read_line(&mut line).expect("the address is said"), 0, "it ended");
        }
        let address = line.trim().rsplit('/').next().expect("an address").to_owned();
        let drain = std::thread::spawn(move || std::io::copy(&mut err, &mut std::io::sink()));
        Served { child, address, drain: Some(drain) }
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        get(&self.address, path)
    }

    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).1).expect("JSON")
    }

    /// Ends it in an orderly way.
    pub fn end(mut self) {
        terminate(&self.child);
        assert!(self.child.wait().expect("ended").success());
        self.drain.take().expect("not joined yet").join().expect("drained").expect("read");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
