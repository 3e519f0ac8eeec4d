//! Enqueueing from the command line, and looking at what was enqueued.

mod common;

use std::{io::Read as _, process::Stdio};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use common::{Outbox, binary, posthaste};

fn ndjson(lines: impl Iterator<Item = String>) -> Vec<u8> {
    lines.map(|line| line + "\n").collect::<String>().into_bytes()
}

#[test]
fn a_thousand_lines_come_back_as_they_went_in() {
    for outbox in Outbox::all() {
        let body = |n: u32| format!(r#"{{"n":{n},"text":"é \" \\ line","big":9007199254740993{n}}}"#);
        let input = ndjson((0..1_000).map(|n| {
            format!(r#"{{"type":"order.placed","key":"k{}","headers":{{"h":"{n}"}},"body": {} }}"#, n % 7, body(n))
        }));
        let enqueued = outbox.run_with(&["enqueue", "--ndjson", "-"], &input).ended(0);
        let ids = enqueued.lines();
        assert_eq!(ids.len(), 1_000);
        let listed = outbox.run(&["list", "--json"]).ended(0).json();
        let in_order: Vec<&str> = listed.iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(in_order, ids, "ids are printed and rows listed in the order of the lines");
        for n in [0_u32, 1, 499, 999] {
            let shown = outbox.run(&["show", ids[n as usize], "--json"]).ended(0);
            assert!(shown.out.contains(&format!("\"body\":{}", body(n))), "{}", shown.out);
            assert_eq!(shown.json()[0]["headers"]["h"], n.to_string());
        }
        let status = outbox.status();
        assert_eq!((&status["pending"], &status["published"]), (&1_000.into(), &0.into()));
        assert!(status["oldest_pending_seconds"].as_f64().unwrap() >= 0.0);
    }
}

#[test]
fn a_malformed_line_4_of_10_is_named_and_nothing_is_written() {
    for outbox in Outbox::all() {
        let input = ndjson((1..=10).map(|n| match n {
            4 => r#"{"type":"t","body":{"n":}}"#.to_owned(),
            _ => format!(r#"{{"type":"t","body":{n}}}"#),
        }));
        let run = outbox.run_with(&["enqueue", "--ndjson", "-"], &input).ended(2);
        assert!(
            run.err.starts_with("error: line 4: not JSON") && run.err.contains("nothing was written"),
            "{}",
            run.err
        );
        assert_eq!((run.out.as_str(), outbox.run(&["list"]).ended(0).lines().len()), ("", 1));
    }
}

#[test]
fn a_bad_line_of_a_later_batch_says_which_lines_are_written() {
    let outbox = Outbox::sqlite();
    let input = ndjson((1..=2_500).map(|n| match n {
        2_200 => r#"{"type":"t","bdoy":1}"#.to_owned(),
        _ => r#"{"type":"t","body":1}"#.to_owned(),
    }));
    let run = outbox.run_with(&["enqueue", "--ndjson", "-"], &input).ended(2);
    let expected = "line 2200: unknown member \"bdoy\"; did you mean body?; lines 1-2000 are written";
    assert!(run.err.contains(expected), "{}", run.err);
    assert_eq!(run.lines().len(), 2_000);
    assert_eq!(outbox.status()["pending"], 2_000);
}

#[test]
fn decision_25_a_repeated_id_is_said_to_exist_and_other_content_is_refused() {
    for outbox in Outbox::all() {
        let id = "0190163d-8694-739b-aea5-966c26f8ad91";
        let line = format!(r#"{{"type":"t","id":"{id}","body":1}}"#);
        let input = ndjson([line.clone(), r#"{"type":"t","body":2}"#.to_owned(), line].into_iter());
        let run = outbox.run_with(&["enqueue", "--ndjson", "-"], &input).ended(0);
        let lines = run.lines();
        assert_eq!((lines[0], lines[2].to_owned()), (id, format!("{id} existing")));
        assert_eq!(outbox.enqueue(&["--type", "t", "--id", id, "--body", "1"]), format!("{id} existing"));
        let other = outbox.run(&["enqueue", "--type", "t", "--id", id, "--body", "2"]).ended(1);
        assert!(other.err.contains(&format!("id {id} is taken by an event with other content")), "{}", other.err);
        assert_eq!(outbox.status()["pending"], 2);
    }
}

#[test]
fn report_069_numbers_keep_their_text_through_every_form() {
    let body = r#"{"id":9007199254740993,"d":0.1000000000000000055511151231257827}"#;
    for outbox in Outbox::all() {
        let single = outbox.enqueue(&["--type", "t", "--body", body]);
        let line = format!(r#"{{"type":"t","body":{body}}}"#);
        let streamed = outbox.run_with(&["enqueue", "--ndjson", "-"], line.as_bytes()).ended(0);
        for id in [single.as_str(), streamed.out.trim()] {
            assert!(outbox.run(&["show", id, "--json"]).out.contains(&format!("\"body\":{body}")));
            assert!(outbox.run(&["show", id]).out.contains(body));
        }
    }
}

#[test]
fn report_067_and_076_bodies_of_every_kind_come_back_byte_for_byte() {
    for outbox in Outbox::all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for body in [&b""[..], b"\xff\xfe\0A", b"{\n}", &[0; 100_000]] {
            std::fs::write(file.path(), body).unwrap();
            let id = outbox.enqueue(&["--type", "t", "--file", file.path().to_str().unwrap()]);
            let shown = outbox.run(&["show", &id, "--json"]).ended(0).json().remove(0);
            assert_eq!(STANDARD.decode(shown["body_base64"].as_str().unwrap()).unwrap(), body);
        }
        let line = br#"{"type":"t","key":"k","body_base64":null}"#;
        let id = outbox.run_with(&["enqueue", "--ndjson", "-"], line).ended(0).out;
        assert!(outbox.run(&["show", id.trim(), "--json"]).out.contains("\"body_base64\":null"));
    }
}

#[test]
fn every_flag_arrives_in_the_row() {
    for outbox in Outbox::all() {
        let run = outbox
            .run(&[
                "enqueue",
                "--type",
                "report.due",
                "--key",
                "k",
                "--tenant",
                "acme",
                "--priority",
                "-2",
                "--header",
                "a=b=c",
                "--header",
                "traceparent=00-x",
                "--delay",
                "1h",
                "--body",
                "hello",
            ])
            .ended(0);
        assert!(run.err.contains("priority has no effect"), "{}", run.err);
        let row = outbox.run(&["show", run.out.trim(), "--json"]).ended(0).json().remove(0);
        assert_eq!((&row["type"], &row["key"], &row["tenant"]), (&"report.due".into(), &"k".into(), &"acme".into()));
        assert_eq!((&row["headers"]["a"], &row["headers"]["traceparent"]), (&"b=c".into(), &"00-x".into()));
        assert_eq!((&row["priority"], &row["content_type"]), (&(-2).into(), &"text/plain; charset=utf-8".into()));
        assert!(row["due_at"].as_str() > row["created_at"].as_str(), "{row}");
        assert_eq!(row["body_base64"], STANDARD.encode("hello"));
    }
}

#[test]
fn rows_r14_what_breaks_a_rule_is_refused_with_field_and_limit() {
    let outbox = Outbox::sqlite();
    let long = "k".repeat(1_025);
    for (args, error) in [
        (vec!["--type", "", "--body", "1"], "type is empty"),
        (vec!["--type", "t", "--body", "1", "--key", &long], "key has 1025 bytes, 1024 are allowed"),
        (vec!["--type", "t", "--body", "{", "--content-type", "application/json"], "not JSON although"),
        (vec!["--type", "t", "--body", "1", "--header", "a b=1"], "header name \"a b\""),
        (vec!["--type", "t", "--body", "1", "--header", "a=1", "--header", "a=2"], "header a is given twice"),
        (vec!["--type", "t", "--file", "/nowhere/x"], "/nowhere/x: No such file"),
    ] {
        let run = outbox.run(&[vec!["enqueue"], args].concat()).ended(2);
        assert!(run.err.contains(error), "{}", run.err);
    }
    assert!(!std::path::Path::new(outbox.url.strip_prefix("sqlite:").unwrap()).exists(), "nothing was made");
}

#[test]
fn report_151_a_reader_that_goes_away_ends_a_list_quietly_and_stops_no_enqueue() {
    let outbox = Outbox::sqlite();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ndjson((0..5_000).map(|_| r#"{"type":"t","body":1}"#.to_owned()))).unwrap();
    let lines = ["enqueue", "--ndjson", file.path().to_str().unwrap()];
    for args in [&lines[..], &["list"], &["list", "--json"], &["status", "--watch", "--json"], &["status", "--watch"]] {
        let mut child = binary()
            .args(args)
            .args(["--store", &outbox.url, "--outbox", &outbox.name])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""), "{args:?}");
    }
    assert_eq!(outbox.status()["pending"], 5_000);
}

#[test]
fn help_teaches_with_examples() {
    for command in ["migrate", "enqueue", "status", "list", "show", "explain", "retry", "discard", "prune"] {
        let help = posthaste(&[command, "--help"]).ended(0);
        assert!(help.out.contains(&format!("posthaste {command} ")) && help.out.contains("Example"), "{}", help.out);
    }
}

#[test]
fn a_byte_order_mark_before_the_first_line_is_no_part_of_it() {
    let outbox = Outbox::sqlite();
    let lines = "\u{feff}{\"type\":\"a\",\"body\":1}\n{\"type\":\"b\",\"body\":2}\n";
    let written = outbox.run_with(&["enqueue", "--ndjson", "-"], lines.as_bytes()).ended(0);
    assert_eq!(written.lines().len(), 2);
}

#[test]
fn a_content_type_that_would_break_a_header_is_refused() {
    let outbox = Outbox::sqlite();
    let args = ["enqueue", "--type", "t", "--body", "x", "--content-type", "text/plain\r\nX-Evil: 1"];
    let refused = outbox.run(&args).ended(2);
    assert!(refused.err.contains("contains a control character"), "{}", refused.err);
}
