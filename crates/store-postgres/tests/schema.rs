//! The tables: made once by many, quoted everywhere, and known by their version.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::sync::Arc;

use futures_util::future::join_all;
use posthaste_core::{
    ErrorKind, Event,
    port::{By, Filter, Hold, Inspect, Lanes, Operate, Produce, PruneRequest, Schema, SchemaState, Selection},
};
use posthaste_store_postgres::{PostgresStore, Settings};
use posthaste_testkit::{mark_ids, service};
use support::{Bench, everything};

#[tokio::test]
async fn report_144_many_first_starts_at_once_all_succeed() {
    let Some(bench) = Bench::bare(Settings::default()).await else { return };
    for _ in 0..3 {
        let absent = bench.store.schema().await.unwrap();
        assert!(matches!(absent, SchemaState::Missing | SchemaState::EmptyDatabase), "{absent:?}");
        let stores: Vec<Arc<PostgresStore>> = (0..12).map(|_| Arc::new(bench.store(Settings::default()))).collect();
        let starts = stores.iter().cloned().map(|store| tokio::spawn(async move { store.migrate().await }));
        for start in join_all(starts).await {
            start.unwrap().unwrap();
        }
        assert_eq!(bench.store.schema().await.unwrap(), SchemaState::Current);
        // The functions and the log stay behind, as they do where somebody drops no more than the outbox.
        bench.run(r#"DROP TABLE "{t}""#).await;
    }
    bench.end().await;
}

#[tokio::test]
async fn port_d3_migrating_again_changes_nothing() {
    let Some(bench) = Bench::new().await else { return };
    bench.store.produce(&[Event::tombstone("t")]).await.unwrap();
    bench.store.migrate().await.unwrap();
    assert_eq!(bench.undelivered().await.len(), 1);
    bench.end().await;
}

#[tokio::test]
async fn port_d2_an_unknown_version_is_refused() {
    let Some(bench) = Bench::new().await else { return };
    bench.run(r#"CREATE OR REPLACE FUNCTION "{t}_version"() RETURNS integer LANGUAGE sql AS 'SELECT 7'"#).await;
    assert_eq!(bench.store.schema().await.unwrap(), SchemaState::Newer(7));
    let refused = bench.store.migrate().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::UnknownSchema);
    assert!(refused.to_string().contains('7'), "{refused}");
    bench.end().await;
}

#[tokio::test]
async fn decision_19_without_its_tables_every_call_names_the_command_that_makes_them() {
    let Some(bench) = Bench::bare(Settings::default()).await else { return };
    let errors = [
        bench.store.read(everything()).await.unwrap_err(),
        mark_ids(&bench.store, &[posthaste_core::RowId::generate()]).await.unwrap_err(),
        bench.store.status().await.unwrap_err(),
        bench.store.wakeups().arm().await.unwrap_err(),
        bench.store.try_hold("x").await.err().unwrap(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::MissingSchema, "{error}");
        assert!(error.what_to_do().unwrap().contains("posthaste migrate --store"), "{error}");
    }
    let refused = bench.store.produce(&[Event::tombstone("t")]).await.unwrap_err();
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    bench.end().await;
}

#[tokio::test]
async fn report_145_every_name_that_is_accepted_works_in_every_call() {
    if service::postgres().is_none() {
        return;
    }
    let unique = service::outbox_name().to_string();
    let tail = &unique[unique.len() - 12..];
    for name in [format!("Out{tail}"), format!("my-{tail}"), format!("a b.{tail}"), format!("{}{tail}", "x".repeat(28))]
    {
        let Some(mut bench) = Bench::bare(Settings::default()).await else { return };
        bench.name = name.parse().unwrap();
        bench.store = bench.store(Settings::default());
        let store = &bench.store;
        store.migrate().await.unwrap();
        assert_eq!(store.schema().await.unwrap(), SchemaState::Current, "{name}");
        let wakeups = store.wakeups();
        wakeups.arm().await.unwrap();
        store.produce(&[Event::tombstone("t").key("k")]).await.unwrap();
        assert_eq!(wakeups.next().await.lanes.len(), 1);
        let held = store.try_hold("r").await.unwrap().expect("free");
        assert_eq!(store.status().await.unwrap().relays.len(), 1);
        held.release().await;
        let by = By { who: "w".to_owned(), why: "w".to_owned() };
        let all = Selection::Matching(Filter::default());
        assert_eq!(store.retry(&all, &by, 5).await.unwrap().changed, 1);
        let rows = bench.undelivered().await;
        assert!(store.predecessor(&rows[0]).await.unwrap().is_none());
        assert_eq!(mark_ids(store, &[rows[0].id]).await.unwrap().changed, 1);
        let old = PruneRequest { status: posthaste_core::Status::Published, older_than: std::time::Duration::ZERO };
        assert_eq!(store.prune(&old, 5).await.unwrap(), 1);
        assert_eq!(store.discard(&all, &by, 5).await.unwrap().matched, 0);
        bench.end().await;
    }
}

#[tokio::test]
async fn a_writer_needs_no_right_but_to_insert_and_a_stranger_can_read_the_version() {
    let Some(bench) = Bench::new().await else { return };
    let role = bench.name.to_string();
    bench.run(&format!(r#"CREATE ROLE "{role}"; GRANT INSERT ON "{{t}}" TO "{role}"; SET ROLE "{role}""#)).await;
    bench.run(r#"INSERT INTO "{t}" (type, ordering_key) VALUES ('t', 'a')"#).await;
    let refused = bench.client.batch_execute(&bench.sql(r#"SELECT FROM "{t}""#)).await;
    assert!(refused.is_err());
    let version = bench.rows(&format!(r#"SELECT "{}_version"()"#, bench.name.table())).await;
    assert_eq!(version[0].get::<_, i32>(0), 1);
    bench.run(&format!(r#"RESET ROLE; DROP OWNED BY "{role}"; DROP ROLE "{role}""#)).await;
    assert_eq!(bench.undelivered().await[0].lane.number(), 12);
    bench.end().await;
}

#[tokio::test]
async fn a_user_without_rights_is_told_the_grant() {
    let Some(bench) = Bench::new().await else { return };
    let role = bench.name.to_string();
    bench.run(r#"INSERT INTO "{t}" (type) VALUES ('t')"#).await;
    bench.run(&format!(r#"CREATE ROLE "{role}"; GRANT "{role}" TO CURRENT_USER"#)).await;
    let separator = if bench.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}options=-c%20role%3D{role}", bench.url);
    let store = PostgresStore::new(&url, bench.name.clone(), Settings::default()).unwrap();
    let row = bench.undelivered().await[0].reference();
    for error in [store.status().await.unwrap_err(), store.mark(&[row]).await.unwrap_err()] {
        let grant = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON \"{}\" TO", bench.name.table());
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.what_to_do().is_some_and(|hint| hint.contains(&grant)), "{error:?}");
    }
    bench.run(&format!(r#"DROP OWNED BY "{role}"; DROP ROLE "{role}""#)).await;
    bench.end().await;
}

#[tokio::test]
async fn report_083_counters_and_clocks_are_wide() {
    let Some(bench) = Bench::new().await else { return };
    bench.run(r#"INSERT INTO "{t}" (seq, type, due_at) VALUES (9000000000000000000, 't', '2040-01-01')"#).await;
    let rows = bench.undelivered().await;
    assert_eq!(
        (rows[0].seq, rows[0].due_at.to_string().as_str()),
        (9_000_000_000_000_000_000, "2040-01-01T00:00:00.000000Z")
    );
    bench.end().await;
}
