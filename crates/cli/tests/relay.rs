//! The relay as a process, over SQLite and files.

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    path::Path,
    process::Stdio,
};

use common::{
    Outbox, posthaste,
    relay::{Folder, Served, config, enqueue, lines, relay, start, status, terminate, until},
    run,
};
use serde_json::Value;

/// Every line by its message id; copies must be identical.
fn distinct(lines: &[String]) -> BTreeMap<String, String> {
    let mut by_id: BTreeMap<String, String> = BTreeMap::new();
    for line in lines {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("half a line: {line}"));
        let id = value["id"].as_str().expect("an id").to_owned();
        let first = by_id.entry(id).or_insert_with(|| line.clone());
        assert_eq!(first, line, "report_132: a copy differs from the first");
    }
    by_id
}

fn numbers(lines: &[String]) -> BTreeSet<u64> {
    lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["data"]["n"].as_u64().expect("n"))
        .collect()
}

#[test]
fn issue_2_a_thousand_lines_arrive_byte_for_byte() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(1000));
    run(&mut relay(&outbox, &["--to", &folder.target(), "--until-empty"]), b"").ended(0);
    let delivered = folder.delivered();
    assert_eq!((delivered.len(), distinct(&delivered).len(), numbers(&delivered).len()), (1000, 1000, 1000));
    assert!(delivered.iter().all(|line| line.contains(r#","x":1.50}}"#)), "a body was rewritten");
    let status = status(&outbox);
    assert_eq!((status["pending"].as_u64(), status["published"].as_u64()), (Some(0), Some(1000)));
}

#[test]
fn decision_19_a_relay_makes_the_schema_of_an_absent_file_and_ends_at_once_when_there_is_nothing() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    run(&mut relay(&outbox, &["--to", &folder.target(), "--until-empty"]), b"").ended(0);
    assert_eq!(status(&outbox)["pending"].as_u64(), Some(0));
}

#[test]
fn report_053_a_broker_that_is_down_counts_nothing_and_loses_nothing() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(50));
    let args = ["--to", "amqp://127.0.0.1:1/", "--until-empty", "--timeout", "2s"];
    let gave_up = run(&mut relay(&outbox, &args), b"").ended(3);
    assert!(gave_up.err.contains("target default is paused: connecting to 127.0.0.1:1"), "{}", gave_up.err);
    enqueue(&outbox, &lines(50));
    let rows = posthaste(&["list", "--store", &outbox.url, "--outbox", &outbox.name, "--json"]).ended(0).json();
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|row| row["attempts"] == 0 && row["status"] == "pending"));
    run(&mut relay(&outbox, &["--to", &folder.target(), "--until-empty"]), b"").ended(0);
    assert_eq!(folder.delivered().len(), 100);
}

#[test]
fn rows_r45_a_relay_killed_again_and_again_loses_nothing() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(4000));
    for kill in 1..=5 {
        let mut child = start(&mut relay(&outbox, &["--to", &folder.target()]));
        until("some more lines", || (folder.delivered().len() > kill * 300).then_some(()));
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    run(&mut relay(&outbox, &["--to", &folder.target(), "--until-empty"]), b"").ended(0);
    let delivered = folder.delivered();
    assert_eq!(numbers(&delivered), (0..4000).collect(), "an event is lost");
    // A kill repeats at most what was in flight (1,000) and what was confirmed and not yet marked
    // (500, and what comes while those are being marked).
    assert!(delivered.len() - distinct(&delivered).len() <= 5 * 2_000, "{} lines", delivered.len());
}

#[test]
fn rows_r53_sigterm_in_the_middle_marks_what_was_sent() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(4000));
    let mut child = start(&mut relay(&outbox, &["--to", &folder.target()]));
    until("the first lines", || (!folder.delivered().is_empty()).then_some(()));
    terminate(&child);
    assert!(child.wait().expect("ended").success());
    let sent = folder.delivered().len() as u64;
    assert_eq!(status(&outbox)["published"].as_u64(), Some(sent), "what was sent is not what is marked");
    run(&mut relay(&outbox, &["--to", &folder.target(), "--until-empty"]), b"").ended(0);
    assert_eq!(folder.delivered().len(), 4000, "a duplicate after an orderly stop");
}

#[test]
fn decision_12_a_second_relay_waits_for_the_first() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(10));
    let mut first = start(&mut relay(&outbox, &["--to", &folder.target(), "--name", "first"]));
    until("the first relay delivers", || (folder.delivered().len() == 10).then_some(()));
    assert_eq!(status(&outbox)["relays"][0]["name"], "first");
    let other = folder.path("other.ndjson");
    let to = format!("file:{}", other.display());
    let mut second = start(&mut relay(&outbox, &["--to", &to, "--name", "second"]));
    enqueue(&outbox, &lines(10));
    until("the first relay goes on", || (folder.delivered().len() == 20).then_some(()));
    assert!(!other.exists() || fs::read(&other).expect("read").is_empty(), "both relays deliver");
    first.kill().expect("killed");
    first.wait().expect("ended");
    enqueue(&outbox, &lines(10));
    until("the second relay takes over", || (line_count(&other) >= 10).then_some(()));
    terminate(&second);
    assert!(second.wait().expect("ended").success());
}

fn line_count(file: &Path) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

#[test]
fn report_151_a_closed_stdout_ends_the_relay_quietly() {
    let outbox = Outbox::sqlite();
    enqueue(&outbox, &lines(3000));
    let mut command = relay(&outbox, &["--to", "stdout:"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the relay starts");
    let mut first = [0; 100];
    child.stdout.take().expect("piped").read_exact(&mut first).expect("something is written");
    assert!(child.wait().expect("ended").success());
    let mut err = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut err).expect("read");
    assert!(!err.contains("panicked"), "{err}");
}

#[test]
fn product_9_routes_choose_by_type_and_condition_and_write_their_own_bodies() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    let file = config(
        &folder,
        &outbox,
        &format!(
            "targets:\n  out: {{ url: \"{}\" }}\nroutes:\n  big: {{ match: \"order.*\", when: \"body.n >= 5\", target: out }}\n  \
             short: {{ match: \"order.placed\", payload: \"{{'id': body.n}}\", target: out }}\n",
            folder.target()
        ),
    );
    enqueue(&outbox, &lines(10));
    posthaste(&["relay", "--config", &file, "--until-empty"]).ended(0);
    let delivered = folder.delivered();
    let short = delivered.iter().filter(|line| line.contains(r#""data":{"id":"#)).count();
    assert_eq!((delivered.len(), short, distinct(&delivered).len()), (15, 10, 15));
}

#[test]
fn decision_05_what_no_route_takes_stays_and_is_named() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    let rest = format!(
        "targets:\n  out: {{ url: \"{}\" }}\nroutes:\n  a: {{ match: \"invoice.*\", target: out }}\n",
        folder.target()
    );
    let file = config(&folder, &outbox, &rest);
    enqueue(&outbox, &lines(3));
    let left = posthaste(&["relay", "--config", &file, "--until-empty"]).ended(1);
    assert!(left.err.contains("order.placed"), "{}", left.err);
    let status = status(&outbox);
    assert_eq!((status["pending"].as_u64(), &status["deferred_types"][0]), (Some(3), &Value::from("order.placed")));
    let id = posthaste(&["list", "--store", &outbox.url, "--outbox", &outbox.name, "--json"]).json().remove(0);
    let id = id["id"].as_str().expect("an id").to_owned();
    let why = posthaste(&["explain", &id, "--store", &outbox.url, "--outbox", &outbox.name, "--json"]).ended(0).json();
    assert_eq!(why[0]["reason"], "no_route");
}

#[test]
fn decision_05_a_condition_that_fails_sends_nothing_and_is_never_final() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    let rest = format!(
        "targets:\n  out: {{ url: \"{}\" }}\nroutes:\n  good: {{ match: \"*\", target: out }}\n  bad: {{ match: \"*\", when: \"body.missing > 1\", target: out }}\n",
        folder.target()
    );
    let file = config(&folder, &outbox, &rest);
    enqueue(&outbox, &lines(1));
    posthaste(&["relay", "--config", &file, "--once"]).ended(0);
    assert!(folder.delivered().is_empty(), "tw_05: a sibling was sent");
    let row = posthaste(&["list", "--store", &outbox.url, "--outbox", &outbox.name, "--json"]).json().remove(0);
    assert_eq!((&row["status"], &row["attempts"]), (&Value::from("failed"), &Value::from(0)));
    let id = row["id"].as_str().expect("an id");
    let why = posthaste(&["explain", id, "--store", &outbox.url, "--outbox", &outbox.name, "--json"]).ended(0).json();
    assert_eq!(why[0]["reason"], "render_failed");
}

#[test]
fn wrong_configurations_are_refused_before_anything_connects() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    let target = format!("targets:\n  out: {{ url: \"{}\" }}\n", folder.target());
    for (rest, said) in [
        ("routes:\n  a: { match: \"*\", when: \"body.n >\", target: out }\n", "body.n >"),
        ("routes:\n  a: { match: \"*\", target: oud }\n", "did you mean out?"),
        ("routes:\n  a: { match: \"*\", target: out, exchnage: e }\n", "exchnage"),
        ("route:\n  a: { match: \"*\", target: out }\n", "routes"),
        ("", "route"),
    ] {
        let file = config(&folder, &outbox, &format!("{target}{rest}"));
        let refused = posthaste(&["relay", "--config", &file]).ended(2);
        assert!(refused.err.contains(said), "{rest}: {}", refused.err);
    }
    let refused = posthaste(&["relay", "--store", &outbox.url, "--to", "amqq://a:s3cret@h/"]).ended(2);
    assert!(refused.err.contains("did you mean amqp") && !refused.err.contains("s3cret"), "{}", refused.err);
}

#[test]
fn decision_36_metrics_and_health_say_how_it_is() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(7));
    let served = Served::start(&mut relay(&outbox, &["--to", &folder.target()]));
    until("it is ready", || (served.get("/health/ready").0 == 200).then_some(()));
    until("all are counted", || {
        let metrics = served.get("/metrics").1;
        let published: u64 = metrics
            .lines()
            .filter(|line| line.starts_with("posthaste_published_total"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum();
        (published == 7).then_some(())
    });
    let metrics = served.get("/metrics").1;
    for name in [
        "posthaste_rows{",
        "posthaste_oldest_pending_seconds{",
        "posthaste_in_flight{",
        "posthaste_unmarked{",
        "posthaste_lanes_owned{",
        "posthaste_target_paused{target=\"default\"} 0",
    ] {
        assert!(metrics.contains(name), "{name} is not in:\n{metrics}");
    }
    assert_eq!(served.get("/health/live").0, 200);
    let ready = served.json("/health/ready");
    assert_eq!((&ready["ready"], &ready["recovery"]), (&Value::from(true), &Value::from("running")));
    assert!(served.get("/").1.contains("Posthaste"));
    assert_eq!(served.json("/status")["relay"][0]["owns_lanes"], true);
    served.end();
}

#[test]
fn explain_names_the_paused_target_that_a_relay_knows_of() {
    let outbox = Outbox::sqlite();
    enqueue(&outbox, &lines(1));
    let served = Served::start(&mut relay(&outbox, &["--to", "amqp://127.0.0.1:1/"]));
    until("the target is paused", || served.get("/health/ready").1.contains("paused").then_some(()));
    let id = posthaste(&["list", "--store", &outbox.url, "--outbox", &outbox.name, "--json"]).json().remove(0);
    let id = id["id"].as_str().expect("an id");
    let args = ["explain", id, "--store", &outbox.url, "--outbox", &outbox.name, "--json", "--relay", &served.address];
    let why = posthaste(&args).ended(0).json().remove(0);
    assert_eq!(why["reason"], "target_paused");
    assert!(why["detail"].as_str().expect("a detail").contains("127.0.0.1:1"), "{why}");
}

#[test]
fn the_demo_loses_nothing_and_repeats_nothing() {
    let counts = posthaste(&["demo", "--json"]).ended(0).json().remove(0);
    assert_eq!((&counts["committed"], &counts["delivered"]), (&Value::from(60), &Value::from(60)));
    for none in ["lost", "duplicates", "announced_without_a_commit", "attempts_counted_while_it_was_down"] {
        assert_eq!(counts[none], 0, "{none}");
    }
    assert_eq!(
        (&counts["recovered"], &counts["pending_while_the_broker_was_down"]),
        (&Value::from(20), &Value::from(20))
    );
}
