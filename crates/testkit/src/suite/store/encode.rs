//! What is written comes back: exact bytes, every text, and rows of a plain INSERT.

use bytes::Bytes;
use posthaste_core::{Body, Event, Lane, Row, RowId, Status};

use super::scene::{Scene, blob, event};
use crate::suite::case::cases;

cases![Scene;
    port_l1_every_field_comes_back_as_it_was_written,
    report_067_report_069_bodies_come_back_byte_for_byte,
    report_076_null_and_empty_are_two_things,
    port_l1_a_body_of_five_megabytes_comes_back,
    report_067_texts_come_back_character_by_character,
    rows_r51_a_plain_insert_of_type_and_body_is_complete,
    port_l1_a_plain_insert_may_give_every_field,
    decision_06_the_lane_of_a_key_is_the_same_in_both_forms needs ManyLanes,
    port_l1_headers_that_are_no_map_of_strings_are_a_defect,
];

/// The row as a page has it, which must be what `get` has.
async fn read_back(scene: &Scene, id: RowId) -> Row {
    let mut rows = scene.undelivered().await;
    rows.retain(|row| row.id == id);
    assert_eq!(rows.len(), 1, "row {id} is read once");
    let row = rows.remove(0);
    assert_eq!(scene.get(id).await, row, "a page and `get` agree");
    row
}

async fn port_l1_every_field_comes_back_as_it_was_written(scene: &Scene) {
    let id = RowId::generate();
    let written = Event { priority: -7, ..event("order.placed") }
        .id(id)
        .key("customer-1")
        .tenant("acme")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("x-origin", "shop");
    let enqueued = scene.commit(std::slice::from_ref(&written)).await[0];
    let row = read_back(scene, id).await;
    assert_eq!((row.id, row.lane), (id, enqueued.lane));
    assert_eq!(row.event_type, written.event_type);
    assert_eq!((row.key, row.tenant), (written.key, written.tenant));
    assert_eq!((row.priority, row.headers), (written.priority, written.headers));
    assert_eq!((row.content_type, Some(row.body)), (written.content_type, written.body.map(Body::Bytes)));
    assert_eq!((row.status, row.attempts, row.last_error), (Status::Pending, 0, None));
    assert_eq!((row.outstanding, row.published_at, row.defect), (None, None, None));
    let now = scene.now().await;
    assert!(row.created_at <= now && row.due_at <= now, "{} {} {now}", row.created_at, row.due_at);
}

async fn report_067_report_069_bodies_come_back_byte_for_byte(scene: &Scene) {
    let json = |text: &'static str| Event::new("json", "application/json", text);
    let all_bytes: Vec<u8> = (0..=255).collect();
    let events = [
        blob(&[0xff, 0xfe, 0x80, 0x41][..]),
        blob(all_bytes),
        blob(&b"\0"[..]),
        blob(r"\x41 \\ '' $1 ? :a"),
        json(r#"{"a":"x\u0000y"}"#),
        json("{\"b\" : 1,\n \"a\":1.0, \"a\":2, \"u\":\"\\u003c\\ud83d\\ude00\"}"),
        json(r#"{"id":9007199254740993,"d":0.1000000000000000055511151231257827,"e":1e400,"z":-0}"#),
    ];
    let rows = scene.commit(&events).await;
    for (event, row) in events.into_iter().zip(rows) {
        let read = read_back(scene, row.id).await;
        assert_eq!(Some(read.body), event.body.map(Body::Bytes));
        assert_eq!((read.content_type, read.defect), (event.content_type, None));
    }
}

async fn report_076_null_and_empty_are_two_things(scene: &Scene) {
    let rows = scene.commit(&[Event::tombstone("gone").key("k"), blob(Bytes::new()), blob("x")]).await;
    assert_eq!(read_back(scene, rows[0].id).await.body, Body::Null);
    assert_eq!(read_back(scene, rows[1].id).await.body, Body::Bytes(Bytes::new()));
    assert_eq!(read_back(scene, rows[2].id).await.body, Body::Bytes(Bytes::from_static(b"x")));
}

async fn port_l1_a_body_of_five_megabytes_comes_back(scene: &Scene) {
    let body: Bytes = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<u8>>().into();
    let id = scene.commit_one(blob(body.clone())).await;
    assert!(read_back(scene, id).await.body == Body::Bytes(body), "5 MB, byte for byte");
}

async fn report_067_texts_come_back_character_by_character(scene: &Scene) {
    let longest = "k".repeat(Event::MAX_KEY);
    let texts =
        ["Zoë 😀 漢字", r#"it's "quoted" \ back"#, "a,b{c}NULL", " space ", "line\nbreak\ttab", "%_*?[a]", &longest];
    for text in texts {
        let tenant: String = text.chars().take(Event::MAX_TENANT).collect();
        let id = scene.commit_one(event("text").key(text).tenant(&*tenant).header("x-text", text)).await;
        let row = read_back(scene, id).await;
        assert_eq!(row.key.as_deref(), Some(text));
        assert_eq!(row.tenant, Some(tenant));
        assert_eq!(row.headers["x-text"], text);
    }
}

async fn rows_r51_a_plain_insert_of_type_and_body_is_complete(scene: &Scene) {
    let body = scene.place.literal(b"{\"n\":\xff}");
    scene.sql(&format!("INSERT INTO $t (type, body) VALUES ('plain', {body}), ('plain', {body})")).await;
    let rows = scene.undelivered().await;
    assert_eq!(rows.len(), 2);
    assert_ne!(rows[0].id, rows[1].id);
    let row = read_back(scene, rows[0].id).await;
    assert_eq!((row.event_type.as_str(), row.content_type.as_str()), ("plain", "application/json"));
    assert_eq!((row.key, row.tenant, row.priority), (None, None, 0));
    assert!(row.headers.is_empty());
    assert_eq!((row.status, row.attempts, row.outstanding, row.defect), (Status::Pending, 0, None, None));
    assert!(row.due_at <= scene.now().await, "due at once");
    assert_eq!(scene.mark(&[rows[0].id, rows[1].id]).await, 2);
}

async fn port_l1_a_plain_insert_may_give_every_field(scene: &Scene) {
    let body = scene.place.literal(b"x");
    scene
        .sql(&format!(
            "INSERT INTO $t (type, body, content_type, ordering_key, tenant, priority, headers, lane)
             VALUES ('plain', {body}, 'text/plain', 'it''s', 'acme', 3, '{{\"a\": \"b\"}}', 77)"
        ))
        .await;
    let rows = scene.undelivered().await;
    let row = read_back(scene, rows[0].id).await;
    assert_eq!((row.key.as_deref(), row.tenant.as_deref(), row.priority), (Some("it's"), Some("acme"), 3));
    assert_eq!((row.headers["a"].as_str(), row.content_type.as_str()), ("b", "text/plain"));
    assert_eq!((row.body, row.defect), (Body::Bytes("x".into()), None));
    assert_eq!(row.lane.number(), if scene.facts().many_lanes { 77 } else { 0 });
}

async fn decision_06_the_lane_of_a_key_is_the_same_in_both_forms(scene: &Scene) {
    scene.commit(&[event("t").key("a"), event("t").key("Zoë"), event("t")]).await;
    scene.sql("INSERT INTO $t (type, ordering_key) VALUES ('p', 'a'), ('p', 'Zoë'), ('p', NULL)").await;
    let rows = scene.undelivered().await;
    assert_eq!(rows.len(), 6);
    assert_eq!(rows[0].lane.number(), 12);
    for row in rows {
        let lane = row.key.as_deref().map_or_else(|| Lane::of_id(row.id), Lane::of_key);
        assert_eq!(row.lane, lane, "{:?} {}", row.key, row.id);
    }
}

async fn port_l1_headers_that_are_no_map_of_strings_are_a_defect(scene: &Scene) {
    for headers in [r#"["a"]"#, r#"{"a": 1}"#, r#"{"a": {"b": "c"}}"#, "null", "17"] {
        let insert = format!("INSERT INTO {} (type, headers) VALUES ('odd', '{headers}')", scene.table());
        // A table may refuse them as well; then nobody ever meets such a row.
        if scene.place.sql(&insert).await.is_err() {
            continue;
        }
        let rows = scene.undelivered().await;
        let row = rows.iter().find(|row| row.event_type == "odd").expect("a defect does not hide a row");
        assert!(row.defect.is_some(), "{headers}");
        scene.invalidate(row.id).await;
        assert!(scene.get(row.id).await.defect.is_some(), "{headers}");
    }
}
