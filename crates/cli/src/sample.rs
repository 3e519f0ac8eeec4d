//! A row for tests.

use posthaste_core::{Body, Lane, Row, RowId, Status, Timestamp};

/// A pending row with a key, due when it was created.
pub fn row() -> Row {
    let id: RowId = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
    let created = Timestamp::from_micros(1_767_323_045_678_000);
    Row {
        id,
        seq: 7,
        lane: Lane::of_key("k1"),
        event_type: "order.placed".into(),
        key: Some("k1".into()),
        tenant: None,
        priority: 0,
        headers: [("region".to_owned(), "eu".to_owned())].into(),
        content_type: "application/json".into(),
        body: Body::Null,
        due_at: created,
        status: Status::Pending,
        attempts: 0,
        last_error: None,
        outstanding: None,
        created_at: created,
        published_at: None,
        defect: None,
    }
}
