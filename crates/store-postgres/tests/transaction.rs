//! The managed transaction.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::sync::{Arc, Mutex};

use posthaste_core::{Body, Event, LaneSet, port::Waker};
use posthaste_store_postgres::{Outbox, TransactionError};
use support::Bench;

#[derive(Default)]
struct Woken(Mutex<Vec<LaneSet>>);

impl Waker for Woken {
    fn wake(&self, lanes: LaneSet) {
        self.0.lock().unwrap().push(lanes);
    }
}

fn numbered(number: u32) -> Event {
    Event::new("t", "text/plain", number.to_string()).key("a")
}

#[tokio::test]
async fn tw_06_a_body_that_lost_a_race_runs_again_and_its_row_is_that_of_the_last_run() {
    let Some(bench) = Bench::new().await else { return };
    let woken = Arc::new(Woken::default());
    let outbox = Outbox::new(bench.name.clone()).with_waker(woken.clone());
    let mut client = bench.client().await;
    // In a task of its own: the future can be sent to another thread.
    let run = tokio::spawn(async move {
        let mut runs = 0;
        outbox
            .transaction(&mut client, async move |tx, outbox| {
                runs += 1;
                outbox.enqueue(tx, &[numbered(runs)]).await?;
                if runs < 3 {
                    tx.batch_execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$").await?;
                }
                Ok(runs)
            })
            .await
    });
    assert_eq!(run.await.unwrap().unwrap(), 3);
    let rows = bench.undelivered().await;
    assert_eq!(rows.iter().map(|row| row.body.clone()).collect::<Vec<_>>(), [Body::Bytes("3".into())]);
    assert_eq!(*woken.0.lock().unwrap(), [LaneSet::from_iter([rows[0].lane])], "once, after the commit");
    bench.end().await;
}

#[tokio::test]
async fn a_commit_that_lost_a_race_runs_the_body_again() {
    let Some(bench) = Bench::new().await else { return };
    bench
        .run(
            r#"CREATE SEQUENCE "{t}_commits";
               CREATE FUNCTION "{t}_race"() RETURNS trigger LANGUAGE plpgsql AS $$
               BEGIN IF nextval('"{t}_commits"') = 1 THEN RAISE SQLSTATE '40P01'; END IF; RETURN NULL; END $$;
               CREATE CONSTRAINT TRIGGER race AFTER INSERT ON "{t}" DEFERRABLE INITIALLY DEFERRED
               FOR EACH ROW EXECUTE FUNCTION "{t}_race"()"#,
        )
        .await;
    let (outbox, mut client, mut runs) = (Outbox::new(bench.name.clone()), bench.client().await, 0);
    let done = outbox.transaction(&mut client, async |tx, outbox| {
        runs += 1;
        outbox.enqueue(tx, &[numbered(runs)]).await?;
        Ok(())
    });
    done.await.unwrap();
    assert_eq!((runs, bench.undelivered().await.len()), (2, 1));
    bench.run(r#"DROP TRIGGER race ON "{t}"; DROP FUNCTION "{t}_race"; DROP SEQUENCE "{t}_commits""#).await;
    bench.end().await;
}

#[tokio::test]
async fn a_body_that_refuses_leaves_nothing_and_runs_once() {
    let Some(bench) = Bench::new().await else { return };
    let woken = Arc::new(Woken::default());
    let outbox = Outbox::new(bench.name.clone()).with_waker(woken.clone());
    let (mut client, mut runs) = (bench.client().await, 0);
    let refused = outbox
        .transaction(&mut client, async |tx, outbox| {
            runs += 1;
            outbox.enqueue(tx, &[numbered(1)]).await?;
            Err::<(), _>("out of stock".into())
        })
        .await;
    assert!(matches!(&refused, Err(TransactionError::Body(why)) if why.to_string() == "out of stock"), "{refused:?}");
    assert_eq!((runs, bench.undelivered().await.len(), woken.0.lock().unwrap().len()), (1, 0, 0));
    bench.end().await;
}

#[tokio::test]
async fn a_race_that_is_lost_every_time_is_given_up() {
    let Some(bench) = Bench::new().await else { return };
    let (outbox, mut client, mut runs) = (Outbox::new(bench.name.clone()), bench.client().await, 0);
    let lost = outbox
        .transaction(&mut client, async |tx, _| {
            runs += 1;
            tx.batch_execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$").await?;
            Ok(())
        })
        .await;
    assert!(lost.is_err());
    assert_eq!(runs, Outbox::ATTEMPTS);
    bench.end().await;
}
