//! The table and what is read from it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Case, DEADLINE, bodies, by, read, request, text};
use posthaste_core::{
    Body, ErrorKind, Event, OutboxName, RowId, Status,
    port::{Inspect, Lanes, Operate, Produce, Schema, SchemaState, Selection, Settled, Settlement},
};
use posthaste_store_sqlite::SqliteStore;
use posthaste_testkit::mark_ids;
use rusqlite::Connection;

#[tokio::test]
async fn decision_19_looking_creates_no_file_and_migrate_does() {
    let case = Case::new();
    let store = case.store();
    assert_eq!(store.schema().await.unwrap(), SchemaState::EmptyDatabase);
    assert_eq!(store.read(request(0)).await.unwrap_err().kind(), ErrorKind::MissingSchema);
    assert!(!case.path().exists());
    store.migrate().await.unwrap();
    assert_eq!(store.schema().await.unwrap(), SchemaState::Current);
}

#[tokio::test]
async fn decision_19_an_empty_file_and_one_with_other_tables_are_told_apart() {
    let case = Case::new();
    std::fs::write(case.path(), "").unwrap();
    assert_eq!(case.store().schema().await.unwrap(), SchemaState::EmptyDatabase);
    case.application().execute_batch("CREATE TABLE entry (id INTEGER)").unwrap();
    let store = case.store();
    assert_eq!(store.schema().await.unwrap(), SchemaState::Missing);
    let error = store.status().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingSchema);
    assert!(error.what_to_do().unwrap().contains("migrate"));
}

#[tokio::test]
async fn what_is_no_database_or_no_directory_is_said() {
    let case = Case::new();
    std::fs::write(case.path(), "this is a text and not a database at all".repeat(100)).unwrap();
    let error = case.store().schema().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let path = case.path();
    let directory = path.parent().unwrap();
    let store = SqliteStore::new(&format!("sqlite:{}", directory.display()), &case.name).unwrap();
    for error in [store.schema().await.unwrap_err(), store.migrate().await.unwrap_err()] {
        assert!(error.kind() == ErrorKind::Config && error.to_string().ends_with("it is a directory"), "{error}");
        assert!(error.what_to_do().unwrap().contains("app.db"), "{error:?}");
    }
    let store = SqliteStore::new("sqlite:/nowhere/to/be/found/app.db", &case.name).unwrap();
    let error = store.migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("/nowhere/to/be/found"), "{error}");
}

#[tokio::test]
async fn port_d2_a_newer_schema_is_refused() {
    let (case, store) = Case::migrated().await;
    case.application().execute_batch("UPDATE orders_outbox_meta SET version = 9").unwrap();
    assert_eq!(store.schema().await.unwrap(), SchemaState::Newer(9));
    assert_eq!(store.migrate().await.unwrap_err().kind(), ErrorKind::UnknownSchema);
}

#[tokio::test(flavor = "multi_thread")]
async fn report_144_many_migrate_one_absent_file_at_once() {
    for _ in 0..10 {
        let case = Case::new();
        let stores: Vec<SqliteStore> = (0..8).map(|_| case.store()).collect();
        let all = futures_util::future::join_all(stores.iter().map(Schema::migrate)).await;
        all.into_iter().for_each(|done| done.unwrap());
        assert_eq!(case.store().schema().await.unwrap(), SchemaState::Current);
    }
}

#[tokio::test]
async fn report_145_every_name_that_is_accepted_works() {
    let case = Case::new();
    for name in ["Outbox", "my-schema", "order", "a b", "x.y"] {
        let name: OutboxName = name.parse().unwrap();
        let store = SqliteStore::new(&case.url(), &name).unwrap();
        store.migrate().await.unwrap();
        store.produce(&[text("t", name.as_str())]).await.unwrap();
        assert_eq!(bodies(&read(&store, 0).await.rows), [name.as_str()]);
        let id = read(&store, 0).await.rows[0].id;
        assert_eq!(store.discard(&Selection::Ids(vec![id]), &by(), 10).await.unwrap().changed, 1);
    }
}

#[tokio::test]
async fn the_sql_that_is_printed_makes_the_schema() {
    let case = Case::new();
    let store = case.store();
    case.application().execute_batch(&store.sql()).unwrap();
    assert_eq!(store.schema().await.unwrap(), SchemaState::Current);
}

#[tokio::test]
async fn a_plain_insert_of_type_and_body_is_a_complete_row() {
    let (case, store) = Case::migrated().await;
    case.application()
        .execute("INSERT INTO orders_outbox (type, body) VALUES ('order.placed', '{\"a\": 1}')", [])
        .unwrap();
    let page = read(&store, 0).await;
    let row = &page.rows[0];
    assert_eq!((row.defect.as_deref(), row.status, row.attempts), (None, Status::Pending, 0));
    assert_eq!((row.id.uuid().get_version_num(), row.content_type.as_str()), (7, "application/json"));
    assert_eq!(row.body, Body::Bytes("{\"a\": 1}".into()));
    assert!(row.due_at <= page.now && page.now.since(row.created_at) < DEADLINE);
}

#[tokio::test]
async fn a_plain_insert_of_another_language_is_a_complete_row() {
    let (case, store) = Case::migrated().await;
    let script = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\n\
        c.execute('INSERT INTO orders_outbox (type, ordering_key, body) VALUES (?, ?, ?)', ('t', 'k', b'\\x00\\xff'))\nc.commit()";
    let Ok(done) = std::process::Command::new("python3").args(["-c", script]).arg(case.path()).output() else {
        return; // There is no other language on this machine.
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let page = read(&store, 0).await;
    assert_eq!(page.rows[0].body, Body::Bytes(vec![0, 255].into()));
    assert_eq!((page.rows[0].defect.as_deref(), page.rows[0].key.as_deref()), (None, Some("k")));
    assert_eq!(page.rows[0].id.uuid().get_version_num(), 7);
}

#[tokio::test]
async fn an_id_of_another_writer_occurs_once() {
    let (case, _store) = Case::migrated().await;
    let insert = "INSERT INTO orders_outbox (id, type) VALUES ('0190163d-8694-739b-aea5-966c26f8ad91', 't')";
    let application = case.application();
    application.execute(insert, []).unwrap();
    assert!(application.execute(insert, []).unwrap_err().to_string().contains("UNIQUE"));
}

#[tokio::test]
async fn rows_that_cannot_be_delivered_say_why_and_can_be_settled() {
    let (case, store) = Case::migrated().await;
    let application = case.application();
    let insert = |columns: &str, values: &str| {
        let sql = format!("INSERT INTO orders_outbox (type, {columns}) VALUES ('t', {values})");
        application.execute(&sql, []).unwrap();
    };
    insert("headers", "'[1]'");
    insert("ordering_key", "'a' || char(0) || 'b'");
    insert("due_at", "'tomorrow'");
    insert("id", "'order-17'");
    insert("id", "x'ff00'");
    insert("id", "CAST(x'ff01' AS TEXT)");
    let rows = read(&store, 0).await.rows;
    let defects: Vec<&str> = rows.iter().map(|row| row.defect.as_deref().unwrap()).collect();
    for (defect, part) in defects.iter().zip(["headers", "key", "due_at", "id", "id", "id"]) {
        assert!(defect.contains(part), "{defect}");
    }
    let invalid = |id| Settlement::Invalid { id, counted: false, error: "no".to_owned(), outstanding: None };
    let settlements: Vec<Settlement> = rows.iter().map(|row| invalid(row.id)).collect();
    assert_eq!(store.settle(&settlements).await.unwrap(), [Settled::Done; 6]);
    assert_eq!(store.status().await.unwrap().invalid, 6);
    let found = case.store().get(rows[3].id).await.unwrap();
    assert_eq!(found.unwrap().seq, rows[3].seq, "another process finds it by the same id");
}

#[tokio::test]
async fn odd_forms_of_a_uuid_are_the_same_id() {
    let (case, store) = Case::migrated().await;
    let id = RowId::generate();
    let insert = "INSERT INTO orders_outbox (id, type) VALUES (?1, 't')";
    case.application().execute(insert, [id.to_string().to_uppercase()]).unwrap();
    case.application().execute(insert, [RowId::generate().uuid().as_bytes()]).unwrap();
    let rows = read(&store, 0).await.rows;
    assert_eq!((rows[0].id, rows[0].defect.as_deref(), rows[1].defect.as_deref()), (id, None, None));
    assert_eq!(mark_ids(&store, &[rows[0].id, rows[1].id]).await.unwrap().changed, 2);
}

#[tokio::test]
async fn bodies_come_back_byte_for_byte() {
    let (_case, store) = Case::migrated().await;
    let bytes = [vec![], vec![0, 1, 0], vec![0xff, 0xfe, 0x80], b"{\n  \"a\": 1.10\n}".to_vec(), vec![7; 5 << 20]];
    let mut events: Vec<Event> = bytes.iter().map(|body| Event::new("t", "x/y", body.clone())).collect();
    events.push(Event::tombstone("t"));
    store.produce(&events).await.unwrap();
    let rows = read(&store, 0).await.rows;
    for (row, body) in rows.iter().zip(&bytes) {
        assert!(row.body == Body::Bytes(body.clone().into()));
    }
    assert_eq!(rows[5].body, Body::Null, "report 076: NULL is not empty");
}

#[tokio::test]
async fn report_083_times_after_2038_are_kept() {
    let (case, store) = Case::migrated().await;
    let sql = "INSERT INTO orders_outbox (type, due_at, created_at) VALUES ('t', 2208988800000000, 2208988800000000)";
    case.application().execute(sql, []).unwrap();
    assert!(read(&store, 0).await.rows[0].due_at.to_string().starts_with("2040-"));
}

#[tokio::test]
async fn port_l3_pages_keep_their_budget_and_the_first_row_always_comes() {
    let (_case, store) = Case::migrated().await;
    let sizes = [300, 200, 10, 10];
    let events = sizes.map(|size| Event::new("t", "x/y", vec![b'x'; size]));
    store.produce(&events).await.unwrap();
    let mut wanted = request(0);
    wanted.max_bytes = 250;
    let mut taken = Vec::new();
    loop {
        let page = store.read(wanted.clone()).await.unwrap();
        taken.push(page.rows.len());
        wanted.from[0].1 = page.rows.last().unwrap().seq;
        if page.more.is_empty() {
            break;
        }
    }
    assert_eq!(taken, [1, 3]);
}

#[tokio::test]
async fn decision_21_a_body_over_the_limit_is_not_read() {
    let (case, store) = Case::migrated().await;
    let sql = "INSERT INTO orders_outbox (type, body) VALUES ('t', zeroblob(30000000))";
    case.application().execute(sql, []).unwrap();
    assert_eq!(read(&store, 0).await.rows[0].body, Body::TooLarge(30_000_000));
}

#[tokio::test]
async fn decision_03_rows_that_are_not_due_are_read_too() {
    let (_case, store) = Case::migrated().await;
    store.produce(&[text("t", "later").delay(DEADLINE), text("t", "now")]).await.unwrap();
    let page = read(&store, 0).await;
    assert_eq!(bodies(&page.rows), ["later", "now"]);
    assert!(page.rows[0].due_at > page.now && page.rows[1].due_at <= page.now);
}

#[tokio::test]
async fn a_memory_database_does_all_of_it() {
    let store = SqliteStore::new("sqlite::memory:", &OutboxName::unnamed()).unwrap();
    assert_eq!(store.schema().await.unwrap(), SchemaState::EmptyDatabase);
    store.migrate().await.unwrap();
    store.produce(&[text("t", "a")]).await.unwrap();
    let id = read(&store, 0).await.rows[0].id;
    assert_eq!(mark_ids(&store, &[id]).await.unwrap().changed, 1);
    assert_eq!(store.get(id).await.unwrap().unwrap().status, Status::Published);
}

#[tokio::test]
async fn a_file_that_is_replaced_is_opened_anew() {
    let (case, store) = Case::migrated().await;
    store.produce(&[text("t", "old")]).await.unwrap();
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", case.path().display())).unwrap();
    }
    assert_eq!(store.read(request(0)).await.unwrap_err().kind(), ErrorKind::MissingSchema);
    let other = case.store();
    other.migrate().await.unwrap();
    other.produce(&[text("t", "new")]).await.unwrap();
    assert_eq!(bodies(&read(&store, 0).await.rows), ["new"]);
}

#[tokio::test]
async fn decision_13_a_commit_with_an_event_writes_no_index() {
    let (case, store) = Case::migrated().await;
    store.produce(&[text("t", "a")]).await.unwrap();
    let application: Connection = case.application();
    let entries = |index: &str| -> i64 {
        let sql = format!(
            "SELECT count(*) FROM orders_outbox INDEXED BY {index} WHERE {}",
            match index {
                "orders_outbox_idempotent" => "idempotent = 1 AND id > ''",
                _ => "status = 'invalid'",
            }
        );
        application.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((entries("orders_outbox_idempotent"), entries("orders_outbox_dead")), (0, 0));
}
