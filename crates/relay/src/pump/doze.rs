//! When to ask the store for wake-ups, and when to read without: a pure decision.
//!
//! A wake-up costs the writer that sends it. While rows come faster than a few hundred a second
//! the pump polls instead and tells writers not to bother.

use std::{collections::VecDeque, time::Duration};

use posthaste_core::port::Armed;

/// Wake-ups within [`WINDOW`] above which the pump polls. On a slow disk commits that wake let only
/// some 250 a second through.
const MANY: usize = 24;
const WINDOW: Duration = Duration::from_millis(100);
/// Pages in a row that left rows behind, after which writers need not wake.
const BACKLOG_PAGES: u32 = 3;
/// Rows read within [`POLL_FOR`] that make the pump go on polling.
const BUSY: usize = 60;
/// How long the pump polls before it looks whether it may rest again.
const POLL_FOR: Duration = Duration::from_millis(250);
/// Between polls.
const POLL: Duration = Duration::from_millis(5);
/// Between tries to rest while writers are under way that were told not to bother.
const ARM_AGAIN: Duration = Duration::from_millis(25);
/// Between tries of a wake-up source that broke; it is polled meanwhile.
const BROKEN: Duration = Duration::from_millis(500);

/// What to do about wake-ups now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Move {
    /// Nothing.
    Stay,
    /// Ask for wake-ups.
    Arm,
    /// Say that none are needed.
    Disarm,
    /// Read all lanes.
    Poll,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Armed,
    Disarmed { until: Duration, poll_at: Duration },
    Broken { retry_at: Duration },
}

pub(crate) struct Doze {
    mode: Mode,
    asking: bool,
    wakes: VecDeque<Duration>,
    backlog_pages: u32,
    /// Read since the polling began, or went on.
    rows: usize,
}

impl Doze {
    pub(crate) fn new() -> Doze {
        let mode = Mode::Disarmed { until: Duration::ZERO, poll_at: Duration::ZERO };
        Doze { mode, asking: false, wakes: VecDeque::new(), backlog_pages: 0, rows: 0 }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        !matches!(self.mode, Mode::Broken { .. })
    }

    /// A wake-up came.
    pub(crate) fn woken(&mut self, now: Duration) {
        self.wakes.push_back(now);
        while self.wakes.front().is_some_and(|at| *at + WINDOW < now) {
            self.wakes.pop_front();
        }
    }

    /// A page was read.
    pub(crate) fn read(&mut self, rows: usize, backlog: bool) {
        self.rows += rows;
        self.backlog_pages = if backlog { self.backlog_pages + 1 } else { 0 };
    }

    /// The source broke.
    pub(crate) fn broke(&mut self, now: Duration) {
        self.asking = false;
        self.mode = Mode::Broken { retry_at: now + BROKEN };
    }

    /// Arming ended.
    pub(crate) fn armed(&mut self, now: Duration, armed: Armed) {
        self.asking = false;
        self.mode = match armed {
            Armed::Yes => Mode::Armed,
            // What commits before the next try wakes nobody.
            Armed::WriterUnderWay => Mode::Disarmed { until: now + ARM_AGAIN, poll_at: now },
        };
    }

    /// Disarming ended.
    pub(crate) fn disarmed(&mut self, now: Duration) {
        self.asking = false;
        self.wakes.clear();
        self.rows = 0;
        self.mode = Mode::Disarmed { until: now + POLL_FOR, poll_at: now + POLL };
    }

    /// What to do, given whether there is nothing to read.
    pub(crate) fn next(&mut self, now: Duration, idle: bool) -> Move {
        if self.asking {
            return Move::Stay;
        }
        match &mut self.mode {
            Mode::Armed if self.wakes.len() > MANY || self.backlog_pages >= BACKLOG_PAGES => {
                self.asking = true;
                Move::Disarm
            }
            Mode::Disarmed { until, poll_at } if idle && now >= *until && self.rows >= BUSY => {
                self.rows = 0;
                (*until, *poll_at) = (now + POLL_FOR, now + POLL);
                Move::Poll
            }
            Mode::Disarmed { until, .. } if idle && now >= *until => {
                self.asking = true;
                Move::Arm
            }
            Mode::Disarmed { poll_at, .. } if idle && now >= *poll_at => {
                *poll_at = now + POLL;
                Move::Poll
            }
            Mode::Broken { retry_at } if now >= *retry_at => {
                self.asking = true;
                Move::Arm
            }
            _ => Move::Stay,
        }
    }

    /// When to ask again at the latest.
    pub(crate) fn next_deadline(&self, idle: bool) -> Option<Duration> {
        match self.mode {
            _ if self.asking => None,
            Mode::Armed => None,
            Mode::Disarmed { until, poll_at } => idle.then_some(until.min(poll_at)),
            Mode::Broken { retry_at } => Some(retry_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn rests_when_idle_and_wakes_are_few() {
        let mut doze = Doze::new();
        assert_eq!(doze.next(MS, false), Move::Stay);
        assert_eq!(doze.next(MS, true), Move::Arm);
        assert_eq!(doze.next(MS, true), Move::Stay, "one question at a time");
        doze.armed(2 * MS, Armed::Yes);
        for n in 0..100 {
            doze.woken(5 * n * MS);
            assert_eq!(doze.next(5 * n * MS, true), Move::Stay);
        }
    }

    #[test]
    fn report_107_many_wakes_or_a_backlog_spare_the_writers() {
        let mut doze = Doze::new();
        doze.next(MS, true);
        doze.armed(MS, Armed::Yes);
        (0..=MANY as u32).for_each(|n| doze.woken(2 * n * MS));
        assert_eq!(doze.next(61 * MS, true), Move::Disarm);
        doze.disarmed(62 * MS);
        assert_eq!(doze.next(67 * MS, true), Move::Poll);
        assert_eq!(doze.next(68 * MS, true), Move::Stay);
        assert_eq!(doze.next(400 * MS, true), Move::Arm);
        doze.armed(400 * MS, Armed::Yes);
        (0..BACKLOG_PAGES).for_each(|_| doze.read(1, true));
        assert_eq!(doze.next(401 * MS, false), Move::Disarm);
    }

    #[test]
    fn report_107_polls_for_as_long_as_rows_come_fast() {
        let mut doze = Doze::new();
        doze.disarmed(Duration::ZERO);
        for round in 1..5 {
            doze.read(BUSY, false);
            assert_eq!(doze.next(250 * round * MS, true), Move::Poll);
        }
        doze.read(BUSY - 1, false);
        assert_eq!(doze.next(1250 * MS, true), Move::Arm);
    }

    #[test]
    fn decision_11_polls_on_while_a_writer_is_under_way() {
        let mut doze = Doze::new();
        doze.next(MS, true);
        doze.armed(MS, Armed::WriterUnderWay);
        for n in 0..5 {
            assert_eq!(doze.next((2 + 5 * n) * MS, true), Move::Poll);
            assert_eq!(doze.next((3 + 5 * n) * MS, true), Move::Stay);
        }
        assert_eq!(doze.next(26 * MS, true), Move::Arm);
    }

    #[test]
    fn report_103_a_broken_source_is_asked_again() {
        let mut doze = Doze::new();
        doze.broke(MS);
        assert!(!doze.is_healthy());
        assert_eq!(doze.next_deadline(true), Some(501 * MS));
        assert_eq!(doze.next(501 * MS, false), Move::Arm);
        doze.armed(502 * MS, Armed::Yes);
        assert!(doze.is_healthy());
    }
}
