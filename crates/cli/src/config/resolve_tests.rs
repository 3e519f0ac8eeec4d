use super::*;
use crate::config::file;

fn with(yaml: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    resolve(file::parse(yaml).unwrap(), &lookup)
}

fn seconds_of(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[test]
fn the_defaults_are_those_of_the_reference() {
    let config = with("", &[]).unwrap();
    let outbox = &config.outbox;
    assert_eq!([outbox.interval, outbox.retention, outbox.mark_delay].map(seconds_of), [5.0, 86_400.0, 0.25]);
    assert_eq!((outbox.batch, outbox.defer, outbox.max_body), (200, false, 8 << 20));
    assert_eq!((config.retry.max_attempts, config.retry.permanent_attempts), (10, 1));
    assert_eq!([config.publish_timeout, config.retry.misrouted_for].map(seconds_of), [30.0, 3_600.0]);
    assert_eq!((config.store, config.outboxes, config.warnings), (None, vec![], vec![]));
}

#[test]
fn rows_r47_a_bare_number_takes_the_unit_of_its_key() {
    let config = with("outbox: { interval: 100, retention: 60 }\ncoordination: { interval: 150 }", &[]).unwrap();
    let outbox = config.outbox;
    assert_eq!([outbox.interval, outbox.retention, outbox.coordination_interval].map(seconds_of), [0.1, 60.0, 0.15]);
}

#[test]
fn rows_r47_the_environment_wins_over_the_file_and_its_own_name_over_the_older_one() {
    let yaml = "outbox: { interval: 1s, batch: 10 }";
    let older = [("TOA_OUTBOX_INTERVAL", "2000"), ("TOA_OUTBOX_BATCH", "20"), ("TOA_ATOMICITY_INTERVAL", "150")];
    let config = with(yaml, &older).unwrap();
    assert_eq!((config.outbox.batch, seconds_of(config.outbox.interval)), (20, 2.0));
    assert_eq!(seconds_of(config.outbox.coordination_interval), 0.15);
    let both = [&older[..], &[("POSTHASTE_OUTBOX_INTERVAL", "3s"), ("POSTHASTE_OUTBOX_DEFER", "true")]].concat();
    let config = with(yaml, &both).unwrap();
    assert_eq!((config.outbox.batch, seconds_of(config.outbox.interval), config.outbox.defer), (20, 3.0, true));
}

#[test]
fn tw_27_a_variable_that_cannot_be_used_is_refused_by_name() {
    for (name, value) in [
        ("POSTHASTE_OUTBOX_INTERVAL", "abc"),
        ("POSTHASTE_OUTBOX_INTERVAL", ""),
        ("POSTHASTE_OUTBOX_INTERVAL", "0"),
        ("POSTHASTE_OUTBOX_BATCH", "0"),
        ("POSTHASTE_OUTBOX_BATCH", "-1"),
        ("POSTHASTE_OUTBOX_BATCH", "1.5"),
        ("POSTHASTE_OUTBOX_RETENTION", "NaN"),
        ("POSTHASTE_OUTBOX_DEFER", "maybe"),
        ("POSTHASTE_COORDINATION_INTERVAL", "5 parsecs"),
        ("POSTHASTE_STORE", ""),
        ("POSTHASTE_OUTBOXES", "orders,,x"),
    ] {
        let error = with("", &[(name, value)]).unwrap_err();
        assert!(error.starts_with(&format!("{name}: ")), "{error}");
    }
}

#[test]
fn tw_27_an_older_variable_that_cannot_be_used_warns_and_leaves_the_default() {
    let config = with("", &[("TOA_OUTBOX_INTERVAL", "abc"), ("TOA_OUTBOX_DEFER", "1")]).unwrap();
    assert_eq!((seconds_of(config.outbox.interval), config.outbox.defer), (5.0, true));
    assert!(config.warnings[0].starts_with("TOA_OUTBOX_INTERVAL: ") && config.warnings[0].contains("default"));
    let config = with("outbox: { batch: 7 }", &[("TOA_OUTBOX_BATCH", "x")]).unwrap();
    assert_eq!(config.outbox.batch, 7);
    assert!(config.warnings[0].contains("\"7\" is used"), "{:?}", config.warnings);
}

#[test]
fn rows_r47_the_older_defer_is_exactly_1() {
    for (value, defer, warnings) in [("1", true, 0), ("true", false, 1), ("", false, 1), ("0", false, 1)] {
        let config = with("", &[("TOA_OUTBOX_DEFER", value)]).unwrap();
        assert_eq!((config.outbox.defer, config.warnings.len()), (defer, warnings), "{value}");
    }
}

#[test]
fn all_problems_are_reported_at_once_with_their_lines() {
    let yaml = "store: ${MISSING}\noutbox:\n  batch: many\n  interval: soon\nroutes:\n  r: { match: '*', target: rabit }\ntargets:\n  rabbit: { url: 'amqp://h' }\n";
    let error = with(yaml, &[]).unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "line 1: store: the environment variable MISSING is not set");
    assert!(lines[1].starts_with("line 4: outbox.interval: ") && lines[2].starts_with("line 3: outbox.batch: "));
    assert_eq!(lines[3], "routes.r.target: rabit is no entry of targets; did you mean rabbit?");
}

#[test]
fn targets_and_routes_keep_what_transports_judge() {
    let yaml = r#"
outboxes: [orders, invoices]
targets:
  rabbit:  { url: "amqp://localhost/%2f" }
  partner: { url: "https://p/hooks", secret: "${HOOK_SECRET}", allow: ["127.0.0.0/8", "10.0.0.0/8"] }
routes:
  placed:  { match: "order.*", when: "body.total > 100", target: rabbit, exchange: orders, routing_key: "{type}" }
  noise:   { match: "debug.*", otherwise: discard }
"#;
    let mut config = with(yaml, &[("HOOK_SECRET", "s3cret")]).unwrap();
    assert!(!format!("{config:?}").contains("s3cret"));
    let partner = &mut config.targets.get_mut("partner").unwrap().options;
    assert_eq!((partner.take("secret").unwrap().unwrap(), partner.take_all("allow").len()), ("s3cret".to_owned(), 2));
    let placed = &config.routes["placed"];
    assert_eq!((placed.address["routing_key"].as_str(), placed.target.as_deref()), ("{type}", Some("rabbit")));
    assert_eq!((config.routes["noise"].target.as_deref(), config.outboxes.len()), (None, 2));
}

#[test]
fn routes_and_targets_that_miss_something_are_refused() {
    for (yaml, error) in [
        ("targets: { a: { secret: x } }", "targets.a: url is missing"),
        ("routes: { r: { target: a } }", "routes.r: match is missing"),
        ("routes: { r: { match: '*' } }", "routes.r: target is missing; otherwise: discard drops the type"),
        ("routes: { r: { match: '*', otherwise: drop } }", "routes.r: otherwise: \"drop\" is not known; write discard"),
        ("outboxes: [a, a]", "line 1: outboxes: a is named twice"),
    ] {
        assert_eq!(with(yaml, &[]).unwrap_err(), error);
    }
    assert!(with("outboxes: ['sch\u{e9}ma']", &[]).unwrap_err().contains("can't be used"));
}

#[test]
fn decision_12_sticky_ownership_is_accepted_with_a_warning_until_it_exists() {
    assert!(with("coordination: { ownership: sticky }", &[]).unwrap().warnings[0].contains("solo is used"));
    assert!(with("coordination: { strategy: claims }", &[]).unwrap_err().contains("write lanes"));
}
