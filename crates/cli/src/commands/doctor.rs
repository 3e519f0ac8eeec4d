//! `doctor`: connects to everything, and says what is wrong and what to do.

use std::time::Duration;

use posthaste_core::{
    Class, ErrorKind, OutboxName,
    port::{Access, OutboxStatus, SchemaState, Store, Target},
};
use posthaste_relay::route::TargetKey;
use serde::Serialize;

use crate::{
    args::Doctor,
    config::duration::show,
    exit::{Done, Fault},
    output::{Out, printable},
    setup::{Setup, called},
    wiring::Wiring,
};

/// Longest wait for a target.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warn,
    Fail,
    Unreachable,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    what: String,
    detail: String,
    fix: Option<String>,
}

fn finding(level: Level, what: &str, detail: impl Into<String>, fix: Option<&str>) -> Finding {
    Finding { level, what: what.to_owned(), detail: detail.into(), fix: fix.map(str::to_owned) }
}

pub async fn run(args: &Doctor, out: &mut Out) -> Result<Done, Fault> {
    let setup = Setup::read(&args.at.place)?;
    let wiring = wiring(args, &setup)?;
    let mut findings = Vec::new();
    for name in setup.several(&args.at) {
        let store = setup.store(&name)?;
        findings.extend(outbox(&setup, &name, store.as_ref()).await);
    }
    findings.extend(remarks(&setup));
    if let Some(wiring) = wiring {
        let unsigned = |warning: &String| finding(Level::Warn, "webhook", warning, Some("set `secret:` in the target"));
        findings.extend(wiring.warnings.iter().map(unsigned));
        for (key, target) in &wiring.targets {
            let reached = probe(key.as_str(), target).await;
            let is_there = reached.level == Level::Ok;
            findings.push(reached);
            if is_there {
                findings.extend(places(&wiring, key).await);
            }
        }
    }
    write(&findings, args.json, out)?;
    conclude(&findings)
}

fn wiring(args: &Doctor, setup: &Setup) -> Result<Option<Wiring>, Fault> {
    let config = &setup.config;
    if args.to.url.is_none() && config.routes.is_empty() && config.targets.is_empty() {
        return Ok(None);
    }
    Wiring::of(&args.to, config).map(Some)
}

/// What no database and no target shows.
fn remarks(setup: &Setup) -> [Finding; 2] {
    let retention = show(setup.config.outbox.retention);
    let kept = format!("published rows are kept {retention}: for that long an id of your own is recognised again");
    let priority = "has no effect while lanes own rows: rows are delivered in the order they came";
    [finding(Level::Ok, "retention", kept, None), finding(Level::Ok, "priority", priority, None)]
}

async fn outbox(setup: &Setup, name: &OutboxName, store: &dyn Store) -> Vec<Finding> {
    let what = called(name);
    let schema = schema(setup, name, store).await;
    if schema.level != Level::Ok {
        return vec![schema];
    }
    let mut findings = vec![schema];
    match store.access().await {
        Ok(access) => findings.push(rights(&what, &access)),
        Err(error) => findings.push(failed(&what, &error)),
    }
    match store.status().await {
        Ok(status) => findings.extend(rows(&what, &status)),
        Err(error) => findings.push(failed(&what, &error)),
    }
    findings
}

async fn schema(setup: &Setup, name: &OutboxName, store: &dyn Store) -> Finding {
    let what = called(name);
    let migrate = setup.migrate_command(name);
    let wrong = |detail: String, fix: &str| finding(Level::Fail, &what, detail, Some(fix));
    match store.schema().await {
        Ok(SchemaState::Current) => finding(Level::Ok, &what, "the schema is current", None),
        Ok(SchemaState::EmptyDatabase | SchemaState::Missing) => wrong("there is no schema".to_owned(), &migrate),
        Ok(SchemaState::Older(version)) => wrong(format!("the schema has version {version}, an older one"), &migrate),
        Ok(SchemaState::Newer(version)) => {
            let detail = format!("the schema has version {version}, which this build does not know");
            wrong(detail, "use a posthaste at least as new")
        }
        Err(error) => failed(&what, &error),
    }
}

fn rights(what: &str, access: &Access) -> Finding {
    let server = &access.server;
    if access.lacking.is_empty() {
        return finding(Level::Ok, what, format!("{server}; this user may do all that writers and relays do"), None);
    }
    let detail = format!("{server}; this user lacks {}", access.lacking.join(", "));
    finding(Level::Fail, what, detail, Some("a relay needs all of these, a writer INSERT"))
}

fn rows(what: &str, status: &OutboxStatus) -> Vec<Finding> {
    let mut findings = vec![match status.relays.first() {
        Some(relay) => finding(Level::Ok, what, format!("relay {} pumps it; others wait for it", relay.name), None),
        None => {
            let fix = Some("start `posthaste relay`, or a service that embeds one");
            finding(Level::Warn, what, "no relay pumps it", fix)
        }
    }];
    if status.invalid > 0 {
        let detail = format!("{} rows are invalid", status.invalid);
        let fix = "see `posthaste list --status invalid`; then `retry` or `discard`";
        findings.push(finding(Level::Warn, what, detail, Some(fix)));
    }
    if !status.deferred_types.is_empty() {
        let detail = format!("no route of the relay takes: {}", status.deferred_types.join(", "));
        findings.push(finding(Level::Warn, what, detail, Some("add a route, or `otherwise: discard`")));
    }
    findings
}

fn failed(what: &str, error: &posthaste_core::Error) -> Finding {
    let level = if error.kind() == ErrorKind::Unavailable { Level::Unreachable } else { Level::Fail };
    finding(level, what, error.to_string(), error.what_to_do())
}

/// What the routes need on a target that can be reached.
async fn places(wiring: &Wiring, key: &TargetKey) -> Vec<Finding> {
    let what = format!("target {key}");
    match wiring.missing_places(key, PATIENCE).await {
        Ok(missing) => {
            let fix = Some("declare it, or set declare=fanout|topic|direct; until then events for it wait");
            missing.into_iter().map(|detail| finding(Level::Fail, &what, detail, fix)).collect()
        }
        Err(failure) => vec![finding(Level::Warn, &what, failure.detail, None)],
    }
}

async fn probe(key: &str, target: &Target) -> Finding {
    let what = format!("target {key}");
    let answer = tokio::time::timeout(PATIENCE * 2, target.transport.probe(PATIENCE)).await;
    let finding = match answer {
        Ok(Ok(())) => finding(Level::Ok, &what, format!("{} can be reached", target.label), None),
        Ok(Err(failure)) => {
            let level = if failure.class == Class::Transient { Level::Unreachable } else { Level::Fail };
            let fix = Some("events wait in the database meanwhile; nothing is lost");
            finding(level, &what, format!("{}: {}", target.label, failure.detail), fix)
        }
        Err(_) => finding(Level::Unreachable, &what, format!("{} does not answer", target.label), None),
    };
    target.transport.close().await;
    finding
}

fn write(findings: &[Finding], json: bool, out: &mut Out) -> Result<(), Fault> {
    for finding in findings {
        if json {
            out.json(finding)?;
            continue;
        }
        let word = match finding.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail | Level::Unreachable => "FAIL",
        };
        out.line(&format!("{word}  {}: {}", finding.what, printable(&finding.detail)))?;
        if let Some(fix) = &finding.fix {
            out.line(&format!("      {fix}"))?;
        }
    }
    Ok(())
}

fn conclude(findings: &[Finding]) -> Result<Done, Fault> {
    match findings.iter().map(|finding| finding.level).max() {
        Some(Level::Unreachable) => {
            Err(Fault::Failed { code: 3, error: "a service can't be reached".into(), hint: None })
        }
        Some(Level::Fail) => Err(Fault::usage("something is wrong that only you can change")),
        Some(Level::Warn) => Ok(Done::WithFindings),
        Some(Level::Ok) | None => Ok(Done::Clean),
    }
}
