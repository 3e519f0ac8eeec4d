//! From the configuration to routes and targets: everything is checked, nothing connects.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use posthaste_core::{
    AddressTemplate, Backoff, Failure, OutboxName, RouteKey,
    options::{ConfigError, Options, nearest},
    port::Target,
};
use posthaste_relay::{
    RetryPolicy, Settings,
    route::{Route, Routes, TargetKey, TypePattern, condition, payload},
};
use serde::{Deserialize, Serialize};

use crate::{
    args::To,
    config::{Config, RouteConfig},
    exit::Fault,
    registry,
};

/// Targets, and the routes to them.
pub struct Wiring {
    /// The targets by name.
    pub targets: BTreeMap<TargetKey, Target>,
    /// What the operator should know before it starts.
    pub warnings: Vec<String>,
    /// What was given for each target.
    given: BTreeMap<TargetKey, (String, Options)>,
    routes: Vec<Route>,
    discards: Vec<TypePattern>,
    max_body: u64,
}

/// A route as a relay shows it to those who ask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RouteJson {
    /// Its key.
    pub route: String,
    /// The types it takes.
    #[serde(rename = "match")]
    pub pattern: String,
    /// Where its messages go.
    pub target: String,
}

impl Wiring {
    /// What the command line says, else the configuration.
    pub fn of(to: &To, config: &Config) -> Result<Wiring, Fault> {
        let Some(url) = &to.url else { return Wiring::of_config(config) };
        let only_webhooks = [("--allow-net", !to.allow_net.is_empty()), ("--secret-env", to.secret_env.is_some())];
        let given = only_webhooks.iter().find(|(_, given)| *given);
        if let Some((option, _)) = given.filter(|_| !registry::is_webhook(url)) {
            return Err(Fault::usage(format!("{option} is for webhooks, and --to is none"))
                .hint("leave it out, or give --to https://HOST/PATH"));
        }
        let mut options = Options::default();
        to.allow_net.iter().for_each(|net| options.add("allow", net));
        if let Some(variable) = &to.secret_env {
            let unusable =
                |_| Fault::usage(format!("--secret-env: the variable {variable} is not set, or is not text"));
            options.add("secret", std::env::var(variable).map_err(unusable)?);
        }
        Wiring::single(url, options, config)
    }

    /// One route for everything, to the target at `url`.
    fn single(url: &str, options: Options, config: &Config) -> Result<Wiring, Fault> {
        let mut wiring = Wiring::empty(config);
        let key = TargetKey::from(RouteKey::single().as_str());
        wiring.add_target(&key, url, options).map_err(|error| Fault::from(error).context("--to"))?;
        let address = wiring.targets.get(&key).map(|target| target.address.clone()).unwrap_or_default();
        let pattern = everything()?;
        wiring.routes.push(Route { key: RouteKey::single(), pattern, when: None, payload: None, target: key, address });
        Ok(wiring)
    }

    /// The targets and routes of the configuration.
    pub fn of_config(config: &Config) -> Result<Wiring, Fault> {
        let mut wiring = Wiring::empty(config);
        for (name, target) in &config.targets {
            let added = wiring.add_target(&TargetKey::from(name.as_str()), &target.url, target.options.clone());
            added.map_err(|error| Fault::from(error).context(&format!("targets.{name}")))?;
        }
        for (name, route) in &config.routes {
            wiring.add_route(name, route).map_err(|fault| fault.context(&format!("routes.{name}")))?;
        }
        if wiring.routes.is_empty() {
            return Err(Fault::usage("the configuration has no route").hint("add one under `routes`, or give --to URL"));
        }
        Ok(wiring)
    }

    /// The routes of one outbox; its name is part of the CloudEvents source.
    pub fn routes_of(&self, outbox: &OutboxName) -> Result<Arc<Routes>, Fault> {
        let source = format!("/posthaste/{outbox}").into();
        let routes = Routes::new(self.routes.clone(), self.discards.clone(), source, self.max_body);
        routes.map(Arc::new).map_err(|error| Fault::usage(error.to_string()))
    }

    /// Looks at the targets of this machine: a relay whose events can't get there doesn't start.
    pub fn check_places(&self) -> Result<(), Fault> {
        for (key, target) in &self.targets {
            let checked = registry::check_place(&target.label);
            checked.map_err(|error| Fault::from(error).context(&format!("target {key}")))?;
        }
        Ok(())
    }

    /// What is missing on a target that the routes to it need, as far as it can be asked.
    ///
    /// # Errors
    /// The target can't be asked.
    pub async fn missing_places(&self, key: &TargetKey, patience: Duration) -> Result<Vec<String>, Failure> {
        let Some((url, options)) = self.given.get(key) else { return Ok(Vec::new()) };
        let mut addresses: Vec<&AddressTemplate> =
            self.routes.iter().filter(|route| route.target == *key).map(|route| &route.address).collect();
        if addresses.is_empty() {
            addresses.extend(self.targets.get(key).map(|target| &target.address));
        }
        registry::missing_places(url, options.clone(), &addresses, patience).await
    }

    /// The routes, to be shown.
    pub fn shown(&self) -> Vec<RouteJson> {
        let shown = |route: &Route| RouteJson {
            route: route.key.to_string(),
            pattern: route.pattern.to_string(),
            target: route.target.to_string(),
        };
        self.routes.iter().map(shown).collect()
    }

    fn empty(config: &Config) -> Wiring {
        Wiring {
            targets: BTreeMap::new(),
            warnings: Vec::new(),
            given: BTreeMap::new(),
            routes: Vec::new(),
            discards: Vec::new(),
            max_body: config.outbox.max_body,
        }
    }

    fn add_target(&mut self, key: &TargetKey, url: &str, options: Options) -> Result<(), ConfigError> {
        if !registry::is_signed(url, &options) {
            self.warnings.push(format!("target {key} has no secret: its webhooks are sent unsigned"));
        }
        self.targets.insert(key.clone(), registry::target(url, options.clone())?);
        self.given.insert(key.clone(), (url.to_owned(), options));
        Ok(())
    }

    fn add_route(&mut self, name: &str, route: &RouteConfig) -> Result<(), Fault> {
        let pattern: TypePattern = route.pattern.parse().map_err(|error| Fault::usage(format!("match: {error}")))?;
        let Some(target) = &route.target else {
            self.discards.push(pattern);
            return Ok(());
        };
        let key = TargetKey::from(target.as_str());
        let Some(known) = self.targets.get(&key) else {
            let names: Vec<&str> = self.targets.keys().map(TargetKey::as_str).collect();
            let meant = nearest(target, &names).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            return Err(Fault::usage(format!("target {target} does not exist{meant}")));
        };
        let when = route.when.as_deref().map(condition).transpose();
        let when = when.map_err(|error| Fault::usage(format!("when: {error}")))?;
        let payload = route.payload.as_deref().map(payload).transpose();
        let payload = payload.map_err(|error| Fault::usage(format!("payload: {error}")))?;
        let address = address(&known.address, &route.address)?;
        self.routes.push(Route { key: RouteKey::from(name), pattern, when, payload, target: key, address });
        Ok(())
    }
}

/// The target's address with the parts that the route gives.
fn address(defaults: &AddressTemplate, given: &BTreeMap<String, String>) -> Result<AddressTemplate, Fault> {
    let known: Vec<&'static str> = defaults.parts().collect();
    let mut address = defaults.clone();
    for (part, text) in given {
        let Some(name) = known.iter().find(|name| *name == part) else {
            let meant = nearest(part, &known).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            return Err(Fault::usage(format!("unknown key {part}{meant}")));
        };
        address.set(name, text).map_err(|error| Fault::usage(error.to_string()))?;
    }
    Ok(address)
}

fn everything() -> Result<TypePattern, Fault> {
    "*".parse().map_err(|error| Fault::failure(format!("{error}")))
}

/// How the relay pumps, as configured.
pub fn relay_settings(config: &Config) -> Settings {
    let defaults = Settings::default();
    Settings {
        interval: config.outbox.interval,
        batch: config.outbox.batch,
        defer: config.outbox.defer,
        mark_delay: config.outbox.mark_delay,
        max_body: config.outbox.max_body,
        publish_timeout: config.publish_timeout,
        retention: config.outbox.retention,
        retry: RetryPolicy {
            max_attempts: config.retry.max_attempts,
            permanent_attempts: config.retry.permanent_attempts,
            misrouted_for: config.retry.misrouted_for,
            backoff: Backoff::ROW,
        },
        ..defaults
    }
}
