//! Single sessions of the relay are ended by an administrator.

use std::time::Duration;

use posthaste::{Settings, port::Produce as _};
use posthaste_testkit::wait::eventually;

use crate::{
    bench::{Bench, PATIENCE, event, events},
    desk::{connect, says, until_health},
    queue::{copies, numbers},
};

/// Woken only, so that nothing but a wake-up or a new session's first read can deliver.
fn woken() -> Settings {
    Settings { interval: Duration::from_secs(3600), ..Settings::default() }
}

/// The sessions of the bench's outbox, but for the one that does this test's own work.
async fn sessions(bench: &Bench) -> Vec<i32> {
    let relay = format!("posthaste {}", bench.outbox);
    let query = "SELECT pid FROM pg_stat_activity WHERE application_name = $1 OR pid = ANY(
        SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = to_regclass($2)::oid)";
    let rows = bench.client.query(query, &[&relay, &format!("\"{}\"", bench.outbox.table())]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn report_103_every_session_that_is_ended_is_replaced() {
    let Some(bench) = Bench::new().await else { return };
    let relay = bench.relay(woken());
    bench.enqueue(&[event(0)]).await;
    bench.receive(1).await;
    bench.until_published(1).await;
    // One each for reading, settling, looking, producing, listening, holding.
    let sessions = sessions(&bench).await;
    assert!(sessions.len() >= 6, "{sessions:?}");
    for (n, session) in sessions.iter().enumerate() {
        let ended = bench.client.query_one("SELECT pg_terminate_backend($1)", &[session]).await.unwrap();
        assert!(ended.get::<_, bool>(0));
        let batch = events(n * 10 + 1..n * 10 + 11);
        // The session for producing may be the one: nothing of the batch is written then.
        eventually(PATIENCE, "the events are committed", async || bench.store.produce(&batch).await.is_ok()).await;
        let received = bench.queue.receive_distinct(10).await;
        assert_eq!(copies(&received).len(), 10);
        until_health(&relay, "all is well", |health| health.recovers() && !says(health, "wake-up")).await;
    }
    let all = sessions.len() as u64 * 10 + 1;
    bench.until_published(all).await;
    relay.stop().await;
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_12_a_relay_that_lost_its_hold_sends_nothing_until_it_has_it_again() {
    let Some(bench) = Bench::new().await else { return };
    let relay = bench.relay(Settings { interval: Duration::from_millis(200), ..Settings::default() });
    until_health(&relay, "the outbox is held", |health| health.recovers()).await;
    let lock = "SELECT l.pid, l.classid::bigint, l.objid::bigint FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
        WHERE l.locktype = 'advisory' AND a.application_name LIKE 'posthaste relay %' AND l.objid = to_regclass($1)::oid";
    let table = format!("\"{}\"", bench.outbox.table());
    let held = bench.client.query_one(lock, &[&table]).await.unwrap();
    let (pid, class, object): (i32, i64, i64) = (held.get(0), held.get(1), held.get(2));
    let rival = connect(&bench.postgres).await;
    let rivals_pid: i32 = rival.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let queueing = tokio::spawn(async move {
        rival.batch_execute(&format!("SELECT pg_advisory_lock({class}, {object})")).await.unwrap();
        rival
    });
    eventually(PATIENCE, "a rival waits for the lock", async || {
        let waits = "SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted";
        bench.client.query_one(waits, &[&rivals_pid]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    bench.client.query_one("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    let rival = queueing.await.unwrap();
    until_health(&relay, "the outbox is lost", |health| !health.recovers() && says(health, "another relay")).await;
    bench.enqueue(&events(0..20)).await;
    assert_eq!(bench.status().await.pending, 20);
    assert_eq!(bench.queued().await, 0, "sent without the right to");
    drop(rival);
    let mut arrived = numbers(&bench.receive(20).await);
    arrived.sort_unstable();
    assert_eq!(arrived, (0..20).collect::<Vec<_>>());
    until_health(&relay, "the outbox is held again", |health| health.recovers()).await;
    relay.stop().await;
    bench.tear_down().await;
}
