//! Repairing an outbox: retry, discard, prune, and explain.

mod common;

use common::{Outbox, binary, run};
use serde_json::{Value, json};

fn enqueue_many(outbox: &Outbox, lines: &[&str]) -> Vec<String> {
    let input = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let run = outbox.run_with(&["enqueue", "--ndjson", "-"], input.as_bytes()).ended(0);
    run.out.lines().map(str::to_owned).collect()
}

fn kill(outbox: &Outbox, condition: &str) {
    let table = outbox.table();
    outbox.sql(&format!(
        r#"UPDATE "{table}" SET status = 'invalid', attempts = 10, last_error = 'permanent: refused' WHERE {condition}"#
    ));
}

fn counts(outbox: &Outbox, args: &[&str], code: i32) -> Value {
    outbox.run(&[args, &["--json"]].concat()).ended(code).json().remove(0)
}

#[test]
fn report_088_retry_makes_dead_letters_pending_and_counts_them() {
    for outbox in Outbox::all() {
        let ids = enqueue_many(&outbox, &[r#"{"type":"t","body":1}"#; 5]);
        kill(&outbox, "type = 't'");
        assert_eq!(outbox.status()["invalid"], 5);
        let by_id = [&["retry"], &ids.iter().map(String::as_str).collect::<Vec<_>>()[..3]].concat();
        assert_eq!(counts(&outbox, &by_id, 0), json!({"matched": 3, "changed": 3}));
        let rest = ["retry", "--all", "--status", "invalid", "--reason", "exchange is back"];
        assert_eq!(counts(&outbox, &rest, 0), json!({"matched": 2, "changed": 2}));
        let status = outbox.status();
        assert_eq!((&status["invalid"], &status["pending"]), (&0.into(), &5.into()));
        let row = outbox.run(&["show", &ids[4], "--json"]).ended(0).json().remove(0);
        assert_eq!((&row["attempts"], &row["status"]), (&0.into(), &"pending".into()));
    }
}

#[test]
fn more_rows_than_a_batch_holds_are_changed_once_each() {
    for outbox in Outbox::all() {
        let ids = enqueue_many(&outbox, &[r#"{"type":"t","body":1}"#; 1_300]);
        assert_eq!(ids.len(), 1_300);
        kill(&outbox, "seq % 2 = 0");
        outbox.sql(&format!(
            r#"UPDATE "{}" SET status = 'failed', attempts = 1 WHERE status = 'pending'"#,
            outbox.table()
        ));
        let status = outbox.status();
        assert!(status["invalid"].as_u64() > Some(500) && status["failed"].as_u64() > Some(500), "{status}");
        assert_eq!(counts(&outbox, &["retry", "--all", "--dry-run"], 0), json!({"matched": 1_300, "changed": 0}));
        assert_eq!(counts(&outbox, &["retry", "--all"], 0), json!({"matched": 1_300, "changed": 1_300}));
        assert_eq!(outbox.status()["pending"], 1_300);
    }
}

#[test]
fn filters_choose_the_rows_that_are_discarded() {
    for outbox in Outbox::all() {
        let lines = [
            r#"{"type":"order.placed","key":"a","body":1}"#,
            r#"{"type":"order.shipped","key":"a","body":1}"#,
            r#"{"type":"order.placed","key":"b","tenant":"acme","body":1}"#,
            r#"{"type":"invoice","key":"a","body":1}"#,
        ];
        enqueue_many(&outbox, &lines);
        let dry = ["discard", "--all", "--type", "order.*", "--key", "a", "--dry-run"];
        assert_eq!(counts(&outbox, &dry, 0), json!({"matched": 2, "changed": 0}));
        assert_eq!(counts(&outbox, &dry[..6], 0), json!({"matched": 2, "changed": 2}));
        let left = outbox.run(&["list", "--json"]).ended(0).json();
        let types: Vec<&str> = left.iter().map(|row| row["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["order.placed", "invoice"]);
        assert_eq!(outbox.run(&["list", "--tenant", "acme", "--json"]).json().len(), 1);
        assert_eq!(outbox.run(&["list", "--status", "invalid", "--json"]).json().len(), 0);
        assert_eq!(outbox.run(&["list", "--limit", "1", "--json"]).json().len(), 1);
    }
}

#[test]
fn ids_that_no_row_has_are_reported_and_the_others_changed() {
    for outbox in Outbox::all() {
        let ids = enqueue_many(&outbox, &[r#"{"type":"t","body":1}"#; 2]);
        outbox.sql(&format!(
            r#"UPDATE "{}" SET status = 'published', published_at = created_at WHERE id = '{}'"#,
            outbox.table(),
            ids[1]
        ));
        kill(&outbox, &format!("id = '{}'", ids[0]));
        let unknown = "00000000-0000-4000-8000-000000000000";
        let run = outbox.run(&["retry", &ids[0], &ids[1], unknown, "--json"]).ended(1);
        assert_eq!(run.json()[0], json!({"matched": 1, "changed": 1}));
        assert!(run.err.contains(&format!("no row has the id {unknown}")), "{}", run.err);
        assert!(run.err.contains(&format!("row {} is published", ids[1])), "{}", run.err);
        outbox.run(&["show", unknown]).ended(1);
    }
}

#[test]
fn rows_to_change_must_be_named_one_way() {
    let outbox = Outbox::sqlite();
    let id = "00000000-0000-4000-8000-000000000000";
    for args in [
        &["retry"][..],
        &["retry", "--status", "invalid"],
        &["retry", id, "--all"],
        &["discard", id, "--type", "x"],
        &["discard", "--all", "--status", "published"],
        &["retry", "--all", "--status", "dead"],
        &["prune", "--status", "pending"],
        &["prune", "--older-than", "soon"],
        &["retry", "7"],
    ] {
        outbox.run(args).ended(2);
    }
}

#[test]
fn prune_deletes_old_published_rows_alone() {
    for outbox in Outbox::all() {
        enqueue_many(&outbox, &[r#"{"type":"t","body":1}"#; 5]);
        outbox.sql(&format!(
            r#"UPDATE "{}" SET status = 'published', published_at = created_at
            WHERE seq < (SELECT max(seq) - 1 FROM "{0}")"#,
            outbox.table()
        ));
        assert_eq!(counts(&outbox, &["prune"], 0), json!({"matched": 0, "changed": 0}), "a day is kept");
        let dry = ["prune", "--older-than", "0s", "--dry-run"];
        assert_eq!(counts(&outbox, &dry, 0), json!({"matched": 3, "changed": 0}));
        assert_eq!(counts(&outbox, &dry[..3], 0), json!({"matched": 3, "changed": 3}));
        let status = outbox.status();
        assert_eq!((&status["published"], &status["pending"]), (&0.into(), &2.into()));
    }
}

#[test]
fn explain_says_why_a_row_waits() {
    for outbox in Outbox::all() {
        let delayed = outbox.enqueue(&["--type", "t", "--key", "k", "--delay", "1h", "--body", "1"]);
        let second = outbox.enqueue(&["--type", "t", "--key", "k", "--body", "2"]);
        let free = outbox.enqueue(&["--type", "t", "--body", "3"]);
        let answer = outbox.reason(&delayed);
        assert_eq!((&answer["reason"], &answer["status"]), (&"not_due".into(), &"pending".into()));
        assert!(answer["next_attempt_at"].is_string());
        let answer = outbox.reason(&second);
        assert_eq!(answer["reason"], "waiting_for_key");
        assert!(answer["detail"].as_str().unwrap().contains(&delayed) && answer["next_attempt_at"].is_null());
        let answer = outbox.reason(&free);
        assert_eq!((&answer["reason"], answer["fix"].is_string()), (&"no_relay".into(), true));
        kill(&outbox, &format!("id = '{free}'"));
        assert_eq!(outbox.reason(&free)["reason"], "invalid");
        let unknown = outbox.run(&["explain", "00000000-0000-4000-8000-000000000000", "--json"]).ended(1);
        assert_eq!(unknown.json()[0]["reason"], "unknown_id");
        assert!(outbox.run(&["explain", &second]).ended(0).out.contains("waiting_for_key"));
    }
}

#[test]
fn who_and_why_are_recorded() {
    let outbox = Outbox::sqlite();
    let id = outbox.enqueue(&["--type", "t", "--body", "1"]);
    kill(&outbox, "type = 't'");
    let args = ["retry", &id, "--reason", "exchange is back", "--store", &outbox.url, "--outbox", &outbox.name];
    run(binary().args(args).env("POSTHASTE_OPERATOR", "ada"), b"").ended(0);
    outbox.run(&["discard", &id]).ended(0);
    let database = rusqlite::Connection::open(outbox.url.strip_prefix("sqlite:").unwrap()).unwrap();
    let sql = format!("SELECT who, why, action FROM \"{}_log\" WHERE id = ?1 ORDER BY rowid", outbox.table());
    let mut statement = database.prepare(&sql).unwrap();
    let rows = statement.query_map([&id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let rows: Vec<(String, String, String)> = rows.map(Result::unwrap).collect();
    assert_eq!(rows[0], ("ada".to_owned(), "exchange is back".to_owned(), "retry".to_owned()));
    assert!(rows[1].0.contains('@') && rows[1].2 == "discard", "{rows:?}");
}
