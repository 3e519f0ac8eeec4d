//! Asserting exchanges, for targets that say `declare=`, and looking for them for those that don't.

use std::collections::{BTreeSet, HashMap};

use lapin::{
    ExchangeKind,
    options::ExchangeDeclareOptions,
    types::{FieldTable, ShortString},
};
use posthaste_core::{Class, Failure};
use tokio::time::Instant;

use crate::{
    channels::{Channels, Lease},
    classify,
    connection::Connection,
};

/// A channel on whose connection every exchange of `wanted` was asserted, but for those that the
/// broker refused, with its reasons.
///
/// # Errors
/// No channel, or no answer: nothing can be sent at all.
pub(crate) async fn lease_with(
    channels: &Channels,
    wanted: &BTreeSet<&str>,
    deadline: Instant,
) -> Result<(Lease, HashMap<String, Failure>), Failure> {
    let mut refused = HashMap::new();
    loop {
        let lease = channels.lease(deadline).await?;
        let Some(kind) = &channels.settings.declare else { return Ok((lease, refused)) };
        // The default exchange exists, and can't be declared.
        let mut missing = wanted
            .iter()
            .filter(|name| !name.is_empty() && !refused.contains_key(**name) && !lease.connection.is_declared(name));
        let Some(exchange) = missing.next() else { return Ok((lease, refused)) };
        match assert_exchange(&lease, exchange, kind, deadline).await? {
            Ok(()) => {
                lease.connection.set_declared(exchange, true);
                lease.give_back();
            }
            // The refusal closed the channel; the next turn gets another one.
            Err(failure) => drop(refused.insert((*exchange).to_owned(), failure)),
        }
    }
}

/// The broker's answer; the outer error is none at all.
async fn assert_exchange(
    lease: &Lease,
    exchange: &str,
    kind: &ExchangeKind,
    deadline: Instant,
) -> Result<Result<(), Failure>, Failure> {
    let Ok(name) = ShortString::try_new(exchange) else { return Ok(Ok(())) };
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let declaring = lease.channel.exchange_declare(name, kind.clone(), options, FieldTable::default());
    match lease.connection.ask(deadline, declaring).await? {
        Ok(()) => Ok(Ok(())),
        Err(error) if classify::ends_channel_only(&error) => Ok(Err(classify::undeclared(exchange, &error))),
        Err(error) => {
            let detail = format!("declaring exchange '{exchange}': {}", classify::text(&error));
            Err(Failure::new(Class::Transient, detail))
        }
    }
}

/// Why messages can't be sent to the exchange, if they can't. Declares nothing.
///
/// # Errors
/// No answer.
pub(crate) async fn look_for(
    connection: &Connection,
    exchange: &str,
    deadline: Instant,
) -> Result<Option<String>, Failure> {
    let Ok(name) = ShortString::try_new(exchange) else {
        return Ok(Some(format!("the name of exchange '{exchange}' is longer than 255 bytes")));
    };
    let asking = async {
        let channel = connection.channel_for_a_question().await?;
        let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        // With `passive` the kind is not looked at.
        channel.exchange_declare(name, ExchangeKind::Direct, options, FieldTable::default()).await
    };
    match connection.ask(deadline, asking).await? {
        Ok(()) => Ok(None),
        Err(error) if classify::ends_channel_only(&error) => {
            Ok(Some(format!("exchange '{exchange}': {}", classify::text(&error))))
        }
        Err(error) => {
            let detail = format!("looking for exchange '{exchange}': {}", classify::text(&error));
            Err(Failure::new(Class::Transient, detail))
        }
    }
}
