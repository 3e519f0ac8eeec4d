//! What a relay sends where: webhooks, delivery tables, several outboxes, rows that can't be sent.

mod common;

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use common::{
    Outbox, binary, posthaste,
    relay::{Folder, Served, enqueue, lines, relay, start, status, terminate, until},
    run,
};

/// A receiver of webhooks, which answers 200 to everything.
struct Receiver {
    url: String,
    requests: mpsc::Receiver<Request>,
}

struct Request {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Receiver {
    fn new() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hooks", listener.local_addr().expect("an address"));
        let (sender, requests) = mpsc::channel();
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || serve(stream, &sender));
            }
        });
        Receiver { url, requests }
    }
}

fn serve(stream: TcpStream, sender: &mpsc::Sender<Request>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(": ") {
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        sender.send(Request { headers, body: String::from_utf8(body).ok()? }).ok()?;
        writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

#[test]
fn decision_35_a_private_webhook_is_tried_only_where_that_is_allowed() {
    let (outbox, receiver) = (Outbox::sqlite(), Receiver::new());
    enqueue(&outbox, &lines(1));
    let refused = run(&mut relay(&outbox, &["--to", &receiver.url, "--until-empty", "--timeout", "2s"]), b"").ended(3);
    assert!(refused.err.contains("--allow-net"), "the way out is not named: {}", refused.err);
    assert!(refused.err.contains("warning: target default has no secret"), "{}", refused.err);
    assert!(receiver.requests.try_recv().is_err(), "it was sent");

    let mut allowed = relay(&outbox, &["--to", &receiver.url, "--allow-net", "127.0.0.0/8", "--until-empty"]);
    allowed.args(["--secret-env", "HOOK"]).env("HOOK", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz");
    let delivered = run(&mut allowed, b"").ended(0);
    assert!(!delivered.err.contains("warning") && !delivered.err.contains("MDEyMz"), "{}", delivered.err);
    let request = receiver.requests.try_recv().expect("a request");
    assert_eq!(request.body, r#"{"n":0,"x":1.50}"#);
    assert_eq!(request.headers["ce-type"], "order.placed");
    assert!(request.headers["webhook-signature"].starts_with("v1,"), "unsigned");
}

#[test]
fn a_secret_that_is_not_there_is_refused_by_the_name_of_its_variable() {
    let outbox = Outbox::sqlite();
    let refused = run(&mut relay(&outbox, &["--to", "https://h/", "--secret-env", "NO_SUCH_HOOK"]), b"").ended(2);
    assert!(refused.err.contains("NO_SUCH_HOOK"), "{}", refused.err);
}

#[test]
fn a_delivery_table_has_each_event_once() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(30));
    let file = folder.path("delivered.db");
    let to = format!("sqlite:{}", file.display());
    run(&mut relay(&outbox, &["--to", &to, "--until-empty"]), b"").ended(0);
    let delivered = rusqlite::Connection::open(&file).expect("a database");
    let count = "SELECT count(DISTINCT row_id), count(*) FROM delivered";
    let counts = delivered.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)));
    assert_eq!(counts.expect("counted"), (30_u32, 30_u32));
}

#[test]
fn several_outboxes_in_one_absent_file_are_made_and_pumped() {
    let (first, folder) = (Outbox::sqlite(), Folder::new());
    let second = first.named("invoices");
    let both = ["--outbox", &second.name, "--to", &folder.target(), "--until-empty"];
    run(&mut relay(&first, &both), b"").ended(0);
    enqueue(&first, &lines(5));
    enqueue(&second, &lines(7));
    run(&mut relay(&first, &both), b"").ended(0);
    let delivered = folder.delivered();
    let of = |name: &str| delivered.iter().filter(|line| line.contains(&format!("/posthaste/{name}\""))).count();
    assert_eq!((of(&first.name), of(&second.name)), (5, 7));
}

#[test]
fn decision_19_a_file_that_holds_something_else_is_left_alone() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    outbox.sql("CREATE TABLE notes (text TEXT)");
    let refused = run(&mut relay(&outbox, &["--to", &folder.target()]), b"").ended(2);
    let command = format!("posthaste migrate --store {} --outbox {}", outbox.url, outbox.name);
    assert!(refused.err.contains(&command), "{}", refused.err);
}

#[test]
fn rows_that_become_invalid_end_it_with_1_and_are_counted_from_the_start() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(3));
    outbox.sql(&format!("INSERT INTO {} (type, body, headers) VALUES ('a', x'31', '[]')", outbox.table()));
    let args = ["--to", &folder.target(), "--until-empty"];
    let found = run(&mut relay(&outbox, &args), b"").ended(1);
    assert!(found.err.contains("1 rows became invalid"), "{}", found.err);
    assert_eq!((folder.delivered().len(), &status(&outbox)["invalid"]), (3, &1.into()));
    run(&mut relay(&outbox, &args), b"").ended(0);
}

#[test]
fn report_150_what_can_t_be_read_is_never_shown_as_a_number() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    enqueue(&outbox, &lines(2));
    let served = Served::start(&mut relay(&outbox, &["--to", &folder.target()]));
    until("the counts are read", || served.json("/status")["outboxes"][0]["published"].is_u64().then_some(()));
    outbox.sql(&format!("ALTER TABLE {} RENAME TO elsewhere", outbox.table()));
    until("the reading fails", || served.get("/metrics").1.contains("posthaste_read_errors_total").then_some(()));
    let metrics = served.get("/metrics").1;
    let shown: Vec<&str> = metrics.lines().filter(|line| line.starts_with("posthaste_rows{")).collect();
    assert!(shown.len() == 5 && shown.iter().all(|line| line.ends_with(" NaN")), "{metrics}");
    let (code, body) = served.get("/health/ready");
    assert!(code == 503 && body.contains("can't be read"), "{body}");
    assert!(served.json("/status")["outboxes"][0].is_null());
}

#[test]
fn decision_12_a_relay_that_waits_for_another_says_so() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    let mut first = start(&mut relay(&outbox, &["--to", &folder.target(), "--name", "first"]));
    until("the first holds it", || posthaste_holds(&outbox).then_some(()));
    let args = ["--to", &folder.target(), "--until-empty", "--timeout", "1s"];
    let second = run(&mut relay(&outbox, &args), b"").ended(3);
    assert!(second.err.contains("another relay holds"), "{}", second.err);
    terminate(&first);
    assert!(first.wait().expect("ended").success());
}

/// The file is made by the relay, so that its status can't be asked for at first.
fn posthaste_holds(outbox: &Outbox) -> bool {
    let run = posthaste(&["status", "--store", &outbox.url, "--outbox", &outbox.name, "--json"]);
    run.code == 0 && run.json()[0]["relays"][0]["name"] == "first"
}

#[test]
fn an_address_that_is_taken_is_named() {
    let (outbox, folder) = (Outbox::sqlite(), Folder::new());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let refused = run(&mut relay(&outbox, &["--to", &folder.target(), "--http", &address]), b"").ended(2);
    assert!(refused.err.contains(&format!("--http {address}")), "{}", refused.err);
}

#[test]
fn doctor_says_what_works_and_what_has_no_effect() {
    let (outbox, receiver) = (Outbox::sqlite(), Receiver::new());
    enqueue(&outbox, &lines(1));
    let mut command = binary();
    command.args(["doctor", "--json", "--store", &outbox.url, "--outbox", &outbox.name]);
    command.args(["--to", &receiver.url, "--allow-net", "127.0.0.0/8"]);
    let findings = run(&mut command, b"").ended(1).json();
    let said = |what: &str, level: &str, detail: &str| {
        let found = findings.iter().any(|finding| {
            let text = finding["detail"].as_str().expect("a detail");
            finding["what"].as_str().expect("what").contains(what) && finding["level"] == level && text.contains(detail)
        });
        assert!(found, "{what} {level} {detail} is not in {findings:#?}");
    };
    said(&outbox.name, "ok", "the schema is current");
    said(&outbox.name, "ok", "SQLite 3.");
    said("retention", "ok", "1d");
    said("priority", "ok", "no effect");
    said("webhook", "warn", "unsigned");
    said("target default", "ok", "can be reached");
}
