//! Events from lines of JSON. Pure: a line in, an event out, or what is wrong with the line.
//!
//! A `body` is sent with its own text, only white space outside strings removed: numbers, escapes,
//! the order of members and repeated members stay as they are written.

use std::{collections::BTreeMap, fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use posthaste_core::{Event, RowId, options::nearest};
use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::config::duration::{self, Bare};

const MEMBERS: [&str; 10] =
    ["type", "key", "tenant", "priority", "headers", "id", "body", "body_base64", "content_type", "delay"];

/// Makes an event of a line. The rules of [`Event::check`] are not looked at.
///
/// # Errors
/// What is wrong with the line.
pub fn parse(line: &[u8]) -> Result<Event, String> {
    let Members(members) = serde_json::from_slice(line).map_err(|error| not_an_object(line, &error))?;
    let mut fields = BTreeMap::new();
    for (name, value) in members {
        if !MEMBERS.contains(&name.as_str()) {
            return Err(unknown(&name));
        }
        if fields.insert(name.clone(), value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    event(&fields)
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

fn event(fields: &Fields<'_>) -> Result<Event, String> {
    let event_type = optional::<String>(fields, "type")?.ok_or("type is missing")?;
    let content_type = optional::<String>(fields, "content_type")?;
    let (body, default_type) = body(fields)?;
    Ok(Event {
        id: optional::<String>(fields, "id")?.map(|id| row_id(&id)).transpose()?,
        event_type,
        key: optional(fields, "key")?,
        tenant: optional(fields, "tenant")?,
        priority: optional(fields, "priority")?.unwrap_or(0),
        headers: headers(fields)?,
        content_type: content_type.unwrap_or_else(|| default_type.to_owned()),
        body,
        delay: delay(fields)?,
    })
}

/// The body, and the content type that it has unless another is given.
fn body(fields: &Fields<'_>) -> Result<(Option<Bytes>, &'static str), String> {
    match (fields.get("body"), fields.get("body_base64")) {
        (Some(json), None) => Ok((Some(minify(json.get()).into()), "application/json")),
        (None, Some(_)) => {
            let text = optional::<String>(fields, "body_base64")?;
            let bytes = text.map(|text| STANDARD.decode(text)).transpose();
            let bytes = bytes.map_err(|error| format!("body_base64 is no base64: {error}"))?;
            Ok((bytes.map(Bytes::from), "application/octet-stream"))
        }
        (Some(_), Some(_)) => Err("body and body_base64 exclude each other".to_owned()),
        (None, None) => Err("body or body_base64 is missing".to_owned()),
    }
}

fn headers(fields: &Fields<'_>) -> Result<BTreeMap<String, String>, String> {
    let Some(Members(members)) = optional::<Members<'_>>(fields, "headers")? else { return Ok(BTreeMap::new()) };
    let mut headers = BTreeMap::new();
    for (name, value) in members {
        let value = serde_json::from_str(value.get()).map_err(|_| format!("header {name} is no string"))?;
        if headers.insert(name.clone(), value).is_some() {
            return Err(format!("header {name} is given twice"));
        }
    }
    Ok(headers)
}

fn delay(fields: &Fields<'_>) -> Result<Duration, String> {
    let Some(value) = fields.get("delay").filter(|value| value.get() != "null") else { return Ok(Duration::ZERO) };
    let text = serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned());
    duration::parse(&text, Bare::Seconds).map_err(|error| format!("delay: {error}"))
}

/// An id of the caller's.
///
/// # Errors
/// It is no UUID.
pub fn row_id(text: &str) -> Result<RowId, String> {
    text.parse().map_err(|error| format!("id {text:?} is no UUID: {error}"))
}

/// A member that may be absent or `null`.
fn optional<'a, T: Deserialize<'a>>(fields: &Fields<'a>, name: &str) -> Result<Option<T>, String> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    serde_json::from_str::<Option<T>>(value.get()).map_err(|error| format!("{name}: {}", without_place(&error)))
}

fn not_an_object(line: &[u8], error: &serde_json::Error) -> String {
    match serde_json::from_slice::<&RawValue>(line) {
        Ok(value) if !value.get().starts_with('{') => "not a JSON object".to_owned(),
        _ => format!("not JSON: {} at column {}", without_place(error), error.column()),
    }
}

fn unknown(name: &str) -> String {
    let meant = nearest(name, &MEMBERS)
        .map_or_else(|| format!("known: {}", MEMBERS.join(", ")), |name| format!("did you mean {name}?"));
    format!("unknown member {name:?}; {meant}")
}

/// The error without "at line 1 column 7", which would be mistaken for the line of the input.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(text, _)| text.to_owned())
}

/// The members of an object with their own texts, repeated ones included.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// `json` without the white space outside its strings. Nothing else changes.
pub fn minify(json: &str) -> Vec<u8> {
    let mut compact = Vec::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        if !in_string && matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            continue;
        }
        compact.push(byte);
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ => {}
        }
    }
    compact
}

/// Whether `bytes` are JSON as a whole.
pub fn is_json_text(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

#[cfg(test)]
#[path = "ndjson_tests.rs"]
mod tests;
