//! What processes have used so far, read from `/proc` (Linux only; elsewhere the figures are absent).

use std::{fs, time::Duration};

use tokio_postgres::Client;

use crate::Result;

/// Linux counts a process's time in hundredths of a second wherever it runs.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of this process.
pub(crate) fn own_cpu() -> Option<Duration> {
    cpu_of("self", false)
}

/// CPU time of a server's process and all its children, those that have ended included.
pub(crate) fn tree_cpu(root: u32) -> Option<Duration> {
    let children = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let children = children.filter(|pid| field(pid, 1).is_some_and(|parent| parent == u64::from(root)));
    let living = children.filter_map(|pid| cpu_of(&pid, false)).sum::<Duration>();
    Some(cpu_of(&root.to_string(), true)? + living)
}

fn cpu_of(pid: &str, with_ended_children: bool) -> Option<Duration> {
    let ticks = |at| field(pid, at);
    let own = ticks(11)? + ticks(12)?;
    let ended = if with_ended_children { ticks(13)? + ticks(14)? } else { 0 };
    Some(TICK * u32::try_from(own + ended).ok()?)
}

/// A field of `/proc/PID/stat`, counted from the state.
fn field(pid: &str, at: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name, in brackets, may hold anything, brackets too
    text.rsplit_once(')')?.1.split_whitespace().nth(at)?.parse().ok()
}

/// Memory of a process in MiB: a line of `/proc/PID/status`.
pub(crate) fn memory(pid: u32, line: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib: f64 = text.lines().find_map(|text| text.strip_prefix(line))?.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// The server process behind a session, if it runs on this machine.
pub(crate) async fn postmaster(client: &Client) -> Result<Option<u32>> {
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    let is_postgres = fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("postgres"));
    let parent = field(&pid.to_string(), 1).and_then(|parent| u32::try_from(parent).ok());
    Ok(parent.filter(|_| is_postgres))
}

/// CPU microseconds for each of `count`, between two readings.
pub(crate) fn micros_each(before: Option<Duration>, after: Option<Duration>, count: u32) -> f64 {
    match (before, after) {
        (Some(before), Some(after)) => after.saturating_sub(before).as_secs_f64() * 1e6 / f64::from(count),
        _ => f64::NAN,
    }
}
