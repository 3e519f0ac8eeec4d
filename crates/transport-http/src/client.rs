//! The HTTP client: made so that nothing in it can bypass the guard, follow, retry or share.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, redirect, retry};
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
/// The system has no usable root certificates; the reason.
pub fn build(settings: &Settings, resolver: Resolver) -> Result<Client, String> {
    // Of this client alone: a process-wide default would be the application's to choose.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| format!("TLS can't be set up (are CA certificates installed?): {error}"))?
        .with_no_client_auth();
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
