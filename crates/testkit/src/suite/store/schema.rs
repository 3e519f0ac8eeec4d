//! Making, upgrading and checking the schema.

use posthaste_core::{ErrorKind, port::SchemaState};

use super::scene::{Scene, event, everything};
use crate::suite::case::cases;

cases![Scene;
    port_d_a_place_without_a_schema_says_so,
    port_d_work_without_a_schema_is_refused_by_kind,
    port_d1_report_144_many_first_starts_all_succeed,
    port_d1_many_migrations_of_a_current_schema_all_succeed,
    port_d2_a_newer_schema_is_refused,
    port_d3_a_current_schema_and_its_rows_stay,
    port_d_its_statements_make_it_from_nothing,
    port_d_a_table_of_somebody_else_is_refused_and_left,
    port_d_no_row_has_a_seq_below_those_that_are_read,
];

async fn port_d_a_place_without_a_schema_says_so(scene: &Scene) {
    let bare = scene.bare().await;
    let state = bare.store.schema().await.expect("schema");
    let expected = if scene.facts().database_of_its_own { SchemaState::EmptyDatabase } else { SchemaState::Missing };
    assert_eq!(state, expected);
    assert_eq!(bare.store.schema().await.expect("schema"), state, "looking makes nothing");
    bare.sql("CREATE TABLE \"something_else\" (a integer); DROP TABLE \"something_else\"").await;
    assert_eq!(scene.store.schema().await.expect("schema"), SchemaState::Current);
}

async fn port_d_work_without_a_schema_is_refused_by_kind(scene: &Scene) {
    let bare = scene.bare().await;
    bare.sql("CREATE TABLE IF NOT EXISTS \"posthaste_suite_bystander\" (a integer)").await;
    let state = bare.store.schema().await.expect("schema");
    let read = bare.store.read(everything()).await.expect_err("no schema");
    let status = bare.store.status().await.expect_err("no schema");
    bare.sql("DROP TABLE IF EXISTS \"posthaste_suite_bystander\"").await;
    assert_eq!(state, SchemaState::Missing);
    assert_eq!((read.kind(), status.kind()), (ErrorKind::MissingSchema, ErrorKind::MissingSchema));
    assert!(read.what_to_do().is_some_and(|hint| hint.contains("migrate")), "{read:?}");
}

async fn migrate_at_once(scene: &Scene, count: usize) {
    let stores: Vec<_> = (0..count).map(|_| scene.reopen()).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for store in stores {
        tasks.spawn(async move { store.migrate().await });
    }
    while let Some(result) = tasks.join_next().await {
        result.expect("a task").expect("all succeed");
    }
}

async fn port_d1_report_144_many_first_starts_all_succeed(scene: &Scene) {
    for _ in 0..3 {
        let bare = scene.bare().await;
        migrate_at_once(&bare, 12).await;
        assert_eq!(bare.store.schema().await.expect("schema"), SchemaState::Current);
        bare.commit(&[event("t")]).await;
        assert_eq!(bare.undelivered().await.len(), 1);
    }
}

async fn port_d1_many_migrations_of_a_current_schema_all_succeed(scene: &Scene) {
    scene.commit(&[event("t")]).await;
    migrate_at_once(scene, 8).await;
    assert_eq!(scene.undelivered().await.len(), 1);
}

async fn port_d2_a_newer_schema_is_refused(scene: &Scene) {
    scene.commit(&[event("t")]).await;
    scene.place.make_newer().await;
    let store = scene.reopen();
    let state = store.schema().await.expect("schema");
    assert!(matches!(state, SchemaState::Newer(_)), "{state:?}");
    let error = store.migrate().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::UnknownSchema, "{error}");
    assert!(matches!(store.schema().await.expect("schema"), SchemaState::Newer(_)), "it was left alone");
}

async fn port_d3_a_current_schema_and_its_rows_stay(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    let before = scene.get(id).await;
    scene.store.migrate().await.expect("migrate");
    assert_eq!(scene.store.schema().await.expect("schema"), SchemaState::Current);
    assert_eq!(scene.get(id).await, before);
}

async fn port_d_its_statements_make_it_from_nothing(scene: &Scene) {
    let bare = scene.bare().await;
    let statements = bare.store.sql();
    bare.place.sql(&statements).await.unwrap_or_else(|error| panic!("{error}\n{statements}"));
    assert_eq!(bare.store.schema().await.expect("schema"), SchemaState::Current);
    bare.store.migrate().await.expect("migrate");
    bare.commit(&[event("t")]).await;
    assert_eq!(bare.undelivered().await.len(), 1);
}

async fn port_d_a_table_of_somebody_else_is_refused_and_left(scene: &Scene) {
    let bare = scene.bare().await;
    bare.sql("CREATE TABLE $t (theirs integer); INSERT INTO $t VALUES (7)").await;
    for error in [
        bare.store.schema().await.expect_err("no outbox"),
        bare.store.migrate().await.expect_err("refused"),
        bare.reopen().migrate().await.expect_err("refused again"),
    ] {
        assert_eq!(error.kind(), ErrorKind::UnknownSchema, "{error}");
        assert!(error.to_string().contains("no outbox of Posthaste"), "{error}");
        assert!(error.what_to_do().is_some_and(|hint| hint.contains("--outbox")), "{error:?}");
    }
    assert_eq!(bare.sql("SELECT theirs FROM $t").await, [[Some("7".to_owned())]]);
    bare.sql("DROP TABLE $t").await;
}

/// A relay reads on from 0: it would never meet such a row.
async fn port_d_no_row_has_a_seq_below_those_that_are_read(scene: &Scene) {
    for seq in ["0", "-1"] {
        let insert = format!("INSERT INTO {} (seq, type, lane) VALUES ({seq}, 't', 0)", scene.table());
        scene.place.sql(&insert).await.expect_err("refused");
    }
    scene.insert(&[0], b"x").await;
    let rows = scene.undelivered().await;
    assert_eq!(rows.len(), 1);
    scene.place.sql(&format!("UPDATE {} SET seq = 0", scene.table())).await.expect_err("refused");
}
