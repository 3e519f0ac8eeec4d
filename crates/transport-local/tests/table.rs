//! `sqlite:FILE`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{DEADLINE, bytes, difficult_bodies, message, row, text};
use posthaste_core::{Body, Class, Message, options::Options, port::Target};
use rusqlite::Connection;
use tempfile::TempDir;

fn target(directory: &TempDir) -> Target {
    let url = format!("sqlite:{}/deliveries.db", directory.path().display());
    posthaste_transport_local::parse(&url, Options::default()).unwrap()
}

fn table(directory: &TempDir) -> Connection {
    Connection::open(directory.path().join("deliveries.db")).unwrap()
}

async fn publish_all(target: &Target, batch: Vec<Message>) {
    target.transport.publish(batch, DEADLINE).await.into_iter().for_each(|answer| answer.unwrap());
}

fn count(table: &Connection) -> i64 {
    table.query_row("SELECT count(*) FROM delivered", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_directory_is_refused_before_anything_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let check = |path: &std::path::Path| posthaste_transport_local::check_place(&format!("sqlite:{}", path.display()));
    assert!(check(directory.path()).unwrap_err().to_string().contains("is a directory; name a file in it"));
    check(&directory.path().join("new.db")).unwrap();
}

#[tokio::test]
async fn port_p7_everything_survives_the_trip() {
    let directory = tempfile::tempdir().unwrap();
    let target = target(&directory);
    let sent = text("a");
    publish_all(&target, vec![sent.clone()]).await;
    let columns = "message_id, row_id, source, type, time, subject, tenant, traceparent, headers, content_type";
    let values: Vec<String> = table(&directory)
        .query_row(&format!("SELECT {columns} FROM delivered"), [], |row| (0..10).map(|n| row.get(n)).collect())
        .unwrap();
    let (id, row_id) = (sent.id.to_string(), sent.row.id.to_string());
    let time = "2026-01-02T03:04:05.678000Z";
    let headers = r#"{"x-shop":"north"}"#;
    let expected =
        [&*id, &row_id, "/posthaste/orders", "order.placed", time, "k1", "acme", "00-1", headers, "text/plain"];
    assert_eq!(values, expected);
}

#[tokio::test]
async fn report_076_bodies_are_kept_byte_for_byte_and_null_is_not_empty() {
    let directory = tempfile::tempdir().unwrap();
    let target = target(&directory);
    let bodies = difficult_bodies();
    publish_all(&target, bodies.iter().map(|(content_type, body)| bytes(content_type, body)).collect()).await;
    publish_all(&target, vec![message(row("text/plain", Body::Null))]).await;
    let table = table(&directory);
    let mut statement = table.prepare("SELECT body FROM delivered ORDER BY rowid").unwrap();
    let kept: Vec<Option<Vec<u8>>> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let sent: Vec<Option<Vec<u8>>> = bodies.into_iter().map(|(_, body)| Some(body)).chain([None]).collect();
    assert!(kept == sent);
}

#[tokio::test]
async fn a_message_id_is_delivered_once() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (target(&directory), target(&directory));
    let (a, b) = (text("a"), text("b"));
    publish_all(&first, vec![a.clone()]).await;
    publish_all(&second, vec![a.clone(), b.clone(), b]).await;
    assert_eq!(count(&table(&directory)), 2);
}

#[tokio::test]
async fn a_missing_directory_is_transient_and_heals() {
    let directory = tempfile::tempdir().unwrap();
    let away = directory.path().join("away");
    let url = format!("sqlite:{}/deliveries.db", away.display());
    let target = posthaste_transport_local::parse(&url, Options::default()).unwrap();
    let failure = target.transport.publish(vec![text("a")], DEADLINE).await.remove(0).unwrap_err();
    assert_eq!(failure.class, Class::Transient);
    assert!(target.transport.probe(DEADLINE).await.is_err());
    std::fs::create_dir(&away).unwrap();
    target.transport.probe(DEADLINE).await.unwrap();
    assert!(!away.join("deliveries.db").exists(), "a probe makes nothing");
    publish_all(&target, vec![text("a")]).await;
}

#[tokio::test]
async fn what_is_no_database_is_transient_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deliveries.db");
    std::fs::write(&path, "somebody's notes".repeat(100)).unwrap();
    let failure = target(&directory).transport.publish(vec![text("a")], DEADLINE).await.remove(0).unwrap_err();
    assert_eq!(failure.class, Class::Transient, "{failure}");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("somebody's notes"));
}

#[tokio::test]
async fn a_replaced_file_gets_what_comes_after() {
    let directory = tempfile::tempdir().unwrap();
    let target = target(&directory);
    publish_all(&target, vec![text("a")]).await;
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(directory.path().join(format!("deliveries.db{end}")));
    }
    publish_all(&target, vec![text("b")]).await;
    assert_eq!(count(&table(&directory)), 1);
}
