//! A scripted HTTP server on a port of its own, and messages to send to it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use posthaste_core::{
    Address, Body, Lane, Message, RouteKey, Row, RowId, Status, Timestamp,
    options::Options,
    port::{Target, Transport},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};

/// A request as it came.
#[derive(Debug)]
pub struct Received {
    pub line: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// What the server does with a request.
pub enum Answer {
    /// Sends this text, with a `content-length` of the body in front.
    Status(&'static str, &'static str),
    /// Sends exactly this text and keeps the connection open.
    Raw(&'static str),
    /// Sends exactly this text and closes the connection.
    Cut(&'static str),
    /// Sends nothing and keeps the connection open.
    Silence,
}

pub const OK: Answer = Answer::Status("200 OK", "");

/// Answers by a script; ends when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub requests: mpsc::Receiver<Received>,
    pub connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

type Script = Arc<dyn Fn(&Received) -> Answer + Send + Sync>;

impl Server {
    pub async fn start(script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::channel(1000);
        let connections = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::new(script), sender, Arc::clone(&connections)));
        Server { address, requests, connections, _tasks: tasks }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub async fn received(&mut self) -> Received {
        self.requests.recv().await.unwrap()
    }
}

async fn accept(listener: TcpListener, script: Script, sender: mpsc::Sender<Received>, connections: Arc<AtomicUsize>) {
    let mut serving = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.fetch_add(1, Ordering::SeqCst);
        let (script, sender) = (Arc::clone(&script), sender.clone());
        serving.spawn(async move {
            // A client that goes away ends its connection, not the server.
            let _ = serve(stream, script, sender).await;
        });
    }
}

async fn serve(stream: TcpStream, script: Script, sender: mpsc::Sender<Received>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let request = read_request(&mut stream).await?;
        let answer = script(&request);
        let _ = sender.send(request).await;
        match answer {
            Answer::Status(head, body) => {
                let length = body.len();
                stream
                    .write_all(format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes())
                    .await?;
            }
            Answer::Raw(text) => stream.write_all(text.as_bytes()).await?,
            Answer::Cut(text) => return stream.write_all(text.as_bytes()).await,
            Answer::Silence => std::future::pending().await,
        }
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> std::io::Result<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).expect("headers are ASCII");
    let mut lines = head.trim_end().lines();
    let line = lines.next().unwrap().to_owned();
    let headers: BTreeMap<String, String> = lines
        .map(|line| line.split_once(": ").unwrap_or((line.trim_end_matches(':'), "")))
        .fold(BTreeMap::new(), |mut headers, (name, value)| {
            assert!(headers.insert(name.to_lowercase(), value.to_owned()).is_none(), "{name} came twice");
            headers
        });
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Received { line, headers, body })
}

pub fn target(url: &str, options: &[(&str, &str)]) -> Target {
    let mut all = Options::default();
    options.iter().for_each(|(name, value)| all.add(*name, *value));
    posthaste_transport_http::parse(url, all).unwrap()
}

/// The transport to a server on this machine.
pub fn local(url: &str, options: &[(&str, &str)]) -> Arc<dyn Transport> {
    let allowed: Vec<(&str, &str)> = options.iter().copied().chain([("allow", "127.0.0.0/8")]).collect();
    target(url, &allowed).transport
}

pub fn message(content_type: &str, body: Body) -> Message {
    let id = RowId::generate();
    let route = RouteKey::from("partner");
    let row = Row {
        id,
        seq: 1,
        lane: Lane::of_id(id),
        event_type: "order.placed".into(),
        key: Some("k 1".into()),
        tenant: None,
        priority: 0,
        headers: [("region".to_owned(), "eu".to_owned())].into(),
        content_type: content_type.into(),
        body,
        due_at: Timestamp::from_micros(0),
        status: Status::Pending,
        attempts: 0,
        last_error: None,
        outstanding: None,
        created_at: Timestamp::from_micros(0),
        published_at: None,
        defect: None,
    };
    let source = "/posthaste/orders".into();
    Message { id: id.message_id(&route), route, source, address: Address::default(), payload: None, row: Arc::new(row) }
}

pub fn json() -> Message {
    message("application/json", Body::Bytes(br#"{"id":1}"#.as_slice().into()))
}
