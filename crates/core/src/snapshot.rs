//! What a read saw of the transactions under way: the proof a cursor needs.

use crate::{Lane, Seq};

/// How a store shows that nothing appeared behind the cursors unnoticed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Rows become visible in the order of their `seq`: nothing can ever appear behind a cursor.
    Ordered,
    /// A row behind a cursor can appear only from a transaction that this snapshot sees in progress.
    Snapshot(Snapshot),
    /// Every undelivered row at or behind the cursors of the lanes that were read, in the same view
    /// as the page; of a lane with more than 10,000 of them the newest. One that the reader has not
    /// seen before has appeared late.
    Behind(Vec<(Lane, Seq)>),
}

impl Proof {
    /// The snapshot, where the store has one.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Proof::Snapshot(snapshot) => Some(snapshot),
            Proof::Ordered | Proof::Behind(_) => None,
        }
    }
}

/// The transactions that a read could not see yet. A row behind a cursor can still appear only
/// from one of them, so a cursor may pass a row for good only once all of them have ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Every transaction below has ended.
    pub xmin: u64,
    /// No transaction from here on had started writing.
    pub xmax: u64,
    /// Transactions in progress, ascending, all in `xmin..xmax`.
    pub in_progress: Vec<u64>,
}

impl Snapshot {
    /// Whether `transaction` could still commit after this snapshot was taken.
    #[must_use]
    pub fn sees_in_progress(&self, transaction: u64) -> bool {
        transaction >= self.xmax || self.in_progress.binary_search(&transaction).is_ok()
    }
}

/// Parses PostgreSQL's text form `xmin:xmax:xip,xip`.
impl std::str::FromStr for Snapshot {
    type Err = String;

    fn from_str(text: &str) -> Result<Snapshot, String> {
        let bad = || format!("not a snapshot: {text:?}");
        let mut parts = text.split(':');
        let mut number = || parts.next().and_then(|part| part.parse().ok()).ok_or_else(bad);
        let (xmin, xmax) = (number()?, number()?);
        let list = parts.next().ok_or_else(bad)?;
        let in_progress =
            list.split(',').filter(|id| !id.is_empty()).map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
        Ok(Snapshot { xmin, xmax, in_progress })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_text_form() {
        let snapshot: Snapshot = "10:20:10,14,15".parse().unwrap();
        assert!(snapshot.sees_in_progress(14) && snapshot.sees_in_progress(20));
        assert!(!snapshot.sees_in_progress(9) && !snapshot.sees_in_progress(11));
        assert_eq!("10:10:".parse::<Snapshot>().unwrap().in_progress, Vec::<u64>::new());
        assert!("10".parse::<Snapshot>().is_err() && "1:2:x".parse::<Snapshot>().is_err());
    }
}
