//! What a read saw of the transactions under way: the proof a cursor needs.

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
    /// The proof of a store in which rows become visible in the order of their `seq`: nothing can
    /// ever appear behind a cursor.
    #[must_use]
    pub fn settled() -> Snapshot {
        Snapshot::default()
    }

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
