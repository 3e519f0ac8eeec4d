//! Memory is bounded by configuration, not by what waits. Alone in its process, whose memory is measured.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(dead_code, reason = "only a part of what the modules hold is used")]

#[path = "e2e/bench.rs"]
mod bench;
#[path = "e2e/desk.rs"]
mod desk;
#[path = "e2e/queue.rs"]
mod queue;
#[path = "e2e/witness.rs"]
mod witness;

use std::fs;

use posthaste::{Event, Settings};

use crate::bench::Bench;

const EVENTS: u8 = 40;
const BODY: usize = 5 << 20;

/// What is promised for any backlog of any body size.
const LIMIT: u64 = 256 << 20;

/// The most memory this process has used since the last call of `forget_peak`, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// 200 MiB wait; the budget for everything held is 64 MiB, of which drivers hold copies.
#[tokio::test(flavor = "multi_thread")]
async fn decision_21_report_148_a_backlog_of_large_bodies_fits_the_memory_promised() {
    let Some(bench) = Bench::new().await else { return };
    for n in 0..EVENTS {
        bench.enqueue(&[Event::new("large", "application/octet-stream", vec![n; BODY])]).await;
    }
    forget_peak();
    let relay = bench.relay(Settings::default());
    bench.until_published(u64::from(EVENTS)).await;
    let peak = peak();
    relay.stop().await;
    assert_eq!(bench.queued().await, u32::from(EVENTS));
    bench.tear_down().await;
    assert!(peak < LIMIT, "{} MiB", peak >> 20);
}
