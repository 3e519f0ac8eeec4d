//! Rows as they stand in the table. A plain INSERT may hold anything: what can't be delivered
//! comes back as a row that says why.

use std::collections::BTreeMap;

use bytes::Bytes;
use posthaste_core::{
    Body, Event, Lane, RouteKey, Row, RowId, Status, Timestamp, cloudevents::TRACE_HEADERS, event::Limits,
};
use rusqlite::types::ValueRef;
use uuid::Uuid;

/// The columns that [`read`] takes, in its order; followed by two for the body.
pub(crate) const COLUMNS: &str = "seq, id, type, ordering_key, tenant, priority, headers, content_type, due_at, \
     status, attempts, last_error, outstanding, created_at, published_at";

/// No body, and no page of it read.
pub(crate) const WITHOUT_BODY: &str = "NULL, NULL";

/// The size of the body, and its bytes unless they are more than the limit in the parameter `:max_body`.
pub(crate) const BODY: &str =
    "octet_length(body), CASE WHEN octet_length(body) <= :max_body THEN CAST(body AS BLOB) END";

/// Every row of a SQLite outbox is in this lane, whatever its column says: one process pumps them all.
pub(crate) const LANE: Lane = match Lane::new(0) {
    Some(lane) => lane,
    None => unreachable!(),
};

/// An id as it stands in the table.
pub(crate) struct StoredId {
    /// The id; one that is no UUID is hashed, so that its row can be settled.
    pub id: RowId,
    /// The bytes that stand there, if it is not the form that Posthaste writes.
    pub odd: Option<Vec<u8>>,
    is_uuid: bool,
}

impl StoredId {
    /// The bytes that stand in the table.
    pub fn bytes(self) -> Vec<u8> {
        self.odd.unwrap_or_else(|| self.id.to_string().into_bytes())
    }
}

/// Collects the first thing that is wrong with a row.
struct Fields<'r> {
    row: &'r rusqlite::Row<'r>,
    defect: Option<String>,
}

/// The row, and its id as it stands.
pub(crate) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Row, StoredId)> {
    let stored = id(row.get_ref(1)?);
    let mut fields = Fields { row, defect: None };
    if !stored.is_uuid {
        fields.blame("id", "is not a UUID");
    }
    let event = fields.event()?;
    if let Err(error) = event.check(Limits { max_body: usize::MAX }) {
        fields.defect.get_or_insert(error.to_string());
    }
    let row = Row {
        id: stored.id,
        seq: row.get(0)?,
        lane: LANE,
        event_type: event.event_type,
        key: event.key,
        tenant: event.tenant,
        priority: event.priority,
        headers: event.headers,
        content_type: event.content_type,
        body: body(row)?,
        due_at: Timestamp::from_micros(fields.integer(8, "due_at")?.unwrap_or(0)),
        status: fields.status()?,
        attempts: u32::try_from(fields.integer(10, "attempts")?.unwrap_or(0)).unwrap_or(u32::MAX),
        last_error: fields.text(11, "last_error")?,
        outstanding: fields.outstanding()?,
        created_at: Timestamp::from_micros(fields.integer(13, "created_at")?.unwrap_or(0)),
        published_at: fields.integer(14, "published_at")?.map(Timestamp::from_micros),
        defect: fields.defect,
    };
    Ok((row, stored))
}

/// The id that stands in a table.
pub(crate) fn id(stored: ValueRef<'_>) -> StoredId {
    // The column's affinity turns numbers into text, and it holds no NULL.
    let bytes = stored.as_bytes().unwrap_or_default();
    let uuid = match stored {
        ValueRef::Blob(bytes) => Uuid::from_slice(bytes),
        _ => Uuid::try_parse_ascii(bytes),
    };
    let is_ours = matches!(stored, ValueRef::Text(_)) && is_canonical(bytes);
    StoredId {
        is_uuid: uuid.is_ok(),
        odd: (uuid.is_err() || !is_ours).then(|| bytes.to_vec()),
        id: RowId::from(uuid.unwrap_or_else(|_| Uuid::new_v5(&Uuid::NAMESPACE_OID, bytes))),
    }
}

/// What a row with an id of its caller's says, to be compared with an event of that id.
pub(crate) struct StoredContent {
    pub event_type: String,
    pub key: Option<String>,
    pub tenant: Option<String>,
    pub content_type: String,
    pub headers: BTreeMap<String, String>,
    pub body: Option<Vec<u8>>,
}

impl StoredContent {
    /// The columns of its members, in their order.
    pub const COLUMNS: &str = "type, ordering_key, tenant, content_type, headers, CAST(body AS BLOB)";

    pub fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredContent> {
        Ok(StoredContent {
            event_type: row.get(0)?,
            key: row.get(1)?,
            tenant: row.get(2)?,
            content_type: row.get(3)?,
            headers: serde_json::from_str(&row.get::<_, String>(4)?).unwrap_or_default(),
            body: row.get(5)?,
        })
    }

    /// Whether it is the content of `event`; their trace contexts may differ.
    pub fn equals(&self, event: &Event) -> bool {
        self.event_type == event.event_type
            && self.key == event.key
            && self.tenant == event.tenant
            && self.content_type == event.content_type
            && self.body.as_deref() == event.body.as_deref()
            && user_headers(&self.headers).eq(user_headers(&event.headers))
    }
}

fn user_headers(headers: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    headers.iter().filter(|(name, _)| !TRACE_HEADERS.contains(&name.as_str()))
}

fn is_canonical(text: &[u8]) -> bool {
    text.len() == 36 && !text.iter().any(u8::is_ascii_uppercase)
}

fn body(row: &rusqlite::Row<'_>) -> rusqlite::Result<Body> {
    let Some(size) = row.get::<_, Option<i64>>(15)? else { return Ok(Body::Null) };
    Ok(match row.get_ref(16)? {
        ValueRef::Blob(bytes) => Body::Bytes(Bytes::copy_from_slice(bytes)),
        _ => Body::TooLarge(size.unsigned_abs()),
    })
}

impl Fields<'_> {
    fn event(&mut self) -> rusqlite::Result<Event> {
        Ok(Event {
            id: None,
            event_type: self.text(2, "type")?.unwrap_or_default(),
            key: self.text(3, "ordering_key")?,
            tenant: self.text(4, "tenant")?,
            priority: i32::try_from(self.integer(5, "priority")?.unwrap_or(0)).unwrap_or(0),
            headers: self.headers()?,
            content_type: self.text(7, "content_type")?.unwrap_or_default(),
            body: None,
            delay: std::time::Duration::ZERO,
        })
    }

    fn headers(&mut self) -> rusqlite::Result<BTreeMap<String, String>> {
        let text = self.text(6, "headers")?.unwrap_or_default();
        if text == "{}" {
            return Ok(BTreeMap::new());
        }
        Ok(serde_json::from_str(&text).unwrap_or_else(|error| {
            self.blame("headers", &format!("is not a JSON object of texts: {error}"));
            BTreeMap::new()
        }))
    }

    fn outstanding(&mut self) -> rusqlite::Result<Option<Vec<RouteKey>>> {
        let Some(text) = self.text(12, "outstanding")? else { return Ok(None) };
        match serde_json::from_str::<Vec<String>>(&text) {
            Ok(routes) => Ok(Some(routes.iter().map(|route| RouteKey::from(route.as_str())).collect())),
            Err(error) => {
                self.blame("outstanding", &format!("is not a JSON array of texts: {error}"));
                Ok(None)
            }
        }
    }

    fn status(&mut self) -> rusqlite::Result<Status> {
        let text = self.text(9, "status")?.unwrap_or_default();
        Ok(text.parse().unwrap_or_else(|error: String| {
            self.blame("status", &error);
            Status::Pending
        }))
    }

    fn text(&mut self, column: usize, name: &str) -> rusqlite::Result<Option<String>> {
        Ok(match self.row.get_ref(column)? {
            ValueRef::Null => None,
            ValueRef::Integer(number) => Some(number.to_string()),
            ValueRef::Real(number) => Some(number.to_string()),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Some(text.to_owned()),
                Err(_) => {
                    self.blame(name, "is not UTF-8");
                    Some(String::from_utf8_lossy(bytes).into_owned())
                }
            },
        })
    }

    fn integer(&mut self, column: usize, name: &str) -> rusqlite::Result<Option<i64>> {
        Ok(match self.row.get_ref(column)? {
            ValueRef::Null => None,
            ValueRef::Integer(number) => Some(number),
            _ => {
                self.blame(name, "is not an integer");
                None
            }
        })
    }

    fn blame(&mut self, column: &str, what: &str) {
        self.defect.get_or_insert_with(|| format!("column {column} {what}"));
    }
}
