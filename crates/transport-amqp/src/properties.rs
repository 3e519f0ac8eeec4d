//! What a message becomes in AMQP: exchange, routing key and properties. No I/O.
//!
//! The CloudEvents attributes stand in headers named `cloudEvents:…`; the user's headers keep their
//! names. Nothing is ever cut: what AMQP can't hold is a permanent failure.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, MAX_SHORT_STRING_LENGTH, ShortString},
};
use posthaste_core::{Body, Class, Failure, Message, cloudevents};

use crate::target::{EXCHANGE, ROUTING_KEY};

const PERSISTENT: u8 = 2;
/// Around the properties in their frame: type, channel, size, class, weight, body size, flags, end.
const HEADER_FRAME: usize = 1 + 2 + 4 + 2 + 2 + 8 + 2 + 1;

/// A message as AMQP carries it, without its body.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    /// The `message_id`, by which a returned message is recognised.
    pub(crate) id: String,
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) properties: BasicProperties,
    /// Bytes of the frame that holds the properties; it can't be split.
    pub(crate) header_frame: usize,
}

impl Outgoing {
    /// # Errors
    /// A permanent failure: some part is larger than AMQP allows.
    pub(crate) fn of(message: &Message) -> Result<Outgoing, Failure> {
        let row = &message.row;
        if let (Body::TooLarge(size), None) = (&row.body, &message.payload) {
            return Err(permanent(format!("a body of {size} bytes was not read")));
        }
        let id = message.id.to_string();
        let (headers, table) = headers(message)?;
        let mut properties = BasicProperties::default()
            .with_content_type(short("content type", message.content_type())?)
            .with_headers(headers)
            .with_delivery_mode(PERSISTENT)
            .with_message_id(short("message id", id.as_str())?)
            .with_type(short("type", row.event_type.as_str())?);
        // AMQP has no time before 1970.
        if let Ok(seconds) = u64::try_from(row.created_at.seconds()) {
            properties = properties.with_timestamp(seconds);
        }
        let texts = message.content_type().len() + id.len() + row.event_type.len() + 3;
        Ok(Outgoing {
            exchange: short("exchange", message.address.get(EXCHANGE))?,
            routing_key: short("routing key", message.address.get(ROUTING_KEY))?,
            properties,
            header_frame: HEADER_FRAME + texts + table + 1 + 8,
            id,
        })
    }

    /// # Errors
    /// A permanent failure: the properties don't fit the frame size agreed with the broker.
    pub(crate) fn fits(&self, frame_max: usize) -> Result<(), Failure> {
        if self.header_frame <= frame_max {
            return Ok(());
        }
        Err(permanent(format!(
            "the headers need a frame of {} bytes, the broker allows {frame_max}: send fewer or raise its frame_max",
            self.header_frame
        )))
    }
}

/// The header table and its encoded size.
fn headers(message: &Message) -> Result<(FieldTable, usize), Failure> {
    let mut table = FieldTable::default();
    let mut size = 4;
    let mut add = |name: String, value: String| {
        size += 1 + name.len() + 1 + 4 + value.len();
        table.insert(short("header name", name)?, AMQPValue::LongString(value.into()));
        Ok(())
    };
    for (name, value) in cloudevents::user_headers(message) {
        if matches!(name, "CC" | "BCC") {
            let detail = format!("the header {name} can't be sent: to RabbitMQ it means further routing keys");
            return Err(permanent(detail));
        }
        add(name.to_owned(), value.to_owned())?;
    }
    // The attributes come last: they win over a header of the same name.
    for (name, value) in cloudevents::attributes(message) {
        add(format!("cloudEvents:{name}"), value)?;
    }
    Ok((table, size))
}

fn short(what: &str, text: impl Into<String>) -> Result<ShortString, Failure> {
    let text = text.into();
    if text.len() <= MAX_SHORT_STRING_LENGTH {
        return Ok(text.into());
    }
    Err(permanent(format!("{what} has {} bytes, AMQP allows {MAX_SHORT_STRING_LENGTH}: {text:.60}…", text.len())))
}

fn permanent(detail: String) -> Failure {
    Failure::new(Class::Permanent, detail)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use posthaste_core::{Address, Lane, RouteKey, Row, RowId, Status, Timestamp};

    use super::*;

    fn message(change: impl FnOnce(&mut Row)) -> Message {
        let id: RowId = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
        let route = RouteKey::single();
        let mut row = Row {
            id,
            seq: 1,
            lane: Lane::of_id(id),
            event_type: "order.placed".into(),
            key: Some("schlüssel".into()),
            tenant: None,
            priority: 0,
            headers: [("traceparent".to_owned(), "00-1".to_owned()), ("X-Mine".to_owned(), "ü".to_owned())].into(),
            content_type: "application/json".into(),
            body: Body::Bytes(Bytes::from_static(b"{}")),
            due_at: Timestamp::from_micros(0),
            status: Status::Pending,
            attempts: 0,
            last_error: None,
            outstanding: None,
            created_at: Timestamp::from_micros(1_767_323_045_678_000),
            published_at: None,
            defect: None,
        };
        change(&mut row);
        let address = [(EXCHANGE, "orders".to_owned()), (ROUTING_KEY, row.event_type.clone())].into_iter().collect();
        Message { id: id.message_id(&route), route, source: "/s".into(), address, payload: None, row: Arc::new(row) }
    }

    fn header(outgoing: &Outgoing, name: &str) -> Option<String> {
        match outgoing.properties.headers().as_ref()?.inner().get(name)? {
            AMQPValue::LongString(text) => Some(text.to_string()),
            _ => None,
        }
    }

    #[test]
    fn report_075_the_timestamp_is_in_seconds_and_a_header_has_the_full_precision() {
        let outgoing = Outgoing::of(&message(|_| {})).unwrap();
        assert_eq!(*outgoing.properties.timestamp(), Some(1_767_323_045));
        assert_eq!(header(&outgoing, "cloudEvents:time").as_deref(), Some("2026-01-02T03:04:05.678000Z"));
        let before_1970 = Outgoing::of(&message(|row| row.created_at = Timestamp::from_micros(-1))).unwrap();
        assert_eq!(*before_1970.properties.timestamp(), None);
    }

    #[test]
    fn port_p7_every_fact_about_the_event_has_its_place() {
        let message = message(|row| row.tenant = Some("acme".into()));
        let outgoing = Outgoing::of(&message).unwrap();
        let properties = &outgoing.properties;
        assert_eq!(properties.message_id().as_ref().map(ShortString::as_str), Some(message.id.to_string().as_str()));
        assert_eq!(properties.kind().as_ref().map(ShortString::as_str), Some("order.placed"));
        assert_eq!(properties.content_type().as_ref().map(ShortString::as_str), Some("application/json"));
        assert_eq!(*properties.delivery_mode(), Some(2));
        for (name, value) in cloudevents::attributes(&message) {
            assert_eq!(header(&outgoing, &format!("cloudEvents:{name}")), Some(value), "{name}");
        }
        assert_eq!(header(&outgoing, "X-Mine").as_deref(), Some("ü"));
        assert_eq!(header(&outgoing, "cloudEvents:subject").as_deref(), Some("schlüssel"));
        assert_eq!((outgoing.exchange.as_str(), outgoing.routing_key.as_str()), ("orders", "order.placed"));
    }

    #[test]
    fn report_076_null_says_so_and_empty_does_not() {
        let null = Outgoing::of(&message(|row| row.body = Body::Null)).unwrap();
        assert_eq!(header(&null, "cloudEvents:nullbody").as_deref(), Some("true"));
        let empty = Outgoing::of(&message(|row| row.body = Body::Bytes(Bytes::new()))).unwrap();
        assert_eq!(header(&empty, "cloudEvents:nullbody"), None);
    }

    #[test]
    fn port_p6_what_amqp_cannot_hold_is_permanent_and_never_cut() {
        let failure = |change: fn(&mut Row)| Outgoing::of(&message(change)).unwrap_err();
        for (change, named) in [
            ((|row| row.event_type = "ü".repeat(128)) as fn(&mut Row), "type has 256 bytes"),
            (|row| row.content_type = "t".repeat(256), "content type has 256 bytes"),
            (|row| drop(row.headers.insert("h".repeat(256), String::new())), "header name has 256 bytes"),
            (|row| row.body = Body::TooLarge(9_000_000), "9000000 bytes"),
            (|row| drop(row.headers.insert("CC".into(), "a".into())), "header CC"),
        ] {
            let failure = failure(change);
            assert_eq!(failure.class, Class::Permanent);
            assert!(failure.detail.contains(named), "{failure}");
        }
        let mut long = message(|_| {});
        long.address = Address::from_iter([(ROUTING_KEY, "k".repeat(256))]);
        assert!(Outgoing::of(&long).unwrap_err().detail.starts_with("routing key has 256 bytes"));
    }

    #[test]
    fn port_p6_headers_that_fit_no_frame_are_refused_before_anything_is_sent() {
        let outgoing = Outgoing::of(&message(|row| drop(row.headers.insert("h".into(), "v".repeat(5000))))).unwrap();
        assert!(outgoing.fits(131_072).is_ok());
        let failure = outgoing.fits(4096).unwrap_err();
        assert_eq!(failure.class, Class::Permanent);
        assert!(failure.detail.contains("4096"), "{failure}");
    }
}
