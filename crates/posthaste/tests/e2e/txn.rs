//! The immediate path announces what was committed, at once and once, and nothing else.

use std::{sync::Arc, time::Duration};

use posthaste::{RelayHandle, RowId, Settings};
use posthaste_store_postgres::{Outbox, TransactionError};

use crate::{
    bench::{Bench, event, events},
    desk::connect,
    queue::{copies, numbers},
    witness,
};

/// Hours between two looks: whatever arrives was announced.
fn announced() -> Settings {
    Settings { interval: Duration::from_secs(3600), ..Settings::default() }
}

/// The outbox of an application that relays itself. Without the wake-up of the database, only the
/// receipts announce.
async fn relayed(bench: &Bench) -> (RelayHandle, Outbox) {
    let relay = bench.relay(announced());
    let outbox = Outbox::new(bench.outbox.clone()).with_waker(relay.waker(&bench.outbox).unwrap());
    let idle = |health: &posthaste::Health| health.recovers() && health.outboxes[0].progress.idle;
    crate::desk::until_health(&relay, "the relay is at rest", idle).await;
    (relay, outbox)
}

async fn without_notify(bench: &Bench) {
    bench.sql(r#"ALTER TABLE "{t}" DISABLE TRIGGER wake"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r21_a_receipt_that_is_handed_over_delivers_at_once() {
    let Some(bench) = Bench::new().await else { return };
    without_notify(&bench).await;
    let (relay, outbox) = relayed(&bench).await;
    let mut client = connect(&bench.postgres).await;
    for n in 0..20 {
        let mut tx = client.transaction().await.unwrap();
        let receipt = outbox.enqueue(&mut tx, &[event(n).key("k")]).await.unwrap();
        tx.commit().await.unwrap();
        outbox.committed(receipt);
        assert_eq!(numbers(&bench.receive(1).await), [n]);
    }
    bench.until_published(20).await;
    let immediate = witness::counted("posthaste_published_total", &bench.outbox, "path=immediate");
    assert!(immediate > 0, "the path is not told");
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_130_decision_09_only_what_was_committed_is_announced() {
    let Some(bench) = Bench::new().await else { return };
    let (relay, outbox) = relayed(&bench).await;
    let mut client = connect(&bench.postgres).await;
    let mut tx = client.transaction().await.unwrap();
    let mut receipts = vec![outbox.enqueue(&mut tx, &[event(1)]).await.unwrap()];
    let mut savepoint = tx.transaction().await.unwrap();
    receipts.push(outbox.enqueue(&mut savepoint, &[event(2)]).await.unwrap());
    savepoint.rollback().await.unwrap();
    receipts.push(outbox.enqueue(&mut tx, &[event(3)]).await.unwrap());
    tx.commit().await.unwrap();
    receipts.into_iter().for_each(|receipt| outbox.committed(receipt));
    let mut arrived = numbers(&bench.receive(2).await);
    arrived.sort_unstable();
    assert_eq!(arrived, [1, 3]);

    let mut tx = client.transaction().await.unwrap();
    let receipt = outbox.enqueue(&mut tx, &events(4..10)).await.unwrap();
    tx.rollback().await.unwrap();
    outbox.committed(receipt);
    bench.enqueue(&[event(10)]).await;
    assert_eq!(numbers(&bench.receive(1).await), [10]);
    bench.until_published(3).await;
    relay.stop().await;
    assert_eq!(bench.queued().await, 0, "a phantom");
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_135_an_id_that_is_used_twice_is_one_event_and_the_transaction_goes_on() {
    let Some(bench) = Bench::new().await else { return };
    let (relay, outbox) = relayed(&bench).await;
    bench.sql(r#"CREATE TABLE "{t}_business" (n integer); INSERT INTO "{t}_business" VALUES (0)"#).await;
    let (mut client, id) = (connect(&bench.postgres).await, RowId::generate());
    let mut tx = client.transaction().await.unwrap();
    let first = outbox.enqueue(&mut tx, &[event(1).id(id)]).await.unwrap();
    let second = outbox.enqueue(&mut tx, &[event(1).id(id)]).await.unwrap();
    assert_eq!([first.rows()[0].existing, second.rows()[0].existing], [false, true]);
    tx.batch_execute(&format!(r#"UPDATE "{}_business" SET n = 1"#, bench.outbox.table())).await.unwrap();
    tx.commit().await.unwrap();
    [first, second].into_iter().for_each(|receipt| outbox.committed(receipt));
    assert_eq!(numbers(&bench.receive(1).await), [1]);
    bench.until_published(1).await;
    assert_eq!(bench.number(r#"SELECT n::bigint FROM "{t}_business""#).await, 1);
    relay.stop().await;
    assert_eq!(bench.queued().await, 0, "a second copy");
    bench.sql(r#"DROP TABLE "{t}_business""#).await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tw_06_a_transaction_that_is_run_again_announces_what_its_last_run_read() {
    let Some(bench) = Bench::new().await else { return };
    let (relay, outbox) = relayed(&bench).await;
    bench.sql(r#"CREATE TABLE "{t}_business" (n bigint); INSERT INTO "{t}_business" VALUES (0)"#).await;
    let table = format!(r#""{}_business""#, bench.outbox.table());
    let (mut client, rival, mut runs) = (connect(&bench.postgres).await, connect(&bench.postgres).await, 0);
    let done: Result<(), TransactionError> = outbox
        .transaction(&mut client, async |tx, outbox| {
            runs += 1;
            tx.batch_execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").await?;
            let n: i64 = tx.query_one(&format!("SELECT n FROM {table}"), &[]).await?.get(0);
            outbox.enqueue(tx, &[event(usize::try_from(n)? + 1)]).await?;
            if runs == 1 {
                rival.batch_execute(&format!("UPDATE {table} SET n = 41")).await?;
            }
            tx.batch_execute(&format!("UPDATE {table} SET n = n + 1")).await?;
            Ok(())
        })
        .await;
    done.unwrap();
    assert_eq!(runs, 2);
    assert_eq!(numbers(&bench.receive(1).await), [42]);
    bench.until_published(1).await;
    relay.stop().await;
    assert_eq!(bench.queued().await, 0, "the first run was announced");
    bench.sql(&format!("DROP TABLE {table}")).await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_104_neither_a_large_row_nor_many_rows_are_too_much_for_a_wake_up() {
    let Some(bench) = Bench::new().await else { return };
    let (relay, _) = relayed(&bench).await;
    let large = posthaste::Event::new("large", "application/octet-stream", vec![7; 1 << 20]);
    bench.enqueue(&[large]).await;
    assert_eq!(bench.receive(1).await[0].data.len(), 1 << 20);
    bench.enqueue(&events(0..5000)).await;
    let received = bench.receive(5000).await;
    assert_eq!(copies(&received).len(), 5000);
    bench.until_published(5001).await;
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_019_receipts_and_a_hasty_pump_never_send_a_row_twice() {
    let Some(bench) = Bench::new().await else { return };
    let relay = bench.relay(Settings { interval: Duration::from_millis(50), ..Settings::default() });
    let outbox = Arc::new(Outbox::new(bench.outbox.clone()).with_waker(relay.waker(&bench.outbox).unwrap()));
    let writers = (0..4).map(|writer| {
        let (url, outbox) = (bench.postgres.clone(), Arc::clone(&outbox));
        tokio::spawn(async move {
            let mut client = connect(&url).await;
            for n in 0..500 {
                let mut tx = client.transaction().await.unwrap();
                let receipt = outbox.enqueue(&mut tx, &[event(writer * 500 + n)]).await.unwrap();
                tx.commit().await.unwrap();
                outbox.committed(receipt);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    bench.until_published(2000).await;
    relay.stop().await;
    assert_eq!(bench.queued().await, 2000, "duplicates without a fault");
    assert_eq!(copies(&bench.receive(2000).await).len(), 2000);
    bench.tear_down().await;
}
