//! A relay as it is used, from an outbox to one target.

use std::sync::Arc;

use posthaste_core::{
    OutboxName, RouteKey,
    port::{Store, Target},
};
use posthaste_relay::{
    Relay, RelayHandle, Settings,
    route::{Route, Routes, TargetKey},
};

use crate::Result;

/// Starts a relay that sends everything to `target`.
pub(crate) fn start(
    outbox: &OutboxName,
    store: Arc<dyn Store>,
    target: Target,
    settings: Settings,
) -> Result<RelayHandle> {
    let key = TargetKey::from("default");
    let route = Route {
        key: RouteKey::single(),
        pattern: "*".parse()?,
        when: None,
        payload: None,
        target: key.clone(),
        address: target.address.clone(),
    };
    let routes = Routes::new(vec![route], Vec::new(), "/posthaste/bench".into(), settings.max_body)?;
    let builder = Relay::builder("bench").target(key, target);
    Ok(builder.outbox(outbox.clone(), store, Arc::new(routes), settings).build()?.start())
}

/// Waits until everything is delivered and marked.
pub(crate) async fn until_idle(relay: &RelayHandle) -> Result<()> {
    for (_, mut progress) in relay.progress() {
        progress.wait_for(|progress| progress.passes > 0 && progress.idle && progress.unmarked == 0).await?;
    }
    Ok(())
}
