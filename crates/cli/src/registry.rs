//! The stores and transports there are, by the scheme of their URLs. No other file names one.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use posthaste_core::{
    AddressTemplate, Class, Failure, OutboxName,
    event::Limits,
    options::{ConfigError, Options, nearest},
    port::{Store, Target, Transport as _},
    redact::redact_url,
};
use posthaste_store_postgres::PostgresStore;
use posthaste_store_sqlite::SqliteStore;

const TARGETS: [&str; 7] = ["stdout", "file", "sqlite", "amqp", "amqps", "http", "https"];
const STORES: [&str; 3] = ["sqlite", "postgres", "postgresql"];

/// What every store is told.
#[derive(Clone, Copy, Debug)]
pub struct StoreSettings {
    /// How long published rows are kept.
    pub retention: Duration,
    /// What events must keep to.
    pub limits: Limits,
}

/// The outbox `name` in the database of `url`. Connects to nothing.
///
/// # Errors
/// What is wrong with the URL, without its secrets.
pub fn store(url: &str, name: &OutboxName, settings: StoreSettings) -> Result<Arc<dyn Store>, ConfigError> {
    match scheme(url) {
        "sqlite" => {
            let store = SqliteStore::new(url, name)?.with_retention(settings.retention).with_limits(settings.limits);
            Ok(Arc::new(store))
        }
        "postgres" | "postgresql" => {
            let StoreSettings { retention, limits } = settings;
            let settings = posthaste_store_postgres::Settings { retention, limits, ..Default::default() };
            Ok(Arc::new(PostgresStore::new(url, name.clone(), settings)?))
        }
        other => Err(unknown(url, other)),
    }
}

/// The target at `url`. Connects to nothing.
///
/// # Errors
/// What is wrong with the URL or an option, without secrets.
pub fn target(url: &str, options: Options) -> Result<Target, ConfigError> {
    match scheme(url) {
        "stdout" | "file" | "sqlite" => posthaste_transport_local::parse(url, options),
        "amqp" | "amqps" => posthaste_transport_amqp::parse(url, options),
        "http" | "https" => posthaste_transport_http::parse(url, options),
        other => {
            let meant = nearest(other, &TARGETS).filter(|_| !other.is_empty());
            let meant = meant.map(|known| format!("; did you mean {known}:?")).unwrap_or_else(|| ";".to_owned());
            let forms = "stdout:, file:PATH, sqlite:FILE, amqp://HOST/VHOST, or https://HOST/PATH";
            let detail = format!("no target has this scheme{meant} write {forms}");
            Err(ConfigError::Url { url: redact_url(url), detail })
        }
    }
}

/// Whether the target at `url` is a webhook.
pub fn is_webhook(url: &str) -> bool {
    matches!(scheme(url), "http" | "https")
}

/// Whether the messages of the target at `url` are signed, where its kind can sign.
pub fn is_signed(url: &str, options: &Options) -> bool {
    !is_webhook(url) || posthaste_transport_http::is_signed(options)
}

/// What a target answers once nobody reads the standard output any more.
pub const STDOUT_CLOSED: &str = posthaste_transport_local::STDOUT_CLOSED;

/// Whether the database of `url` holds nothing before this process and nothing after it.
pub fn ends_with_the_process(url: &str) -> bool {
    url == "sqlite::memory:"
}

/// Whether what the target at `url` names, as it is now, can take messages at all.
///
/// # Errors
/// Why it never will.
pub fn check_place(url: &str) -> Result<(), ConfigError> {
    posthaste_transport_local::check_place(url)
}

/// What is wrong with the places on the target at `url` that messages with these addresses go to, as far as
/// it can be asked: one sentence each.
///
/// # Errors
/// The target can't be asked.
pub async fn missing_places(
    url: &str,
    options: Options,
    addresses: &[&AddressTemplate],
    patience: Duration,
) -> Result<Vec<String>, Failure> {
    if !matches!(scheme(url), "amqp" | "amqps") {
        return Ok(Vec::new());
    }
    let unusable = |error: ConfigError| Failure::new(Class::Unknown, error.to_string());
    let transport = posthaste_transport_amqp::open(url, options).map_err(unusable)?;
    let exchanges: BTreeSet<&str> = addresses.iter().filter_map(|address| address.constant("exchange")).collect();
    let missing = transport.missing_exchanges(&Vec::from_iter(exchanges), patience).await;
    transport.close().await;
    missing
}

/// Whether an absent or empty database of this kind is made ready by its first use.
pub fn is_made_by_first_use(url: &str) -> bool {
    scheme(url) == "sqlite"
}

fn scheme(url: &str) -> &str {
    url.split_once(':').map_or("", |(scheme, _)| scheme)
}

fn unknown(url: &str, scheme: &str) -> ConfigError {
    let meant = nearest(scheme, &STORES).filter(|_| !scheme.is_empty());
    let meant = meant.map(|known| format!("; did you mean {known}:?")).unwrap_or_else(|| ";".to_owned());
    let detail = format!("no store has this scheme{meant} write sqlite:FILE or postgres://USER@HOST/DB");
    ConfigError::Url { url: redact_url(url), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_no_store_is_refused_without_its_secret() {
        let settings = StoreSettings { retention: Duration::from_secs(1), limits: Limits::default() };
        for url in ["postgras://a:s3cret@h/db", "mongodb://a:s3cret@h/db", "app.db", "", "://s3cret"] {
            let Err(error) = store(url, &OutboxName::unnamed(), settings) else { panic!("{url} is accepted") };
            let text = error.to_string();
            assert!(text.contains("write sqlite:FILE or postgres://"), "{text}");
            assert!(!text.contains(":s3cret"), "{text}");
        }
    }
}
