//! What became of a batch, from what the broker said about it. No I/O.
//!
//! lapin may attach a returned message to the confirmation of another one, so nothing here looks at a
//! confirmation alone: the ids returned anywhere in the batch are gathered first. While a confirmation
//! is still missing, and some message was returned, an acknowledgement proves nothing yet.

use std::collections::HashMap;

use lapin::{ErrorKind, protocol::AMQPErrorKind};
use posthaste_core::{Class, Failure};

use crate::properties::Outgoing;

/// What is known of one message of a batch when the waiting ends.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// Not written whole to the socket; the error, if something else than time ended it.
    Unwritten(Option<lapin::Error>),
    /// Written, and no confirmation came in time.
    Unanswered,
    /// Written, and the channel or connection ended before its confirmation.
    Lost(lapin::Error),
    /// Confirmed.
    Acked,
    /// Refused by the broker.
    Nacked,
}

/// The messages that came back, by `message_id`: code and text.
pub(crate) type Returned = HashMap<String, (u16, String)>;

/// One answer a message.
pub(crate) fn judge(sent: &[&Outgoing], fates: &[Fate], returned: &Returned) -> Vec<Result<(), Failure>> {
    let answered = fates.iter().all(|fate| matches!(fate, Fate::Acked | Fate::Nacked));
    let all_returns_known = answered || returned.is_empty();
    let end = End::of(fates, sent.len() == 1);
    let verdict = |(message, fate): (&&Outgoing, &Fate)| match (returned.get(&message.id), fate) {
        (Some((code, text)), _) => Err(unroutable(message, *code, text)),
        (None, Fate::Acked) if all_returns_known => Ok(()),
        (None, Fate::Acked) => {
            Err(Failure::lost("acknowledged, but the batch ended before it was clear which messages had been returned"))
        }
        (None, Fate::Nacked) => Err(nacked()),
        (None, Fate::Unanswered) => Err(Failure::no_answer("the broker did not confirm it within the deadline")),
        (None, Fate::Unwritten(_)) => Err(end.of_message(message, false)),
        (None, Fate::Lost(_)) => Err(end.of_message(message, true)),
    };
    sent.iter().zip(fates).map(verdict).collect()
}

/// A connection that could not be made: nothing was sent, and whatever the reason, it says nothing
/// about the messages.
pub(crate) fn no_connection(to: &str, error: &lapin::Error) -> Failure {
    let hint = match protocol_error(error) {
        Some((403, _)) => "; check user, password and the user's rights on the virtual host",
        Some((402 | 530, _)) => "; check the virtual host",
        _ => "",
    };
    Failure::new(Class::Transient, format!("connecting to {to}: {}{hint}", text(error)))
}

/// An exchange that could not be asserted.
pub(crate) fn undeclared(exchange: &str, error: &lapin::Error) -> Failure {
    Failure::new(Class::Misrouted, format!("declaring exchange '{exchange}': {}", text(error)))
}

/// Whether the error is the broker's word on one channel, so that others go on.
pub(crate) fn ends_channel_only(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error) if matches!(error.kind(), AMQPErrorKind::Soft(_)))
}

/// The broker's code and words, or lapin's.
pub(crate) fn text(error: &lapin::Error) -> String {
    protocol_error(error).map_or_else(|| error.to_string(), |(code, text)| format!("{code} {text}"))
}

/// Why a channel or connection ended under a batch.
struct End {
    code: u16,
    text: String,
    exchange: Option<String>,
    of_channel: bool,
    alone: bool,
}

impl End {
    fn of(fates: &[Fate], alone: bool) -> End {
        let errors = || {
            fates.iter().filter_map(|fate| match fate {
                Fate::Lost(error) | Fate::Unwritten(Some(error)) => Some(error),
                _ => None,
            })
        };
        // What the broker said tells more than the errors it caused in lapin.
        let Some(error) = errors().find(|error| protocol_error(error).is_some()).or_else(|| errors().next()) else {
            return End {
                code: 0,
                text: "not sent within the deadline".to_owned(),
                exchange: None,
                of_channel: false,
                alone,
            };
        };
        let (code, _) = protocol_error(error).unwrap_or_default();
        let text = text(error);
        End { code, exchange: named_exchange(&text), text, of_channel: ends_channel_only(error), alone }
    }

    fn of_message(&self, message: &Outgoing, written: bool) -> Failure {
        let named = self.exchange.as_deref().map_or(self.alone, |exchange| exchange == message.exchange.as_str());
        match self.code {
            404 if self.of_channel && named => {
                self.misrouted("declare the exchange, or set declare=fanout|topic|direct")
            }
            // Rights belong to the exchange, not to the message, and can be given: not a reason to give it up.
            403 if self.of_channel && named => self.misrouted("give the user write access to the exchange"),
            311 | 406 if self.of_channel && self.alone => Failure::new(Class::Permanent, self.text.clone()),
            _ if written => Failure::lost(self.text.clone()),
            _ => Failure::new(Class::Transient, self.text.clone()),
        }
    }

    fn misrouted(&self, what_to_do: &str) -> Failure {
        Failure::new(Class::Misrouted, format!("{}; {what_to_do}", self.text))
    }
}

fn unroutable(message: &Outgoing, code: u16, text: &str) -> Failure {
    let key = message.routing_key.as_str();
    let why = match message.exchange.as_str() {
        "" => format!("no queue is named '{key}', and the default exchange routes by queue name"),
        exchange => format!("no queue is bound to exchange '{exchange}' for routing key '{key}'"),
    };
    Failure::new(Class::Misrouted, format!("{code} {text}: {why}"))
}

fn nacked() -> Failure {
    Failure::new(Class::Transient, "refused by the broker (basic.nack): a queue is full or has failed")
}

fn protocol_error(error: &lapin::Error) -> Option<(u16, String)> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some((error.get_id(), error.get_message().to_string())),
        _ => None,
    }
}

/// The exchange in `… exchange 'NAME' in vhost …`.
fn named_exchange(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("exchange '")?;
    let (name, _) = rest.split_once("' in vhost")?;
    Some(name.to_owned())
}
