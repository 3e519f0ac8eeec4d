//! An event as the application hands it over, and the rules it must meet before it may be written.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use serde::Serialize;

use crate::{Lane, RowId};

/// What the application records: type, body, and optionally key, tenant, headers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// An id supplied by the caller: an idempotency key for as long as the row is kept.
    pub id: Option<RowId>,
    /// `order.placed`.
    pub event_type: String,
    /// Equal keys are delivered in order.
    pub key: Option<String>,
    /// The tenant it belongs to.
    pub tenant: Option<String>,
    /// Used by the claims strategy only.
    pub priority: i32,
    /// Passed on as they are. `traceparent` and `tracestate` carry the trace context.
    pub headers: BTreeMap<String, String>,
    /// The media type of the body.
    pub content_type: String,
    /// The exact bytes; `None` is SQL NULL, a tombstone.
    pub body: Option<Bytes>,
    /// Not delivered before this long after the insert, by the database's clock.
    pub delay: Duration,
}

/// Why an event can't be written. Raised before anything is sent to the database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// A field is longer than it may be.
    #[error("{field} has {size} bytes, {limit} are allowed")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The most it may have.
        limit: usize,
    },
    /// A field that must say something is empty.
    #[error("{field} is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A text holds a NUL character, which not every store and transport can carry.
    #[error("{field} contains a NUL character")]
    Nul {
        /// The field.
        field: &'static str,
    },
    /// A content type that no protocol could carry in a header.
    #[error("content type {content_type:?} contains a control character, such as a line break")]
    ContentType {
        /// The content type.
        content_type: String,
    },
    /// A header's name has characters that not every transport can carry.
    #[error("header name {name:?} can't be used: letters, digits, '-', '_' and '.' only")]
    HeaderName {
        /// The name.
        name: String,
    },
    /// The content type says JSON and the body is not.
    #[error("the body is not JSON although its content type is {content_type}: {detail}")]
    NotJson {
        /// The content type.
        content_type: String,
        /// Where it stops being JSON.
        detail: String,
    },
    /// The value can't be written as JSON.
    #[error("the body can't be written as JSON: {detail}")]
    Unserializable {
        /// The serializer's reason.
        detail: String,
    },
    /// A delay the stores can't hold.
    #[error("a delay of {seconds} s is over the limit of {limit} s")]
    Delay {
        /// The delay.
        seconds: u64,
        /// The longest delay.
        limit: u64,
    },
}

/// The limits an event must keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `outbox.max_body`, in bytes.
    pub max_body: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_body: Event::DEFAULT_MAX_BODY }
    }
}

impl Event {
    /// The default of `outbox.max_body`: 8 MiB.
    pub const DEFAULT_MAX_BODY: usize = 8 << 20;
    /// Longest type, in bytes.
    pub const MAX_TYPE: usize = 255;
    /// Longest ordering key, in bytes.
    pub const MAX_KEY: usize = 1024;
    /// Longest tenant, in bytes.
    pub const MAX_TENANT: usize = 256;
    /// Most bytes of all header names and values together; what fits a frame of every broker.
    pub const MAX_HEADERS: usize = 32 << 10;
    /// Longest delay: ten years.
    pub const MAX_DELAY: Duration = Duration::from_secs(10 * 366 * 86_400);

    /// An event with exactly these bytes as its body.
    #[must_use]
    pub fn new(event_type: impl Into<String>, content_type: impl Into<String>, body: impl Into<Bytes>) -> Event {
        Event { content_type: content_type.into(), body: Some(body.into()), ..Event::tombstone(event_type) }
    }

    /// An event without a body (SQL NULL): a tombstone for its key.
    #[must_use]
    pub fn tombstone(event_type: impl Into<String>) -> Event {
        Event {
            id: None,
            event_type: event_type.into(),
            key: None,
            tenant: None,
            priority: 0,
            headers: BTreeMap::new(),
            content_type: "application/json".to_owned(),
            body: None,
            delay: Duration::ZERO,
        }
    }

    /// An event whose body is `value` as compact JSON.
    ///
    /// # Errors
    /// `Unserializable` if the value can't be written as JSON.
    pub fn json(event_type: impl Into<String>, value: &impl Serialize) -> Result<Event, EventError> {
        let body =
            serde_json::to_vec(value).map_err(|error| EventError::Unserializable { detail: error.to_string() })?;
        Ok(Event::new(event_type, "application/json", body))
    }

    /// With an id of the caller's: an idempotency key.
    #[must_use]
    pub fn id(self, id: impl Into<RowId>) -> Event {
        Event { id: Some(id.into()), ..self }
    }

    /// With an ordering key.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Event {
        Event { key: Some(key.into()), ..self }
    }

    /// With a tenant.
    #[must_use]
    pub fn tenant(self, tenant: impl Into<String>) -> Event {
        Event { tenant: Some(tenant.into()), ..self }
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Event {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Not delivered before `delay` after the insert.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Event {
        Event { delay, ..self }
    }

    /// The lane of its row, once its id is known.
    #[must_use]
    pub fn lane(&self, id: RowId) -> Lane {
        self.key.as_deref().map_or_else(|| Lane::of_id(id), Lane::of_key)
    }

    /// Checks everything that can be checked before the database sees it.
    ///
    /// # Errors
    /// The first rule that is broken, naming field, size and limit.
    pub fn check(&self, limits: Limits) -> Result<(), EventError> {
        check_text("type", &self.event_type, Event::MAX_TYPE)?;
        check_text("content type", &self.content_type, Event::MAX_TYPE)?;
        if self.content_type.chars().any(char::is_control) {
            return Err(EventError::ContentType { content_type: self.content_type.clone() });
        }
        self.key.as_deref().map_or(Ok(()), |key| check_text("key", key, Event::MAX_KEY))?;
        self.tenant.as_deref().map_or(Ok(()), |tenant| check_text("tenant", tenant, Event::MAX_TENANT))?;
        self.check_headers()?;
        if self.delay > Event::MAX_DELAY {
            return Err(EventError::Delay { seconds: self.delay.as_secs(), limit: Event::MAX_DELAY.as_secs() });
        }
        let Some(body) = &self.body else { return Ok(()) };
        check_size("body", body.len(), limits.max_body)?;
        if is_json(&self.content_type)
            && let Err(error) = serde_json::from_slice::<&serde_json::value::RawValue>(body)
        {
            return Err(EventError::NotJson { content_type: self.content_type.clone(), detail: error.to_string() });
        }
        Ok(())
    }

    fn check_headers(&self) -> Result<(), EventError> {
        for (name, value) in &self.headers {
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if name.is_empty() || !name.chars().all(good) {
                return Err(EventError::HeaderName { name: name.clone() });
            }
            if value.contains('\0') {
                return Err(EventError::Nul { field: "header value" });
            }
        }
        let size = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        check_size("headers", size, Event::MAX_HEADERS)
    }
}

/// Whether a media type says that the body is JSON.
#[must_use]
pub fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    media_type == "application/json" || media_type.ends_with("+json")
}

fn check_text(field: &'static str, text: &str, limit: usize) -> Result<(), EventError> {
    if text.is_empty() {
        return Err(EventError::Empty { field });
    }
    if text.contains('\0') {
        return Err(EventError::Nul { field });
    }
    check_size(field, text.len(), limit)
}

fn check_size(field: &'static str, size: usize, limit: usize) -> Result<(), EventError> {
    if size > limit { Err(EventError::TooLarge { field, size, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event::json("order.placed", &serde_json::json!({"id": 1})).unwrap()
    }

    #[test]
    fn rows_r14_a_body_over_the_limit_is_refused_with_size_and_limit() {
        let error = Event::new("t", "text/plain", vec![b'x'; 11]).check(Limits { max_body: 10 }).unwrap_err();
        assert_eq!(error, EventError::TooLarge { field: "body", size: 11, limit: 10 });
        assert_eq!(error.to_string(), "body has 11 bytes, 10 are allowed");
    }

    #[test]
    fn rows_r15_what_is_no_json_is_refused_before_it_is_written() {
        let map: std::collections::HashMap<(u8, u8), u8> = [((1, 2), 3)].into();
        assert!(matches!(Event::json("t", &map), Err(EventError::Unserializable { .. })));
        let error = Event::new("t", "application/cloudevents+json; charset=utf-8", "{").check(Limits::default());
        assert!(matches!(error, Err(EventError::NotJson { .. })));
    }

    #[test]
    fn report_067_nul_is_kept_in_bodies_and_refused_in_texts() {
        let limits = Limits::default();
        assert_eq!(Event::new("t", "application/json", r#"{"a":"x\u0000y"}"#).check(limits), Ok(()));
        assert_eq!(event().key("k\0").check(limits), Err(EventError::Nul { field: "key" }));
        assert_eq!(event().header("h", "a\0").check(limits), Err(EventError::Nul { field: "header value" }));
        assert!(matches!(event().header("a b", "").check(limits), Err(EventError::HeaderName { .. })));
    }

    #[test]
    fn a_content_type_with_control_characters_is_refused() {
        for content_type in ["text/plain\r\nX-Evil: 1", "text/plain\n", "a\tb", "a\u{7f}", "a\u{85}"] {
            let error = Event::new("t", content_type, "").check(Limits::default()).unwrap_err();
            assert_eq!(error, EventError::ContentType { content_type: content_type.to_owned() });
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        assert_eq!(Event::new("t", "text/plain; charset=utf-8", "").check(Limits::default()), Ok(()));
    }

    #[test]
    fn limits_of_every_field() {
        let limits = Limits::default();
        assert_eq!(event().key("k".repeat(1024)).tenant("t".repeat(256)).check(limits), Ok(()));
        assert!(event().key("k".repeat(1025)).check(limits).is_err());
        assert!(event().tenant("t".repeat(257)).check(limits).is_err());
        assert_eq!(Event::new("", "text/plain", "").check(limits), Err(EventError::Empty { field: "type" }));
        assert!(Event::new("t".repeat(256), "text/plain", "").check(limits).is_err());
        assert!(event().header("h", "v".repeat(Event::MAX_HEADERS)).check(limits).is_err());
        assert!(event().delay(Duration::MAX).check(limits).is_err());
    }
}
