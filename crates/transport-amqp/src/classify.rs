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
pub(crate) fn judge(sent: &[Outgoing], fates: &[Fate], returned: &Returned) -> Vec<Result<(), Failure>> {
    let answered = fates.iter().all(|fate| matches!(fate, Fate::Acked | Fate::Nacked));
    let all_returns_known = answered || returned.is_empty();
    let end = End::of(fates, sent.len() == 1);
    let verdict = |(message, fate): (&Outgoing, &Fate)| match (returned.get(&message.id), fate) {
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

/// Whether the broker let the connection not in, which waiting does not change.
pub(crate) fn is_refusal(error: &lapin::Error) -> bool {
    matches!(protocol_error(error), Some((402 | 403 | 530, _)))
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

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPHardError, AMQPSoftError};
    use posthaste_core::failure::Outcome::{self, Lost, NoAnswer, NotDelivered};

    use super::*;

    fn to(exchange: &str, id: &str) -> Outgoing {
        Outgoing {
            id: id.to_owned(),
            exchange: exchange.into(),
            routing_key: "k".into(),
            properties: lapin::BasicProperties::default(),
            header_frame: 0,
        }
    }

    fn soft(error: AMQPSoftError, text: &str) -> lapin::Error {
        ErrorKind::ProtocolError(AMQPError::new(error.into(), text.into())).into()
    }

    fn hard(error: AMQPHardError) -> lapin::Error {
        ErrorKind::ProtocolError(AMQPError::new(error.into(), "X".into())).into()
    }

    fn no_exchange(name: &str) -> lapin::Error {
        soft(AMQPSoftError::NOTFOUND, &format!("NOT_FOUND - no exchange '{name}' in vhost '/'"))
    }

    fn verdicts(sent: &[(&str, Fate)], returned: &[usize]) -> Vec<Option<(Class, Outcome)>> {
        let messages: Vec<Outgoing> = sent.iter().enumerate().map(|(n, (to_, _))| to(to_, &n.to_string())).collect();
        let fates: Vec<Fate> = sent.iter().map(|(_, fate)| fate.clone()).collect();
        let returned = returned.iter().map(|n| (n.to_string(), (312, "NO_ROUTE".to_owned()))).collect();
        let answers = judge(&messages, &fates, &returned);
        answers.into_iter().map(|answer| answer.err().map(|failure| (failure.class, failure.outcome))).collect()
    }

    const NOT_SENT: Option<(Class, Outcome)> = Some((Class::Transient, NotDelivered));
    const LOST: Option<(Class, Outcome)> = Some((Class::Transient, Lost));
    const MISROUTED: Option<(Class, Outcome)> = Some((Class::Misrouted, NotDelivered));

    #[test]
    fn report_038_a_return_counts_for_its_own_message_wherever_it_was_found() {
        let acked = |_| ("e", Fate::Acked);
        let all: Vec<_> = (0..4).map(acked).collect();
        assert_eq!(verdicts(&all, &[2]), [None, None, MISROUTED, None]);
        assert_eq!(verdicts(&[("e", Fate::Nacked), ("e", Fate::Acked)], &[]), [NOT_SENT, None]);
    }

    #[test]
    fn report_038_an_incomplete_batch_with_a_return_proves_no_acknowledgement() {
        let batch = [("e", Fate::Acked), ("e", Fate::Acked), ("e", Fate::Unanswered)];
        let no_answer = Some((Class::Transient, NoAnswer));
        assert_eq!(verdicts(&batch, &[]), [None, None, no_answer]);
        assert_eq!(verdicts(&batch, &[0]), [MISROUTED, LOST, no_answer]);
    }

    #[test]
    fn report_037_a_missing_exchange_misroutes_its_own_messages_and_loses_the_others() {
        let batch = [
            ("there", Fate::Acked),
            ("gone", Fate::Lost(no_exchange("gone"))),
            ("there", Fate::Lost(no_exchange("gone"))),
            ("there", Fate::Unwritten(Some(ErrorKind::FutureCompleted.into()))),
            ("gone", Fate::Unwritten(Some(no_exchange("gone")))),
        ];
        assert_eq!(verdicts(&batch, &[]), [None, MISROUTED, LOST, NOT_SENT, MISROUTED]);
    }

    #[test]
    fn missing_rights_on_an_exchange_are_no_reason_to_give_its_messages_up() {
        let refused = |text: &str| Fate::Lost(soft(AMQPSoftError::ACCESSREFUSED, text));
        let named = refused("ACCESS_REFUSED - access to exchange 'it''s' in vhost '/' refused for user 'u'");
        assert_eq!(verdicts(&[("it''s", named.clone()), ("e", named)], &[]), [MISROUTED, LOST]);
        let unnamed = refused("ACCESS_REFUSED");
        assert_eq!(verdicts(&[("e", unnamed.clone())], &[]), [MISROUTED]);
        assert_eq!(verdicts(&[("e", unnamed.clone()), ("e", unnamed)], &[]), [LOST, LOST]);
    }

    #[test]
    fn only_a_message_that_was_alone_is_blamed_for_what_closed_its_channel() {
        for error in [AMQPSoftError::PRECONDITIONFAILED, AMQPSoftError::CONTENTTOOLARGE] {
            let fate = Fate::Lost(soft(error, "X"));
            assert_eq!(verdicts(&[("e", fate.clone())], &[]), [Some((Class::Permanent, NotDelivered))]);
            assert_eq!(verdicts(&[("e", fate.clone()), ("e", fate)], &[]), [LOST, LOST]);
        }
    }

    #[test]
    fn what_ends_the_connection_is_nobodys_fault() {
        for error in [AMQPHardError::FRAMEERROR, AMQPHardError::CONNECTIONFORCED, AMQPHardError::INTERNALERROR] {
            assert_eq!(verdicts(&[("e", Fate::Lost(hard(error.clone())))], &[]), [LOST]);
            assert_eq!(verdicts(&[("e", Fate::Unwritten(Some(hard(error))))], &[]), [NOT_SENT]);
        }
        assert_eq!(verdicts(&[("e", Fate::Unwritten(None))], &[]), [NOT_SENT]);
        assert_eq!(verdicts(&[("e", Fate::Lost(ErrorKind::MissingHeartbeatError.into()))], &[]), [LOST]);
    }
}
