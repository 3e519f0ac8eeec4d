//! What the texts of a configuration mean. Pure: the environment is a function.

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::{Event, OutboxName, options::Options};

use super::{
    Config, OutboxConfig, RetryConfig, RouteConfig, TargetConfig,
    duration::{self, Bare},
    env::Lookup,
    file::{Coordination, File, Outbox, Retry, Text, Values},
    reader::{Reader, at},
    size,
};

/// Makes a checked configuration of a file and the environment.
///
/// # Errors
/// Every problem found, one a line.
pub fn resolve(file: File, lookup: Lookup<'_>) -> Result<Config, String> {
    let mut reader = Reader::new(lookup);
    let (outbox, coordination) = (file.outbox.unwrap_or_default(), file.coordination.unwrap_or_default());
    check_coordination(&mut reader, &coordination);
    let config = Config {
        store: reader.get("store", file.store.as_ref(), |text| not_empty(text).map(Some), None),
        outboxes: outboxes(&mut reader, file.outboxes.as_deref(), lookup),
        outbox: outbox_config(&mut reader, &outbox, &coordination),
        retry: retry_config(&mut reader, &file.retry.unwrap_or_default()),
        publish_timeout: reader.get("publish_timeout", file.publish_timeout.as_ref(), positive_millis, SECOND * 30),
        targets: targets(&mut reader, file.targets.unwrap_or_default()),
        routes: routes(&mut reader, file.routes.unwrap_or_default()),
        warnings: Vec::new(),
    };
    check_route_targets(&mut reader, &config);
    if !reader.problems.is_empty() {
        return Err(reader.problems.join("\n"));
    }
    Ok(Config { warnings: reader.warnings, ..config })
}

const SECOND: Duration = Duration::from_secs(1);

fn outbox_config(reader: &mut Reader<'_>, outbox: &Outbox, coordination: &Coordination) -> OutboxConfig {
    OutboxConfig {
        interval: reader.get("outbox.interval", outbox.interval.as_ref(), positive_millis, SECOND * 5),
        batch: reader.get("outbox.batch", outbox.batch.as_ref(), |text| whole(text, 1, 10_000), 200),
        retention: reader.get("outbox.retention", outbox.retention.as_ref(), seconds, SECOND * 86_400),
        defer: reader.get("outbox.defer", outbox.defer.as_ref(), boolean, false),
        max_body: reader.get("outbox.max_body", outbox.max_body.as_ref(), body_size, Event::DEFAULT_MAX_BODY as u64),
        mark_delay: reader.get("outbox.mark_delay", outbox.mark_delay.as_ref(), millis, SECOND / 4),
        coordination_interval: reader.get(
            "coordination.interval",
            coordination.interval.as_ref(),
            positive_millis,
            SECOND * 5,
        ),
    }
}

fn retry_config(reader: &mut Reader<'_>, retry: &Retry) -> RetryConfig {
    let attempts = |text: &str| whole(text, 1, 1_000_000);
    RetryConfig {
        max_attempts: reader.get("retry.max_attempts", retry.max_attempts.as_ref(), attempts, 10),
        permanent_attempts: reader.get("retry.permanent_attempts", retry.permanent_attempts.as_ref(), attempts, 1),
        misrouted_for: reader.get("retry.misrouted_for", retry.misrouted_for.as_ref(), seconds, SECOND * 3_600),
    }
}

/// This build knows one way to share an outbox: one relay at a time holds all of it.
fn check_coordination(reader: &mut Reader<'_>, coordination: &Coordination) {
    let only = |known: &'static str| {
        move |text: &str| if text == known { Ok(()) } else { Err(format!("{text:?} is not available; write {known}")) }
    };
    reader.get("coordination.strategy", coordination.strategy.as_ref(), only("lanes"), ());
    reader.get("coordination.arbiter", coordination.arbiter.as_ref(), only("store"), ());
    let ownership = |text: &str| match text {
        "solo" | "sticky" => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is no way to own lanes; write solo")),
    };
    let chosen = reader.get("coordination.ownership", coordination.ownership.as_ref(), ownership, "solo".to_owned());
    if chosen == "sticky" {
        let text =
            "coordination.ownership: sticky is not available yet; solo is used: one relay holds all lanes, others wait";
        reader.warnings.push(text.to_owned());
    }
}

fn outboxes(reader: &mut Reader<'_>, file: Option<&[Text]>, lookup: Lookup<'_>) -> Vec<OutboxName> {
    let named: Vec<(String, String)> = if let Some(list) = lookup("POSTHASTE_OUTBOXES") {
        list.split(',').map(|name| ("POSTHASTE_OUTBOXES".to_owned(), name.to_owned())).collect()
    } else {
        let texts = file.unwrap_or_default();
        texts.iter().filter_map(|text| Some((at(text, "outboxes"), reader.text("outboxes", text)?))).collect()
    };
    let mut names: Vec<OutboxName> = Vec::new();
    for (place, name) in named {
        match name.parse() {
            Ok(name) if names.contains(&name) => {
                reader.problem::<()>(&place, &format!("{name} is named twice"));
            }
            Ok(name) => names.push(name),
            Err(error) => {
                reader.problem::<()>(&place, &error.to_string());
            }
        }
    }
    names
}

fn targets(
    reader: &mut Reader<'_>,
    entries: BTreeMap<String, BTreeMap<String, Values>>,
) -> BTreeMap<String, TargetConfig> {
    let mut targets = BTreeMap::new();
    for (name, entry) in entries {
        let (mut url, mut options) = (None, Options::default());
        for (option, values) in entry {
            let key = format!("targets.{name}.{option}");
            let texts = match values {
                Values::One(text) => vec![text],
                Values::Many(texts) => texts,
            };
            for text in texts.iter().filter_map(|text| reader.expand(&key, text)) {
                if option == "url" { url = Some(text) } else { options.add(option.as_str(), text) }
            }
        }
        match url {
            Some(url) => {
                targets.insert(name, TargetConfig { url, options });
            }
            None => {
                reader.problem::<()>(&format!("targets.{name}"), "url is missing");
            }
        }
    }
    targets
}

fn routes(reader: &mut Reader<'_>, entries: BTreeMap<String, BTreeMap<String, Text>>) -> BTreeMap<String, RouteConfig> {
    entries.into_iter().filter_map(|(name, entry)| Some((name.clone(), route(reader, &name, entry)?))).collect()
}

fn route(reader: &mut Reader<'_>, name: &str, entry: BTreeMap<String, Text>) -> Option<RouteConfig> {
    let place = format!("routes.{name}");
    let mut texts = BTreeMap::new();
    for (key, text) in &entry {
        texts.insert(key.clone(), reader.text(&format!("{place}.{key}"), text)?);
    }
    let Some(pattern) = texts.remove("match") else { return reader.problem(&place, "match is missing") };
    let (when, payload, target) = (texts.remove("when"), texts.remove("payload"), texts.remove("target"));
    let target = match (target, texts.remove("otherwise").as_deref()) {
        (Some(_), Some(_)) => return reader.problem(&place, "target and otherwise exclude each other"),
        (None, None) => return reader.problem(&place, "target is missing; otherwise: discard drops the type"),
        (None, Some("discard")) => None,
        (None, Some(other)) => {
            return reader.problem(&place, &format!("otherwise: {other:?} is not known; write discard"));
        }
        (Some(target), None) => Some(target),
    };
    Some(RouteConfig { pattern, when, payload, target, address: texts })
}

fn check_route_targets(reader: &mut Reader<'_>, config: &Config) {
    let known: Vec<&str> = config.targets.keys().map(String::as_str).collect();
    for (name, route) in &config.routes {
        let Some(target) = route.target.as_deref().filter(|target| !known.contains(target)) else { continue };
        let meant = posthaste_core::options::nearest(target, &known).map(|name| format!("; did you mean {name}?"));
        let text = format!("{target} is no entry of targets{}", meant.unwrap_or_default());
        reader.problem::<()>(&format!("routes.{name}.target"), &text);
    }
}

fn not_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("is empty".to_owned()) } else { Ok(text.to_owned()) }
}

fn millis(text: &str) -> Result<Duration, String> {
    duration::parse(text, Bare::Millis)
}

fn positive_millis(text: &str) -> Result<Duration, String> {
    millis(text)?.checked_sub(Duration::from_millis(1)).map_or_else(
        || Err(format!("{text:?} is too short; 1ms is the least")),
        |rest| Ok(rest + Duration::from_millis(1)),
    )
}

fn seconds(text: &str) -> Result<Duration, String> {
    duration::parse(text, Bare::Seconds)
}

fn body_size(text: &str) -> Result<u64, String> {
    // What one row may have in a database and a frame of a broker.
    const MOST: u64 = 1 << 30;
    let size = size::parse(text)?;
    if (1..=MOST).contains(&size) { Ok(size) } else { Err(format!("{text:?} is out of range; 1 byte to 1GiB")) }
}

fn whole(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{text:?} is no whole number from {least} to {most}"))
}

fn boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
