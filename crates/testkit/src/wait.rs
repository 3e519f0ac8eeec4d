//! Waiting for something that another task, process or server does.
//!
//! Tests never sleep for a time that should do: they state the condition, and how long it may take.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(10);

/// The answer of a condition: `bool`, or `Option` where the test goes on with what was found.
pub trait Answer {
    /// What is found once the condition holds.
    type Found;

    /// The thing found, if the condition holds.
    fn found(self) -> Option<Self::Found>;
}

impl Answer for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Answer for Option<T> {
    type Found = T;

    fn found(self) -> Option<T> {
        self
    }
}

/// Asks again and again until the condition holds. A condition that hangs is given up too.
///
/// # Panics
/// After the deadline, naming what was waited for.
pub async fn eventually<A: Answer>(deadline: Duration, what: &str, mut condition: impl AsyncFnMut() -> A) -> A::Found {
    let end = Instant::now() + deadline;
    loop {
        match timeout_at(end, condition()).await.map(A::found) {
            Ok(Some(found)) => return found,
            Ok(None) if Instant::now() < end => sleep(POLL).await,
            Ok(None) => panic!("after {deadline:?} still waiting: {what}"),
            Err(_) => panic!("after {deadline:?} still asking: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::pending};

    use super::*;

    #[tokio::test]
    async fn what_was_found_is_handed_over() {
        let asked = Cell::new(0);
        let found = eventually(Duration::from_secs(60), "a third question", async || {
            asked.set(asked.get() + 1);
            (asked.get() == 3).then_some("third")
        });
        assert_eq!((found.await, asked.get()), ("third", 3));
    }

    #[tokio::test]
    #[should_panic(expected = "still waiting: pigs fly")]
    async fn what_never_holds_fails_by_name() {
        eventually(Duration::from_millis(30), "pigs fly", async || false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "still asking: an answer")]
    async fn a_condition_that_hangs_fails_too() {
        eventually(Duration::from_millis(30), "an answer", pending::<bool>).await;
    }
}
