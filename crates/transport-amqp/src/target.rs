//! What a target's URL and options say. No I/O.

use std::sync::Arc;

use lapin::ExchangeKind;
use posthaste_core::{
    AddressTemplate, Secret,
    options::{ConfigError, Options, nearest},
    port::Target,
    redact::redact_url,
};

use crate::{transport::AmqpTransport, uri::Uri};

/// The part of an address that names the exchange; empty is the default exchange.
pub(crate) const EXCHANGE: &str = "exchange";
/// The part of an address that is the routing key.
pub(crate) const ROUTING_KEY: &str = "routing_key";

const KNOWN: [&str; 7] = [EXCHANGE, ROUTING_KEY, "declare", "connection_name", "heartbeat", "user", "password"];
const KINDS: [&str; 3] = ["fanout", "topic", "direct"];
const HEARTBEAT: u16 = 20;

/// Everything about the connection.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: Secret,
    pub(crate) vhost: String,
    pub(crate) name: String,
    /// Seconds; 0 is off.
    pub(crate) heartbeat: u16,
    /// The kind of exchange to assert before its first use.
    pub(crate) declare: Option<ExchangeKind>,
}

/// Reads a target: `amqp://user:password@host:port/vhost?exchange=E&routing_key=T`, or `amqps:`.
///
/// Options, in the URL's query or from the configuration:
/// - `exchange` (default: the default exchange) and `routing_key` (default `{type}`), templates;
/// - `declare=fanout|topic|direct`: the durable exchange is asserted before its first use; without it
///   nothing is ever declared;
/// - `user` and `password` as they are, instead of those in the URL;
/// - `connection_name` (default `posthaste`) and `heartbeat` in seconds (default 20, 0 is off).
///
/// `amqp://host/` means the virtual host `/`, like `amqp://host` and `amqp://host/%2f`.
///
/// # Errors
/// What is wrong with the URL or an option, without secrets.
pub fn parse(url: &str, mut options: Options) -> Result<Target, ConfigError> {
    let (address, settings) = read(url, &mut options)?;
    options.finish(&KNOWN)?;
    Ok(Target { label: redact_url(url), address, transport: Arc::new(AmqpTransport::new(settings)) })
}

/// The transport alone, to ask the broker what [`parse`] can't know.
///
/// # Errors
/// What is wrong with the URL or an option, without secrets.
pub fn open(url: &str, mut options: Options) -> Result<AmqpTransport, ConfigError> {
    read(url, &mut options).map(|(_, settings)| AmqpTransport::new(settings))
}

fn read(url: &str, options: &mut Options) -> Result<(AddressTemplate, Settings), ConfigError> {
    let uri = Uri::parse(url)?;
    uri.query.iter().for_each(|(name, value)| options.add(name, value));
    Ok((address(options)?, settings(uri, options)?))
}

fn address(options: &mut Options) -> Result<AddressTemplate, ConfigError> {
    let mut address = AddressTemplate::default();
    address.set(EXCHANGE, &options.take(EXCHANGE)?.unwrap_or_default())?;
    address.set(ROUTING_KEY, options.take(ROUTING_KEY)?.as_deref().unwrap_or("{type}"))?;
    Ok(address)
}

fn settings(uri: Uri, options: &mut Options) -> Result<Settings, ConfigError> {
    Ok(Settings {
        tls: uri.tls,
        host: uri.host,
        port: uri.port,
        user: options.take("user")?.unwrap_or(uri.user),
        password: options.take("password")?.map_or(uri.password, Secret::new),
        vhost: uri.vhost,
        name: options.take("connection_name")?.unwrap_or_else(|| "posthaste".to_owned()),
        heartbeat: options.take("heartbeat")?.as_deref().map_or(Ok(HEARTBEAT), heartbeat)?,
        declare: options.take("declare")?.as_deref().map(kind).transpose()?,
    })
}

fn heartbeat(text: &str) -> Result<u16, ConfigError> {
    let detail = || format!("{text:?} is no number of seconds from 0 to 65535");
    text.parse().map_err(|_| ConfigError::Option { name: "heartbeat".to_owned(), detail: detail() })
}

fn kind(text: &str) -> Result<ExchangeKind, ConfigError> {
    match text {
        "fanout" => Ok(ExchangeKind::Fanout),
        "topic" => Ok(ExchangeKind::Topic),
        "direct" => Ok(ExchangeKind::Direct),
        _ => {
            let meant = nearest(text, &KINDS).map(|kind| format!("; did you mean {kind}?")).unwrap_or_default();
            let detail = format!("{text:?} can't be declared, only fanout, topic and direct can{meant}");
            Err(ConfigError::Option { name: "declare".to_owned(), detail })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str, options: Options) -> String {
        parse(url, options).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn decision_29_nothing_is_declared_unless_the_target_says_so() {
        let settings = |url: &str| {
            let uri = Uri::parse(url).unwrap();
            let mut options = Options::default();
            uri.query.iter().for_each(|(name, value)| options.add(name, value));
            settings(uri, &mut options).unwrap()
        };
        assert_eq!(settings("amqp://h").declare, None);
        assert_eq!(settings("amqp://h?declare=topic").declare, Some(ExchangeKind::Topic));
        assert!(refusal("amqp://h?declare=topik", Options::default()).contains("did you mean topic?"));
    }

    #[test]
    fn every_option_may_stand_in_the_url_or_the_configuration_but_not_in_both() {
        let mut options = Options::default();
        options.add("exchange", "e");
        assert!(parse("amqp://h?heartbeat=0&user=u&password=p%2541", options.clone()).is_ok());
        assert!(refusal("amqp://h?exchange=e", options.clone()).contains("more than once"));
        assert!(refusal("amqp://h?exchnage=e", options).contains("did you mean exchange?"));
        assert!(refusal("amqp://h?heartbeat=x", Options::default()).contains("heartbeat"));
        assert!(refusal("amqp://h?routing_key={typ}", Options::default()).contains("{type}"));
    }

    #[test]
    fn the_label_shows_no_password() {
        let target = parse("amqp://app:geheim@h/v?exchange=e&password=geheim", Options::default()).unwrap();
        assert_eq!(target.label, "amqp://app:***@h/v?exchange=e&password=***");
        assert_eq!(target.address.parts().collect::<Vec<_>>(), ["exchange", "routing_key"]);
    }
}
