//! Wrong usage, wrong configuration, wrong places: what is said, and the exit code.

mod common;

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Command, Stdio},
};

use common::{
    COMMANDS, Outbox, binary, posthaste,
    relay::{Folder, config},
    run,
};
use posthaste_testkit::service;

#[test]
fn report_145_every_command_refuses_the_same_names_with_the_same_words() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("a.db").display());
    for name in ["sch\u{e9}ma", &"x".repeat(60), "", "a\"b", " a"] {
        let said: Vec<String> = COMMANDS
            .iter()
            .map(|command| {
                let run = posthaste(&[command, &["--store", &url, "--outbox", name][..]].concat()).ended(2);
                let at = run.err.find("outbox name").unwrap_or_else(|| panic!("{}", run.err));
                run.err[at..].lines().next().unwrap().to_owned()
            })
            .collect();
        assert!(said.iter().all(|text| *text == said[0]), "{said:?}");
    }
}

#[test]
fn report_145_odd_names_work_in_every_command() {
    for outbox in Outbox::all() {
        for name in ["Outbox", "my-schema", "order", "a b"] {
            let name = format!("{} {name}", &outbox.name[..outbox.name.len().min(20)]);
            let odd = outbox.named(&name);
            odd.run(&["migrate"]).ended(0);
            let id = odd.enqueue(&["--type", "t", "--body", "1"]);
            assert_eq!(odd.status()["outbox"], name);
            odd.run(&["show", &id]).ended(0);
            odd.run(&["explain", &id]).ended(0);
            odd.run(&["retry", &id]).ended(0);
            odd.run(&["discard", &id]).ended(0);
            odd.run(&["prune"]).ended(0);
        }
    }
}

#[test]
fn decision_19_enqueue_makes_the_schema_in_an_absent_file_and_nowhere_else() {
    let outbox = Outbox::sqlite();
    for command in &COMMANDS[2..] {
        let run = outbox.run(command).ended(2);
        let migrate = format!("posthaste migrate --store {} --outbox {}", outbox.url, outbox.name);
        assert!(run.err.starts_with("error: outbox") && run.err.contains(&migrate), "{}", run.err);
    }
    outbox.enqueue(&["--type", "t", "--body", "1"]);
    assert_eq!(outbox.status()["pending"], 1);

    let other = outbox.named("another");
    let run = other.run(COMMANDS[1]).ended(2);
    assert!(run.err.contains("hint: create it: posthaste migrate"), "{}", run.err);
}

#[test]
fn decision_19_a_database_of_a_server_is_never_altered_but_by_migrate() {
    let Some(url) = service::postgres() else { return };
    let name = service::outbox_name().to_string();
    let command = format!("posthaste migrate --store {url} --outbox {name}");
    for args in &COMMANDS[1..] {
        let run = posthaste(&[args, &["--store", &url, "--outbox", &name][..]].concat()).ended(2);
        assert!(run.err.contains(&command), "{}", run.err);
    }
}

#[test]
fn a_schema_of_a_newer_version_is_refused() {
    let outbox = Outbox::sqlite();
    outbox.run(&["migrate"]).ended(0);
    outbox.sql(&format!("UPDATE \"{}_meta\" SET version = 99", outbox.table()));
    for command in COMMANDS {
        let run = outbox.run(command).ended(2);
        assert!(run.err.contains("99"), "{}", run.err);
    }
}

#[test]
fn report_115_a_wrong_password_shows_in_no_message() {
    let secret = "p%40s%3As%2Fw%25r%23d%3F%7B%7D%5E%20%2B%C3%A9%2541";
    let Some(shared) = service::postgres() else { return };
    let host = shared.rsplit_once('@').unwrap().1;
    for (user, password) in [("posthaste_nobody", secret), ("posthaste_nobody", "p@s:s/w%r#d?{}^ +\u{e9}")] {
        let url = format!("postgres://{user}:{password}@{host}");
        for args in COMMANDS {
            let run = posthaste(&[args, &["--store", &url][..]].concat());
            assert!(matches!(run.code, 2 | 3), "{}", run.err);
            for part in [password, "p@s:s", "w%r", "s%3As", "r%23d"] {
                assert!(!run.err.contains(part) && !run.out.contains(part), "{}", run.err);
            }
        }
    }
}

#[test]
fn a_server_that_is_not_there_ends_with_3() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://app:s3cret@127.0.0.1:{port}/shop");
    let run = posthaste(&["status", "--store", &url]).ended(3);
    assert!(run.err.starts_with("error: ") && !run.err.contains("s3cret"), "{}", run.err);
}

#[test]
fn a_wrong_url_is_said_to_be_wrong_before_anything_connects() {
    for (url, said) in [
        ("postgras://h/d", "did you mean postgres:"),
        ("mongodb://a:s3cret@h/d", "no store has this scheme"),
        ("app.db", "write sqlite:FILE"),
        ("sqlite:", "names no file"),
        ("sqlite::", "names no file"),
        ("sqlite:/tmp", "is a directory"),
        ("", "write sqlite:FILE"),
    ] {
        let run = posthaste(&["status", "--store", url]).ended(2);
        assert!(run.err.contains(said) && !run.err.contains("s3cret"), "{}", run.err);
    }
    assert!(posthaste(&["status"]).ended(2).err.contains("hint: give --store URL"));
    let missing = posthaste(&["enqueue", "--type", "t", "--body", "1", "--store", "sqlite:/nowhere/at/all.db"]);
    assert_eq!(missing.code, 2, "{}", missing.err);
}

#[test]
fn an_unknown_configuration_key_is_refused_with_the_one_that_was_meant() {
    let directory = tempfile::tempdir().unwrap();
    let (file, database) = (directory.path().join("posthaste.yaml"), directory.path().join("a.db"));
    std::fs::write(&file, format!("store: sqlite:{}\noutbox:\n  intervall: 5s\n", database.display())).unwrap();
    let run = posthaste(&["enqueue", "--config", file.to_str().unwrap(), "--type", "t", "--body", "1"]).ended(2);
    assert!(run.err.contains("posthaste.yaml: line 3: unknown key intervall; did you mean interval?"), "{}", run.err);
    assert!(!database.exists());
}

#[test]
fn the_configuration_names_store_and_outboxes() {
    let outbox = Outbox::sqlite();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("posthaste.yaml");
    std::fs::write(&file, "store: ${PLACE}\noutboxes: [orders, invoices]\n").unwrap();
    let run_it = |args: &[&str]| run(binary().args(args).arg("--config").arg(&file).env("PLACE", &outbox.url), b"");
    run_it(&["migrate"]).ended(0);
    let status = run_it(&["status", "--json"]).ended(0).json();
    assert_eq!((&status[0]["outbox"], &status[1]["outbox"]), (&"orders".into(), &"invoices".into()));
    let several = run_it(&["list"]).ended(2);
    assert!(several.err.contains("orders, invoices") && several.err.contains("--outbox NAME"), "{}", several.err);
    run_it(&["list", "--outbox", "orders"]).ended(0);
    let unset = posthaste(&["status", "--config", file.to_str().unwrap()]).ended(2);
    assert!(unset.err.contains("the environment variable PLACE is not set"), "{}", unset.err);
}

#[test]
fn tw_27_a_variable_that_cannot_be_used_is_refused_by_name_and_an_older_one_warns() {
    let outbox = Outbox::sqlite();
    let with = |name: &str, value: &str| {
        let args = ["enqueue", "--type", "t", "--body", "1", "--store", &outbox.url];
        run(binary().args(args).env(name, value), b"")
    };
    let refused = with("POSTHASTE_OUTBOX_INTERVAL", "abc").ended(2);
    assert!(refused.err.contains("POSTHASTE_OUTBOX_INTERVAL: \"abc\""), "{}", refused.err);
    let warned = with("TOA_OUTBOX_BATCH", "abc").ended(0);
    assert!(warned.err.starts_with("warning: TOA_OUTBOX_BATCH: \"abc\""), "{}", warned.err);
    let by_variable = run(binary().args(["status", "--json"]).env("POSTHASTE_STORE", &outbox.url), b"").ended(0);
    assert_eq!(by_variable.json()[0]["pending"], 1);
}

#[test]
fn migrate_prints_the_sql_without_connecting_and_can_be_run_by_many_at_once() {
    let print = posthaste(&["migrate", "--print", "--store", "postgres://nobody@nowhere.invalid/x"]).ended(0);
    assert!(print.out.contains("CREATE TABLE") && print.out.contains("\"outbox\""), "{}", print.out);
    let outbox = Outbox::sqlite();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6).map(|_| scope.spawn(|| outbox.run(&["migrate"]).ended(0))).collect();
        runs.into_iter().for_each(|run| drop(run.join().unwrap()));
    });
    outbox.run(&["status"]).ended(0);
}

#[test]
fn the_status_for_people_names_every_outbox() {
    let outbox = Outbox::sqlite();
    outbox.enqueue(&["--type", "t", "--body", "1"]);
    let status = outbox.run(&["status"]).ended(0);
    let lines = status.lines();
    assert!(lines[0].starts_with("OUTBOX") && lines[1].starts_with(&outbox.name), "{}", status.out);
    assert!(lines[1].ends_with("none"));
}

#[test]
fn a_watched_status_ends_quietly_when_interrupted() {
    let outbox = Outbox::sqlite();
    outbox.run(&["migrate"]).ended(0);
    let mut child = binary()
        .args(["status", "--watch", "--json", "--store", &outbox.url, "--outbox", &outbox.name])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn doctor_names_what_is_wrong_and_what_to_do() {
    let outbox = Outbox::sqlite();
    let at = ["--store", &outbox.url, "--outbox", &outbox.name];
    let missing = posthaste(&[&["doctor"], &at[..]].concat()).ended(2);
    assert!(missing.out.contains("posthaste migrate"), "{}", missing.out);
    posthaste(&[&["migrate"], &at[..]].concat()).ended(0);
    let lonely = posthaste(&[&["doctor", "--json"], &at[..]].concat()).ended(1).json();
    assert!(lonely.iter().any(|finding| finding["level"] == "warn" && finding["detail"] == "no relay pumps it"));
    let down = posthaste(&[&["doctor", "--to", "amqp://guest:s3cret@127.0.0.1:1/"], &at[..]].concat()).ended(3);
    assert!(down.out.contains("FAIL  target default") && !down.out.contains("s3cret"), "{}", down.out);
}

#[test]
fn doctor_names_an_exchange_that_is_missing_and_declares_nothing() {
    let Some(amqp) = service::rabbitmq() else { return };
    let outbox = Outbox::sqlite();
    outbox.run(&["migrate"]).ended(0);
    let exchange = &outbox.name;
    let folder = Folder::new();
    let file = config(
        &folder,
        &outbox,
        &format!(
            "targets:\n  rabbit: {{ url: \"{amqp}\" }}\nroutes:\n  \
             a: {{ match: \"a.*\", target: rabbit, exchange: amq.topic }}\n  \
             b: {{ match: \"b.*\", target: rabbit, exchange: \"{exchange}\" }}\n  \
             c: {{ match: \"c.*\", target: rabbit, exchange: \"{{type}}\" }}\n"
        ),
    );
    for _ in 0..2 {
        let found = posthaste(&["doctor", "--config", &file]).ended(2);
        let missing: Vec<&str> = found.lines().into_iter().filter(|line| line.contains("exchange '")).collect();
        let said = format!("FAIL  target rabbit: exchange '{exchange}': 404");
        assert!(missing.len() == 1 && missing[0].starts_with(&said), "{}", found.out);
    }
}

/// The same code as for PostgreSQL's: somebody must change it, and no wait will.
#[test]
fn a_broker_that_refuses_the_password_is_wrong_configuration_to_doctor() {
    let Some(amqp) = service::rabbitmq() else { return };
    let host = amqp.rsplit_once('@').map_or_else(|| amqp.trim_start_matches("amqp://"), |(_, host)| host);
    let outbox = Outbox::sqlite();
    outbox.run(&["migrate"]).ended(0);
    let to = format!("amqp://posthaste_nobody:s3cret@{host}");
    let found = posthaste(&["doctor", "--store", &outbox.url, "--outbox", &outbox.name, "--to", &to]).ended(2);
    assert!(found.out.contains("403") && found.out.contains("check user, password"), "{}", found.out);
    assert!(!found.out.contains("s3cret"), "{}", found.out);
}

#[test]
fn a_misspelt_variable_is_warned_of() {
    let outbox = Outbox::sqlite();
    let mut command = binary();
    command.args(["enqueue", "--type", "t", "--body", "1", "--store", &outbox.url]);
    let warned = run(command.env("POSTHASTE_OUTBOX_INTERVALL", "1s").env("POSTHASTE_MY_HOOK", "x"), b"").ended(0);
    let said = "warning: POSTHASTE_OUTBOX_INTERVALL sets nothing; did you mean POSTHASTE_OUTBOX_INTERVAL?\n";
    assert_eq!(warned.err, said);
}

#[test]
fn options_of_webhooks_are_refused_for_other_targets() {
    let outbox = Outbox::sqlite();
    outbox.run(&["migrate"]).ended(0);
    for (option, value) in [("--allow-net", "127.0.0.0/8"), ("--secret-env", "PATH")] {
        for to in ["stdout:", "amqp://127.0.0.1:1/"] {
            for command in [&["relay", "--until-empty"][..], &["doctor"]] {
                let run = outbox.run(&[command, &["--to", to, option, value]].concat()).ended(2);
                assert!(run.err.contains(&format!("{option} is for webhooks, and --to is none")), "{}", run.err);
            }
        }
    }
}
