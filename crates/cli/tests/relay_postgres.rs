//! The relay as a process: PostgreSQL → RabbitMQ.

mod common;

use std::{
    collections::{BTreeSet, HashMap},
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    time::Duration,
};

use common::{Outbox, binary, posthaste, run};
use futures_util::StreamExt as _;
use lapin::{
    Channel, Connection, ConnectionProperties,
    options::{BasicConsumeOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use posthaste_testkit::{
    eventually,
    proxy::{Mode, Proxy},
    service,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const PATIENCE: Duration = Duration::from_secs(90);

/// An outbox in PostgreSQL and a queue in RabbitMQ.
struct Scene {
    outbox: Outbox,
    queue: String,
    to: String,
    channel: Channel,
    _connection: Connection,
}

impl Scene {
    async fn set() -> Option<Scene> {
        let amqp = service::rabbitmq()?;
        let outbox = tokio::task::spawn_blocking(Outbox::postgres).await.expect("an outbox")?;
        let connection = Connection::connect(&amqp, ConnectionProperties::default()).await.expect("connected");
        let channel = connection.create_channel().await.expect("a channel");
        let queue = format!("posthaste-cli-{}", uuid::Uuid::now_v7());
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await.expect("a queue");
        let to = format!("{amqp}?routing_key={queue}");
        Some(Scene { outbox, queue, to, channel, _connection: connection })
    }

    async fn enqueue(&self, count: usize) {
        let lines: String =
            (0..count).map(|n| format!("{{\"type\":\"order.placed\",\"body\":{{\"n\":{n}}}}}\n")).collect();
        let args = ["enqueue", "--store", &self.outbox.url, "--outbox", &self.outbox.name, "--ndjson", "-"];
        run(binary().args(args), lines.as_bytes()).ended(0);
    }

    fn args(&self) -> Vec<&str> {
        vec!["relay", "--store", &self.outbox.url, "--outbox", &self.outbox.name, "--to", &self.to]
    }

    fn start(&self) -> Child {
        let mut command = binary();
        command.args(self.args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the relay starts")
    }

    fn until_empty(&self) {
        let mut args = self.args();
        args.push("--until-empty");
        posthaste(&args).ended(0);
    }

    async fn queued(&self) -> usize {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.channel.queue_declare(self.queue.as_str().into(), options, FieldTable::default());
        queue.await.expect("the queue").message_count() as usize
    }

    async fn until_queued(&self, count: usize) {
        eventually(PATIENCE, "messages arrive", || async { self.queued().await >= count }).await;
    }

    /// Takes every message: bodies by message id; copies must be identical. Answers how many came.
    async fn drain(&self) -> (HashMap<String, Vec<u8>>, usize) {
        let count = self.queued().await;
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let consumer =
            self.channel.basic_consume(self.queue.as_str().into(), "drain".into(), options, FieldTable::default());
        let mut consumer = consumer.await.expect("a consumer");
        let mut bodies: HashMap<String, Vec<u8>> = HashMap::new();
        for _ in 0..count {
            let next = tokio::time::timeout(PATIENCE, consumer.next()).await.expect("in time");
            let delivery = next.expect("a message").expect("a message");
            let id = delivery.properties.message_id().as_ref().expect("an id").to_string();
            let first = bodies.entry(id).or_insert_with(|| delivery.data.clone());
            assert_eq!(*first, delivery.data, "report_132: a copy differs from the first");
        }
        (bodies, count)
    }

    async fn strike(self) {
        let _ = self.channel.queue_delete(self.queue.as_str().into(), QueueDeleteOptions::default()).await;
        // Its outbox is dropped by a runtime of its own.
        tokio::task::spawn_blocking(move || drop(self.outbox)).await.expect("dropped");
    }
}

fn numbers(bodies: &HashMap<String, Vec<u8>>) -> BTreeSet<u64> {
    let number = |body: &Vec<u8>| serde_json::from_slice::<serde_json::Value>(body).expect("JSON")["n"].as_u64();
    bodies.values().filter_map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn issue_2_a_thousand_lines_arrive_at_the_broker() {
    let Some(scene) = Scene::set().await else { return };
    scene.enqueue(1000).await;
    scene.until_empty();
    let (bodies, count) = scene.drain().await;
    assert_eq!((count, numbers(&bodies)), (1000, (0..1000).collect()));
    let args = ["status", "--store", &scene.outbox.url, "--outbox", &scene.outbox.name, "--json"];
    let status = posthaste(&args).ended(0).json().remove(0);
    assert_eq!((status["pending"].as_u64(), status["published"].as_u64()), (Some(0), Some(1000)));
    scene.strike().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r45_killed_at_every_point_of_a_drain_it_loses_nothing() {
    let Some(scene) = Scene::set().await else { return };
    scene.enqueue(6000).await;
    const KILLS: usize = 6;
    for kill in 1..=KILLS {
        let mut child = scene.start();
        scene.until_queued(kill * 400).await;
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    scene.until_empty();
    let (bodies, count) = scene.drain().await;
    assert_eq!(numbers(&bodies), (0..6000).collect(), "an event is lost");
    let duplicates = count - bodies.len();
    assert!(duplicates <= KILLS * 2_000, "{duplicates} duplicates: more than was in flight or unmarked");
    scene.strike().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r53_an_orderly_stop_repeats_nothing() {
    let Some(scene) = Scene::set().await else { return };
    scene.enqueue(6000).await;
    let mut child = scene.start();
    scene.until_queued(500).await;
    terminate(&child);
    assert!(child.wait().expect("ended").success());
    scene.until_empty();
    let (bodies, count) = scene.drain().await;
    assert_eq!((count, numbers(&bodies)), (6000, (0..6000).collect()));
    scene.strike().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_014_two_relays_on_one_outbox_send_nothing_twice() {
    let Some(scene) = Scene::set().await else { return };
    let (mut first, mut second) = (scene.start(), scene.start());
    for _ in 0..4 {
        scene.enqueue(1000).await;
    }
    scene.until_queued(4000).await;
    for child in [&mut first, &mut second] {
        terminate(child);
        assert!(child.wait().expect("ended").success());
    }
    let (bodies, count) = scene.drain().await;
    assert_eq!((count, bodies.len()), (4000, 4000));
    scene.strike().await;
}

/// The outbox as it is reached through a proxy, and the proxy.
async fn through_a_proxy(url: &str) -> (String, Proxy) {
    let (before, after) = url.split_once('@').expect("a user");
    let (server, database) = after.split_once('/').expect("a database");
    let proxy = Proxy::start(server.parse().expect("an address with a port")).await;
    (format!("{before}@{}/{database}", proxy.addr()), proxy)
}

/// Asks a relay's page, and does not wait for the answer.
async fn ask(address: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("the page is there");
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.expect("asked");
    stream
}

async fn is_ready(address: &str) -> bool {
    let mut answer = String::new();
    let read = ask(address, "/health/ready").await.read_to_string(&mut answer).await;
    read.is_ok() && answer.starts_with("HTTP/1.0 200")
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r53_a_viewer_and_a_slow_database_do_not_cut_the_drain_short() {
    let Some(scene) = Scene::set().await else { return };
    let (store, proxy) = through_a_proxy(&scene.outbox.url).await;
    let mut command = binary();
    command.args(["relay", "--store", &store, "--outbox", &scene.outbox.name, "--to", &scene.to]);
    command.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the relay starts");
    let mut err = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    err.read_line(&mut line).expect("the address is said");
    let address = line.trim().rsplit('/').next().expect("an address").to_owned();
    let drained = std::thread::spawn(move || std::io::copy(&mut err, &mut std::io::sink()));
    eventually(PATIENCE, "it is ready", || is_ready(&address)).await;

    proxy.set(Mode::Delay(Duration::from_millis(600))).await;
    scene.enqueue(100).await;
    scene.until_queued(100).await;
    let _viewers = [ask(&address, "/status").await, ask(&address, "/").await, ask(&address, "/metrics").await];
    terminate(&child);
    let ended = tokio::task::spawn_blocking(move || child.wait()).await.expect("waited").expect("ended");
    assert!(ended.success());
    assert_eq!(scene.outbox.status()["published"], 100, "what was confirmed is not marked");
    drained.join().expect("read").expect("read");
    scene.strike().await;
}

fn terminate(child: &Child) {
    let sent = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn product_9_each_route_has_its_own_address_on_one_target() {
    let (Some(scene), Some(other)) = (Scene::set().await, Scene::set().await) else { return };
    scene.enqueue(20).await;
    let amqp = service::rabbitmq().expect("it was there");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("posthaste.yaml");
    let routes = format!(
        "store: \"{}\"\noutboxes: [{}]\ntargets:\n  rabbit: {{ url: \"{amqp}\", routing_key: nowhere }}\nroutes:\n  \
         all: {{ match: \"*\", target: rabbit, routing_key: {} }}\n  \
         big: {{ match: \"order.*\", when: \"body.n >= 15\", target: rabbit, routing_key: {} }}\n",
        scene.outbox.url, scene.outbox.name, scene.queue, other.queue
    );
    std::fs::write(&file, routes).expect("written");
    posthaste(&["relay", "--config", &file.display().to_string(), "--until-empty"]).ended(0);
    let ((all, _), (big, _)) = (scene.drain().await, other.drain().await);
    assert_eq!((numbers(&all), numbers(&big)), ((0..20).collect(), (15..20).collect()));
    assert!(all.keys().all(|id| !big.contains_key(id)), "messages of two routes share an id");
    scene.strike().await;
    other.strike().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_rights_that_are_missing() {
    let Some(scene) = Scene::set().await else { return };
    scene.enqueue(1).await;
    let reader = format!("reader_{}", scene.outbox.name);
    let sql = |sql: &str| tokio::task::block_in_place(|| scene.outbox.sql(sql));
    sql(&format!("CREATE ROLE {reader} LOGIN; GRANT SELECT ON {} TO {reader}", scene.outbox.table()));
    let as_reader = scene.outbox.url.replace("postgres@", &format!("{reader}@"));
    let doctor = posthaste(&["doctor", "--store", &as_reader, "--outbox", &scene.outbox.name]);
    sql(&format!("DROP OWNED BY {reader}; DROP ROLE {reader}"));
    let doctor = doctor.ended(2);
    assert!(doctor.out.contains("this user lacks INSERT, UPDATE, DELETE"), "{}", doctor.out);
    assert!(doctor.out.contains("PostgreSQL 1"), "no version: {}", doctor.out);
    scene.strike().await;
}
