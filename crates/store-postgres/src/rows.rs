//! Decoding rows. A plain INSERT may have written anything: what can't be delivered becomes the
//! row's `defect`, never an error of the page it stands on.

use std::{collections::BTreeMap, error::Error as StdError};

use bytes::Bytes;
use posthaste_core::{Body, Error, ErrorKind, Lane, Result, RouteKey, Row, RowId, Status, Timestamp};
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

/// Every column but the body, in the order that [`Decoder`] reads them.
pub(crate) const COLUMNS: &str = "id, seq, lane, type, ordering_key, tenant, priority, headers, content_type, \
    due_at, status, attempts, last_error, outstanding, created_at, published_at";

/// As many NULLs of the same types.
pub(crate) const NULLS: &str = "NULL::uuid, NULL::bigint, NULL::smallint, NULL::text, NULL::text, NULL::text, \
    NULL::integer, NULL::jsonb, NULL::text, NULL::timestamptz, NULL::text, NULL::integer, NULL::text, NULL::text[], \
    NULL::timestamptz, NULL::timestamptz";

/// Where the body stands, and after it its size if that was asked for.
pub(crate) const BODY: usize = 16;

/// A `timestamptz`: the wire carries microseconds since 2000, `infinity` as the extremes.
pub(crate) struct Instant(pub(crate) Timestamp);

impl<'a> FromSql<'a> for Instant {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Instant, Box<dyn StdError + Sync + Send>> {
        const MICROS_1970_TO_2000: i64 = 946_684_800_000_000;
        let micros = i64::from_be_bytes(raw.try_into()?);
        Ok(Instant(Timestamp::from_micros(micros.saturating_add(MICROS_1970_TO_2000))))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

/// The text of a `jsonb`.
struct Json<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Json<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Json<'a>, Box<dyn StdError + Sync + Send>> {
        let (version, text) = raw.split_first().ok_or("an empty jsonb")?;
        if *version == 1 { Ok(Json(text)) } else { Err("an unknown version of jsonb".into()) }
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
}

/// A row without its body.
pub(crate) fn decode_head(row: &tokio_postgres::Row) -> Result<Row> {
    decode(row).map_err(|error| Error::new(ErrorKind::Corrupt, "decoding a row").because(error))
}

/// A row with its body, if that has at most `max_body` bytes; its size stands behind the body.
pub(crate) fn decode_whole(row: &tokio_postgres::Row, max_body: u64) -> Result<Row> {
    let head = decode_head(row)?;
    let body =
        decode_body(row, max_body).map_err(|error| Error::new(ErrorKind::Corrupt, "decoding a body").because(error))?;
    Ok(Row { body, ..head })
}

fn decode_body(row: &tokio_postgres::Row, max_body: u64) -> Result<Body, tokio_postgres::Error> {
    let size = u64::try_from(row.try_get::<_, i32>(BODY + 1)?).unwrap_or(0);
    if size > max_body {
        return Ok(Body::TooLarge(size));
    }
    let body: Option<&[u8]> = row.try_get(BODY)?;
    Ok(body.map_or(Body::Null, |body| Body::Bytes(Bytes::copy_from_slice(body))))
}

fn decode(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    let (headers, defect) = headers(row.try_get::<_, Json<'_>>(7)?.0);
    let outstanding: Option<Vec<Option<String>>> = row.try_get(13)?;
    let lane: i16 = row.try_get(2)?;
    let status: &str = row.try_get(10)?;
    Ok(Row {
        id: RowId::from(row.try_get::<_, Uuid>(0)?),
        seq: row.try_get(1)?,
        // Both are held to their range by a CHECK.
        lane: u8::try_from(lane).ok().and_then(Lane::new).unwrap_or_else(|| Lane::of_key("")),
        status: status.parse().unwrap_or(Status::Pending),
        event_type: row.try_get(3)?,
        key: row.try_get(4)?,
        tenant: row.try_get(5)?,
        priority: row.try_get(6)?,
        headers,
        content_type: row.try_get(8)?,
        body: Body::Null,
        due_at: row.try_get::<_, Instant>(9)?.0,
        attempts: u32::try_from(row.try_get::<_, i32>(11)?).unwrap_or(0),
        last_error: row.try_get(12)?,
        outstanding: outstanding.map(|keys| keys.iter().flatten().map(|key| RouteKey::from(key.as_str())).collect()),
        created_at: row.try_get::<_, Instant>(14)?.0,
        published_at: row.try_get::<_, Option<Instant>>(15)?.map(|instant| instant.0),
        defect,
    })
}

fn headers(json: &[u8]) -> (BTreeMap<String, String>, Option<String>) {
    if json == b"{}" {
        return (BTreeMap::new(), None);
    }
    match serde_json::from_slice(json) {
        Ok(headers) => (headers, None),
        Err(error) => (BTreeMap::new(), Some(format!("headers is no JSON object whose values are strings: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_no_map_of_strings_are_a_defect_of_the_row() {
        assert_eq!(headers(br#"{"a": "b"}"#).0["a"], "b");
        for json in [r#"{"a": 1}"#, "[]", r#""x""#, "null", r#"{"a": null}"#] {
            let (headers, defect) = headers(json.as_bytes());
            assert!(headers.is_empty() && defect.unwrap().contains("headers"), "{json}");
        }
    }

    #[test]
    fn report_083_instants_after_2038_and_infinite_ones_are_read() {
        let read = |micros: i64| Instant::from_sql(&Type::TIMESTAMPTZ, &micros.to_be_bytes()).unwrap().0;
        assert_eq!(read(1_262_304_000_000_000).to_string(), "2040-01-01T00:00:00.000000Z");
        assert_eq!(read(i64::MAX), Timestamp::from_micros(i64::MAX));
    }
}
