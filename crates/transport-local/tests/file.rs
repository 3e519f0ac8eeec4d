//! `file:PATH`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::{fs, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use common::{DEADLINE, bytes, difficult_bodies, message, row, text};
use posthaste_core::{Body, Class, Failure, Message, options::Options, port::Target};
use tempfile::TempDir;

fn target(path: &std::path::Path) -> Target {
    posthaste_transport_local::parse(&format!("file:{}", path.display()), Options::default()).unwrap()
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.ndjson");
    (directory, path)
}

async fn publish(target: &Target, batch: Vec<Message>) -> Vec<Result<(), Failure>> {
    target.transport.publish(batch, DEADLINE).await
}

async fn publish_all(target: &Target, batch: Vec<Message>) {
    publish(target, batch).await.into_iter().for_each(|answer| answer.unwrap());
}

fn lines(path: &std::path::Path) -> Vec<serde_json::Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn report_069_bodies_are_in_their_lines_byte_for_byte() {
    let (_directory, path) = place();
    let bodies = difficult_bodies();
    let target = target(&path);
    publish_all(&target, bodies.iter().map(|(content_type, body)| bytes(content_type, body)).collect()).await;
    publish_all(&target, vec![message(row("text/plain", Body::Null))]).await;
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(text.ends_with('\n') && lines.len() == bodies.len() + 1);
    for ((_, body), (line, raw)) in bodies.iter().zip(lines.iter().zip(text.lines())) {
        match line.get("data_base64") {
            Some(base64) => assert!(STANDARD.decode(base64.as_str().unwrap()).unwrap() == *body),
            None => assert!(raw.ends_with(&format!("\"data\":{}}}", std::str::from_utf8(body).unwrap()))),
        }
    }
    assert_eq!(lines.last().unwrap()["nullbody"], "true");
    assert_eq!((&lines[0]["subject"], &lines[0]["tenant"]), (&"k1".into(), &"acme".into()));
}

#[tokio::test]
async fn a_half_line_of_a_crash_is_cut_off_at_the_first_use() {
    let long = format!("{{\"specversion\":\"1.0\",\"id\":\"{}", "x".repeat(200_000));
    for half in ["", "{\"sp", "{\"specversion\":\"1.0\",\"id\":\"0190", &long, "\0\0\0", &"\0".repeat(200_000)] {
        for whole in ["", "{\"whole\":1}\n"] {
            let (_directory, path) = place();
            fs::write(&path, format!("{whole}{half}")).unwrap();
            publish_all(&target(&path), vec![text("a")]).await;
            let content = fs::read_to_string(&path).unwrap();
            assert!(content.starts_with(&format!("{whole}{{\"specversion\"")), "{content:.80}");
            assert_eq!(lines(&path).len(), 1 + whole.lines().count());
        }
    }
}

#[tokio::test]
async fn a_last_line_of_somebody_else_is_kept_and_ended() {
    let long = "x".repeat(200_000);
    for foreign in ["notes without a line end", "{\"half", "\0\0text", "{\"specversion\":\"0.3\"}", &long] {
        for whole in ["", "{\"whole\":1}\n"] {
            let (_directory, path) = place();
            fs::write(&path, format!("{whole}{foreign}")).unwrap();
            let target = target(&path);
            publish_all(&target, vec![text("a")]).await;
            publish_all(&target, vec![text("b")]).await;
            let content = fs::read_to_string(&path).unwrap();
            assert!(content.starts_with(&format!("{whole}{foreign}\n{{\"specversion\"")), "{content:.80}");
            assert_eq!(content.lines().count(), 3 + whole.lines().count());
        }
    }
}

#[tokio::test]
async fn a_database_is_refused_and_left_as_it_is() {
    let (_directory, path) = place();
    let content = [b"SQLite format 3\0".as_slice(), &[7; 5000]].concat();
    fs::write(&path, &content).unwrap();
    let failure = publish(&target(&path), vec![text("a")]).await.remove(0).unwrap_err();
    assert!(failure.class == Class::Transient && failure.detail.contains("is a SQLite database"), "{failure}");
    assert!(target(&path).transport.probe(DEADLINE).await.is_err());
    let error = posthaste_transport_local::check_place(&format!("file:{}", path.display())).unwrap_err();
    assert!(error.to_string().contains("is a SQLite database"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), content);
}

/// What is written to a pipe without a reader is gone once the relay ends.
#[tokio::test]
async fn what_is_no_regular_file_is_refused() {
    let (directory, path) = place();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut places = vec![(socket, "a socket"), (directory.path().to_owned(), "a directory")];
    places.extend(made.is_ok_and(|status| status.success()).then_some((path, "a pipe")));
    places.extend(["/dev/null", "/dev/full"].map(|device| (PathBuf::from(device), "a device")));
    for (path, what) in places.into_iter().filter(|(path, _)| path.exists()) {
        for failure in [
            publish(&target(&path), vec![text("a")]).await.remove(0).unwrap_err(),
            target(&path).transport.probe(DEADLINE).await.unwrap_err(),
        ] {
            assert!(failure.class == Class::Transient && failure.detail.contains(what), "{failure}");
        }
        let error = posthaste_transport_local::check_place(&format!("file:{}", path.display())).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    let missing = format!("file:{}", directory.path().join("not/yet").display());
    posthaste_transport_local::check_place(&missing).unwrap();
}

#[tokio::test]
async fn a_second_relay_is_refused_until_the_first_is_gone() {
    let (_directory, path) = place();
    let (first, second) = (target(&path), target(&path));
    publish_all(&first, vec![text("a")]).await;
    let failure = publish(&second, vec![text("b")]).await.remove(0).unwrap_err();
    assert!(failure.class == Class::Transient && failure.detail.contains("another relay"), "{failure}");
    assert!(second.transport.probe(DEADLINE).await.is_err());
    first.transport.close().await;
    // Closing doesn't wait; a probe of the same transport comes after it.
    first.transport.probe(DEADLINE).await.unwrap();
    publish_all(&second, vec![text("b")]).await;
    assert_eq!(lines(&path).len(), 2);
}

#[tokio::test]
async fn a_rotated_or_deleted_file_is_made_anew() {
    let (directory, path) = place();
    let target = target(&path);
    publish_all(&target, vec![text("a")]).await;
    let rotated = directory.path().join("events.1");
    fs::rename(&path, &rotated).unwrap();
    publish_all(&target, vec![text("b")]).await;
    fs::remove_file(&path).unwrap();
    publish_all(&target, vec![text("c"), text("d")]).await;
    assert_eq!((lines(&rotated).len(), lines(&path).len()), (1, 2));
}

#[tokio::test]
async fn a_file_that_is_truncated_in_place_is_written_on() {
    let (_directory, path) = place();
    let target = target(&path);
    publish_all(&target, vec![text("a")]).await;
    fs::File::create(&path).unwrap();
    publish_all(&target, vec![text("b")]).await;
    assert_eq!(lines(&path).len(), 1);
}

#[tokio::test]
async fn a_missing_directory_is_transient_and_heals() {
    let (directory, _) = place();
    let path = directory.path().join("not/yet/events.ndjson");
    let target = target(&path);
    let failure = publish(&target, vec![text("a")]).await.remove(0).unwrap_err();
    assert!(failure.class == Class::Transient && failure.detail.contains("not/yet"), "{failure}");
    assert!(target.transport.probe(DEADLINE).await.is_err());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    target.transport.probe(DEADLINE).await.unwrap();
    assert!(!path.exists(), "a probe makes nothing");
    publish_all(&target, vec![text("a")]).await;
}

/// The system calls of a process of its own, where the machine lets us see them.
#[tokio::test]
async fn lines_are_synced_before_they_are_confirmed() {
    const WATCHED: &str = "POSTHASTE_TEST_WATCHED_FILE";
    if let Some(path) = std::env::var_os(WATCHED) {
        publish_all(&target(&PathBuf::from(path)), vec![text("a")]).await;
        println!("confirmed");
        return;
    }
    let (directory, path) = place();
    let trace = directory.path().join("trace");
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-e", "trace=write,fdatasync", "-o"]).arg(&trace).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "lines_are_synced_before_they_are_confirmed", "--nocapture"]).env(WATCHED, &path);
    if !command.output().is_ok_and(|done| done.status.success()) {
        return;
    }
    let trace = fs::read_to_string(&trace).unwrap();
    let written = trace.find("specversion").unwrap();
    let synced = written + trace[written..].find("fdatasync").unwrap();
    assert!(synced < trace.find("confirmed").unwrap(), "{trace}");
}

/// A file size limit of a process of its own makes a write fail in the middle.
#[tokio::test]
async fn what_a_failed_write_leaves_is_cut_off() {
    const LIMITED: &str = "POSTHASTE_TEST_LIMITED_FILE";
    if let Some(path) = std::env::var_os(LIMITED) {
        let path = PathBuf::from(path);
        let target = target(&path);
        publish_all(&target, vec![text("a")]).await;
        let failed = publish(&target, vec![text("b"), text(&"x".repeat(200_000))]).await;
        let transient = |answer: &Result<(), Failure>| answer.as_ref().is_err_and(|why| why.class == Class::Transient);
        assert!(failed.iter().all(transient), "{failed:?}");
        assert_eq!(lines(&path).len(), 1);
        publish_all(&target, vec![text("c")]).await;
        assert_eq!(lines(&path).len(), 2);
        return;
    }
    let (_directory, path) = place();
    let own_name = "what_a_failed_write_leaves_is_cut_off";
    let script = format!("trap '' XFSZ; ulimit -f 100; exec \"$0\" --exact {own_name} --nocapture");
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]).arg(std::env::current_exe().unwrap()).env(LIMITED, &path);
    let Ok(done) = command.output() else { return };
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn lines_stand_after_each_other_in_the_order_of_the_batches() {
    let (_directory, path) = place();
    let target = target(&path);
    let messages: Vec<Message> = (0..2500).map(|n| text(&n.to_string())).collect();
    let expected: Vec<String> = messages.iter().map(|message| message.id.to_string()).collect();
    for batch in messages.chunks(target.transport.capabilities().max_batch) {
        publish_all(&target, batch.to_vec()).await;
    }
    let ids: Vec<String> = lines(&path).iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, expected);
}

#[test]
fn urls_that_name_nothing_are_refused() {
    for url in ["stdout:x", "file:", "sqlite::memory:", "file://host/x", "http://x", "stdout"] {
        assert!(posthaste_transport_local::parse(url, Options::default()).is_err(), "{url}");
    }
    let mut options = Options::default();
    options.add("exchange", "e");
    let error = posthaste_transport_local::parse("stdout:", options).err().unwrap();
    assert!(error.to_string().contains("exchange"));
}
