//! Processes of a server: all of them, since PostgreSQL and RabbitMQ are trees of processes whose
//! members leave the process group.
//!
//! Invariant: a list of pids is acted upon only while its root is our child or is known by its
//! start time, so that no stranger with a used-again pid is ever hit.

use std::{
    fs, io,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Longest wait for processes to be gone after SIGKILL.
const GONE: Duration = Duration::from_secs(20);

/// The name, in a server's folder, of the list of its processes: pid and start time a line.
const LIST: &str = "processes";

/// The processes that one start of a server made; ended by SIGKILL on drop unless left running.
#[derive(Debug, Default)]
pub(super) struct Processes {
    children: Vec<Child>,
}

impl Processes {
    /// Takes over children, the server last, and notes them in its folder.
    pub(super) fn of(children: Vec<Child>, dir: &Path) -> io::Result<Processes> {
        let processes = Processes { children };
        let lines = processes.roots().into_iter().filter_map(|pid| Some(format!("{pid} {}\n", Stat::of(pid)?.start)));
        fs::write(dir.join(LIST), lines.collect::<String>())?;
        Ok(processes)
    }

    /// Says how the server ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<String>> {
        let Some(server) = self.children.last_mut() else { return Ok(Some("it is stopped".to_owned())) };
        Ok(server.try_wait()?.map(|status| status.to_string()))
    }

    /// Sends a signal to the server itself, the root of its tree.
    pub(super) fn ask(&self, signal: Signal) {
        if let Some(server) = self.children.last() {
            send(server.id(), signal);
        }
    }

    /// Stops all of them where they are.
    pub(super) fn freeze(&self) {
        freeze(&self.roots());
    }

    /// Lets all of them go on.
    pub(super) fn thaw(&self) {
        self.roots().into_iter().flat_map(|root| tree(root, &stats())).for_each(|pid| send(pid, Signal::CONT));
    }

    /// Ends all of them by SIGKILL; they are gone afterwards.
    pub(super) fn kill(&mut self, dir: &Path) {
        kill(&self.roots());
        self.children.iter_mut().for_each(|child| drop(child.wait()));
        self.children.clear();
        // empty: nobody may signal these pids again
        let _ = fs::write(dir.join(LIST), "");
    }

    /// Gives them up without ending them.
    pub(super) fn leave_running(mut self) {
        self.children.clear();
    }

    /// The pids of all of them.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<u32> {
        self.roots().into_iter().flat_map(|root| tree(root, &stats())).collect()
    }

    fn roots(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }
}

/// Covers a start that fails or is cancelled half way.
impl Drop for Processes {
    fn drop(&mut self) {
        if !self.children.is_empty() {
            kill(&self.roots());
            self.children.iter_mut().for_each(|child| drop(child.wait()));
        }
    }
}

/// Ends what an earlier process left running with this folder; false if nothing was.
pub(super) fn kill_left_running(dir: &Path) -> bool {
    let list = fs::read_to_string(dir.join(LIST)).unwrap_or_default();
    let same = |line: &str| -> Option<u32> {
        let (pid, start) = line.split_once(' ')?;
        let pid = pid.parse().ok()?;
        (Stat::of(pid)?.start == start).then_some(pid)
    };
    let roots: Vec<u32> = list.lines().filter_map(same).collect();
    kill(&roots);
    !roots.is_empty()
}

/// Ends the processes of a server, and removes its folder, when our own process is gone without
/// having done so: it waits for the end of a pipe that only our process holds.
#[derive(Debug)]
pub(super) struct Keeper(Child);

impl Keeper {
    pub(super) fn watch(dir: &Path) -> io::Result<Keeper> {
        use std::os::unix::process::CommandExt as _;
        let script = format!(r#"read -r _; while read -r pid _; do kill -KILL "$pid"; done <"$1/{LIST}"; rm -rf "$1""#);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script, "keeper"]).arg(dir);
        // a group of its own: Ctrl-C at the terminal must not end it with the tests
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command.spawn().map(Keeper)
    }
}

#[cfg(test)]
impl Keeper {
    /// The end of the pipe that our process holds.
    pub(super) fn let_go(&mut self) -> Option<std::process::ChildStdin> {
        self.0.stdin.take()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is needed of `/proc/PID/stat`.
#[derive(Debug, Clone)]
struct Stat {
    pid: u32,
    parent: u32,
    zombie: bool,
    start: String,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // the name, in brackets, may hold anything, brackets too
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Stat {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            zombie: *fields.first()? == "Z",
            start: (*fields.get(19)?).to_owned(),
        })
    }
}

/// The living processes of this machine.
fn stats() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Stat::of).filter(|stat| !stat.zombie).collect()
}

/// A process and all that descend from it.
fn tree(root: u32, stats: &[Stat]) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(stats.iter().filter(|stat| stat.parent == parent).map(|stat| stat.pid));
        next += 1;
    }
    found
}

/// Stops whole trees and gives their members. Looks again until no new ones turn up: those seen
/// are stopped and start no more.
fn freeze(roots: &[u32]) -> Vec<u32> {
    let mut seen = Vec::new();
    loop {
        let stats = stats();
        let found: Vec<u32> = roots.iter().flat_map(|root| tree(*root, &stats)).filter(|p| !seen.contains(p)).collect();
        if found.is_empty() {
            return seen;
        }
        found.iter().for_each(|pid| send(*pid, Signal::STOP));
        seen.extend(found);
    }
}

fn kill(roots: &[u32]) {
    let all = freeze(roots);
    all.iter().for_each(|pid| send(*pid, Signal::KILL));
    let end = Instant::now() + GONE;
    while all.iter().any(|pid| is_alive(*pid)) && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process is there and has not ended.
pub(super) fn is_alive(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.zombie)
}

/// A process that is gone already needs no signal, so errors are of no interest.
fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
