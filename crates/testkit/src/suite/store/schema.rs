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
