//! The request that a message becomes: CloudEvents over HTTP, binary or structured.
//!
//! The user's headers go under their own names. One that HTTP or this target needs for itself, or
//! whose value a header can't carry, goes as `posthaste-header-NAME`, percent-encoded: nothing is
//! lost, and nothing an event says can pass for the target's own word.

use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use posthaste_core::{
    Failure, Message,
    cloudevents::{self, TRACE_HEADERS},
    failure::Class,
};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};

use crate::{
    settings::{Mode, Settings},
    signature,
};

/// What the CloudEvents HTTP binding encodes, besides everything outside ASCII.
const ATTRIBUTE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

const RENAMED: &str = "posthaste-header-";

/// The headers and the body to send for `message` at `now`, in seconds since 1970.
///
/// # Errors
/// The content type can't stand in a header: permanent.
pub fn make(message: &Message, settings: &Settings, now: u64) -> Result<(HeaderMap, Bytes), Failure> {
    let mut headers = settings.headers.clone();
    let body = match settings.mode {
        Mode::Binary => {
            attributes(message, &mut headers)?;
            message.body().cloned().unwrap_or_default()
        }
        Mode::Structured => {
            let json = HeaderValue::from_static("application/cloudevents+json; charset=utf-8");
            headers.insert(CONTENT_TYPE, json);
            cloudevents::json_line(message).into()
        }
    };
    for name in TRACE_HEADERS {
        let value = message.row.headers.get(name).and_then(|value| HeaderValue::from_str(value).ok());
        value.map(|value| headers.insert(HeaderName::from_static(name), value));
    }
    if body.is_empty() {
        // Left out otherwise, and some servers refuse a POST without it.
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let id = message.id.to_string();
    insert(&mut headers, signature::ID, &id);
    insert(&mut headers, signature::TIMESTAMP, &now.to_string());
    if let Some(signature) = settings.signer.sign(&id, now, &body) {
        insert(&mut headers, signature::SIGNATURE, &signature);
    }
    Ok((headers, body))
}

fn attributes(message: &Message, headers: &mut HeaderMap) -> Result<(), Failure> {
    let configured: Vec<HeaderName> = headers.keys().cloned().collect();
    for (name, value) in cloudevents::user_headers(message) {
        let own = HeaderName::try_from(name).ok().filter(|name| !is_credential(name) && !is_ours(name));
        let own = own.filter(|name| !configured.contains(name));
        match (own, plain(value)) {
            (Some(name), Some(value)) => headers.append(name, value),
            _ => headers.append(renamed(name), encoded(value)),
        };
    }
    for (name, value) in cloudevents::attributes(message) {
        insert(headers, &format!("ce-{name}"), encoded(&value).to_str().unwrap_or_default());
    }
    let content_type = message.content_type();
    let Ok(value) = HeaderValue::from_str(content_type) else {
        let detail = format!("the content type {content_type:?} can't stand in an HTTP header");
        return Err(Failure::new(Class::Permanent, detail));
    };
    headers.insert(CONTENT_TYPE, value);
    Ok(())
}

fn is_credential(name: &HeaderName) -> bool {
    matches!(*name, AUTHORIZATION | COOKIE)
}

/// Whether a header of this name belongs to HTTP, to CloudEvents or to the signature.
pub fn is_ours(name: &HeaderName) -> bool {
    const OURS: [&str; 19] = [
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "traceparent",
        "tracestate",
    ];
    const PREFIXES: [&str; 3] = ["ce-", "webhook-", RENAMED];
    let name = name.as_str();
    OURS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The value as it is, if a receiver is sure to read the same.
fn plain(value: &str) -> Option<HeaderValue> {
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value;
    if is_plain { HeaderValue::from_str(value).ok() } else { None }
}

fn encoded(value: &str) -> HeaderValue {
    let text = utf8_percent_encode(value, ATTRIBUTE).to_string();
    HeaderValue::try_from(text).expect("percent-encoded text is visible ASCII")
}

fn renamed(name: &str) -> HeaderName {
    let text: String = utf8_percent_encode(name, ATTRIBUTE).to_string().to_ascii_lowercase();
    // A plain INSERT may hold any name.
    HeaderName::try_from(format!("{RENAMED}{text}")).unwrap_or(HeaderName::from_static("posthaste-header-unnamed"))
}

fn insert(headers: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::try_from(name).expect("attribute names are lower case letters");
    headers.insert(name, HeaderValue::from_str(value).expect("ids, numbers and encoded text are visible ASCII"));
}

#[cfg(test)]
#[path = "request_tests.rs"]
pub(crate) mod tests;
