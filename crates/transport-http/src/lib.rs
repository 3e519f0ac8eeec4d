//! Webhooks: each message is one POST, signed by the Standard Webhooks specification.
//!
//! Options: `secret` (again for a second one during an exchange), `allow` (networks besides the
//! public internet), `timeout`, `connect_timeout` (5s), `mode` (`binary` or `structured`), `header`
//! (`Name: value`, repeatable). `{type}`, `{key}` and `{tenant}` may stand in path and query of the
//! URL; the target has no other address parts.
//!
//! What answers mean:
//!
//! | answer | class |
//! |---|---|
//! | 2xx | published |
//! | 408, 421, 425, 429, 502, 503, 504, 521–526, 530, 598, 599 | transient; `Retry-After` is kept to, up to an hour |
//! | 404, 405 | misrouted |
//! | 401, 402, 403, 407 | unknown: credentials can be repaired |
//! | 410 and every other 4xx | permanent |
//! | 3xx (never followed), 500 and all others | unknown |
//! | refused address, no DNS answer, no connection | transient, not delivered |
//! | connection lost, or no answer in time | transient, may have been delivered |

mod classify;
mod client;
mod endpoint;
mod guard;
mod request;
mod resolve;
mod settings;
mod signature;
mod transport;

use std::sync::Arc;

use posthaste_core::{
    AddressTemplate,
    options::{ConfigError, Options},
    port::Target,
    redact::redact_url,
};

pub use transport::HttpTransport;

/// Makes the target that `url` (`https://` or `http://`) and `options` describe. Does no I/O.
///
/// An address that may not be connected to is no error here: it pauses the target, whose rows
/// stay as they are until `allow` opens the address.
///
/// # Errors
/// The URL or an option can't be used.
pub fn parse(url: &str, options: Options) -> Result<Target, ConfigError> {
    let endpoint = endpoint::Endpoint::parse(url)?;
    let settings = settings::Settings::read(options)?;
    let transport = Arc::new(HttpTransport::new(endpoint, settings));
    Ok(Target { label: redact_url(url), address: AddressTemplate::default(), transport })
}

/// Whether requests will be signed. Where they are not, receivers can't tell who sent them, and
/// the user is to be warned.
#[must_use]
pub fn is_signed(options: &Options) -> bool {
    !options.clone().take_all("secret").is_empty()
}
