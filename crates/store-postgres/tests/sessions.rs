//! Sessions that break, and servers that keep silent.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use posthaste_core::{
    ErrorKind, Event, OutboxName,
    port::{Hold, Inspect, Lanes, Produce, Schema},
};
use posthaste_store_postgres::{PostgresStore, Settings};
use posthaste_testkit::mark_ids;
use support::{Bench, everything, until};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

/// Leads to the shared server until it is told to hold everything back without a word.
struct Proxy {
    address: SocketAddr,
    frozen: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Proxy {
    async fn new() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (frozen, is_frozen) = watch::channel(false);
        let serving = tokio::spawn(async move {
            let mut carrying = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                carrying.spawn(carry(client, is_frozen.clone()));
            }
        });
        Proxy { address, frozen, serving }
    }

    fn store(&self, name: &OutboxName) -> PostgresStore {
        let settings = Settings {
            connect_timeout: Duration::from_millis(300),
            statement_timeout: Duration::from_millis(300),
            keep_alive: Duration::from_millis(300),
            ..Settings::default()
        };
        PostgresStore::new(&format!("postgres://postgres@{}/test", self.address), name.clone(), settings).unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn carry(mut client: TcpStream, mut frozen: watch::Receiver<bool>) {
    _ = frozen.wait_for(|frozen| !*frozen).await;
    let Ok(mut server) = TcpStream::connect("127.0.0.1:5432").await else { return };
    let halted = frozen.wait_for(|frozen| *frozen);
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
        _ = halted => {}
    }
    // Both ends stay open and hear nothing.
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_silent_server_is_an_error_within_the_deadline_and_the_next_call_connects_again() {
    let Some(bench) = Bench::new().await else { return };
    let proxy = Proxy::new().await;
    let store = proxy.store(&bench.name);
    store.produce(&[Event::tombstone("t")]).await.unwrap();
    assert_eq!(store.read(everything()).await.unwrap().rows.len(), 1);
    proxy.frozen.send_replace(true);
    let begun = Instant::now();
    for error in [
        store.read(everything()).await.unwrap_err(),
        store.read(everything()).await.unwrap_err(),
        store.status().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("no answer within"), "{error}");
    }
    assert!(store.produce(&[Event::tombstone("t")]).await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(20));
    proxy.frozen.send_replace(false);
    assert_eq!(store.read(everything()).await.unwrap().rows.len(), 1);
    bench.end().await;
}

#[tokio::test]
async fn report_103_a_silent_server_loses_the_listener_and_the_holder() {
    let Some(bench) = Bench::new().await else { return };
    let proxy = Proxy::new().await;
    let store = proxy.store(&bench.name);
    let wakeups = store.wakeups();
    wakeups.arm().await.unwrap();
    let mut held = store.try_hold("x").await.unwrap().expect("free");
    proxy.frozen.send_replace(true);
    let wake = timeout(Duration::from_secs(30), wakeups.next()).await.expect("the loss is noticed");
    assert!(!wake.healthy);
    let reason = timeout(Duration::from_secs(30), held.lost()).await.expect("the loss is noticed");
    assert!(reason.contains("no answer"), "{reason}");
    timeout(Duration::from_secs(5), held.release()).await.expect("releasing waits for nobody");
    bench.end().await;
}

#[tokio::test]
async fn a_session_that_the_server_ends_is_made_again_by_the_next_call() {
    let Some(bench) = Bench::new().await else { return };
    let kill = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'posthaste {}'",
        bench.name
    );
    for _ in 0..3 {
        bench.store.read(everything()).await.unwrap();
        assert!(!bench.rows(&kill).await.is_empty());
        until("the store works again", async || bench.store.read(everything()).await.is_ok()).await;
    }
    bench.end().await;
}

#[tokio::test]
async fn a_call_that_is_dropped_half_way_leaves_a_session_that_works() {
    let Some(bench) = Bench::new().await else { return };
    let events: Vec<Event> = (0..2000).map(|_| Event::new("t", "text/plain", vec![b'x'; 2000])).collect();
    bench.store.produce(&events).await.unwrap();
    for micros in (0..50).map(|step| step * 300) {
        _ = timeout(Duration::from_micros(micros), bench.store.read(everything())).await;
        _ = timeout(Duration::from_micros(micros), bench.store.produce(&[Event::tombstone("u")])).await;
    }
    let rows = bench.undelivered().await;
    assert!(rows.len() >= 2000 && rows[1999].body.len() == 2000);
    bench.end().await;
}

#[tokio::test]
async fn errors_say_what_to_change_and_never_the_password() {
    let Some(bench) = Bench::bare(Settings::default()).await else { return };
    for (url, kind, says) in [
        ("postgres://postgres:s3cret@127.0.0.1:1/test", ErrorKind::Unavailable, "refused"),
        ("postgres://postgres:s3cret@127.0.0.1:5432/no_such_database", ErrorKind::Config, "no_such_database"),
        ("postgres://no_such_role:s3cret@127.0.0.1:5432/test", ErrorKind::Config, "no_such_role"),
        ("postgres://postgres:s3cret@127.0.0.1:5432/test?sslmode=verify-full", ErrorKind::Config, "TLS"),
    ] {
        let store = PostgresStore::new(url, bench.name.clone(), Settings::default()).unwrap();
        let error = store.schema().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
    bench.end().await;
}

#[tokio::test]
async fn a_statement_that_waits_for_a_lock_ends_with_the_deadline_and_so_does_its_server_process() {
    let settings = Settings { statement_timeout: Duration::from_millis(200), ..Settings::default() };
    let Some(bench) = Bench::with(settings).await else { return };
    let answers = bench.store.produce(&[Event::tombstone("t")]).await.unwrap();
    bench.run(r#"BEGIN; LOCK TABLE "{t}""#).await;
    let error = mark_ids(&bench.store, &[answers[0].id]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    bench.run("ROLLBACK").await;
    assert_eq!(mark_ids(&bench.store, &[answers[0].id]).await.unwrap().changed, 1);
    bench.end().await;
}
