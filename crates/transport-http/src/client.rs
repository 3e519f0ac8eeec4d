//! The HTTP client: made so that nothing in it can bypass the guard, follow, retry or share.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, redirect, retry};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::{resolve::Resolver, settings::Settings};

/// Shorter than the 5 s after which common servers drop idle connections: a request on a
/// connection that is being dropped has no known outcome.
const IDLE: Duration = Duration::from_secs(4);

/// A client without connections.
///
/// HTTP/1.1 only: a connection then carries one request, and one that got no answer is closed
/// with its request, so nothing waits behind it.
///
/// # Errors
/// TLS can't be set up; the reason.
pub fn build(settings: &Settings, resolver: Resolver) -> Result<Client, String> {
    let tls = tls().map_err(|error| format!("TLS can't be set up: {error}"))?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Arc::new(resolver))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .http1_only()
        .connect_timeout(settings.connect_timeout)
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("posthaste/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| crate::classify::chain(&error))
}

/// Trusts the roots of the system; where it has none, those that browsers trust.
fn tls() -> Result<ClientConfig, rustls::Error> {
    // Of this client alone: a process-wide default would be the application's to choose.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = match builder.clone().with_platform_verifier() {
        Ok(builder) => builder,
        Err(_) => builder.with_root_certificates(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }),
    };
    Ok(config.with_no_client_auth())
}
