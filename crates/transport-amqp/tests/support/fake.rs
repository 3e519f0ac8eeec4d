//! A scripted AMQP server: polite by default, and as rude as a test needs it.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
};

/// What the client said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The protocol header.
    Hello,
    /// A method by class and id.
    Method(u16, u16),
    /// A message with this routing key: the `nth` on its channel, from 1. Its header frame's payload.
    Publish { channel: u16, nth: u64, key: String, header: Vec<u8> },
}

/// What the server does about it.
pub enum Reply {
    /// What a broker in good health would say.
    Polite,
    /// These frames.
    Say(Vec<u8>),
    /// Silence.
    Nothing,
}

type Script = dyn Fn(&Heard) -> Reply + Send + Sync;

pub struct Fake {
    pub url: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Vec<mpsc::UnboundedSender<Vec<u8>>>>,
    closed: watch::Sender<usize>,
    published: watch::Sender<usize>,
}

impl Fake {
    pub async fn start(script: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Without heartbeats, so that nothing but the transport ends a connection.
        let url = format!("amqp://{}?heartbeat=0", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let accepting = tokio::spawn(accept(listener, Arc::new(script), Arc::clone(&shared)));
        Fake { url, shared, accepting }
    }

    /// Says something that nobody asked for, on every connection.
    pub fn say(&self, frames: &[u8]) {
        let open = self.shared.open.lock().unwrap();
        open.iter().for_each(|connection| drop(connection.send(frames.to_vec())));
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.open.lock().unwrap().len()
    }

    /// Waits until so many connections have ended.
    pub async fn until_closed(&self, count: usize) {
        until(&self.shared.closed, count).await;
    }

    /// Waits until so many messages have arrived.
    pub async fn until_published(&self, count: usize) {
        until(&self.shared.published, count).await;
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn until(counter: &watch::Sender<usize>, count: usize) {
    let mut counter = counter.subscribe();
    let waiting = counter.wait_for(|reached| *reached >= count);
    tokio::time::timeout(super::SOON, waiting).await.expect("it never happened").unwrap();
}

async fn accept(listener: TcpListener, script: Arc<Script>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (say, said) = mpsc::unbounded_channel();
        shared.open.lock().unwrap().push(say.clone());
        let (script, shared) = (Arc::clone(&script), Arc::clone(&shared));
        connections.spawn(async move {
            let _ = converse(socket, &*script, (say, said), &shared.published).await;
            shared.closed.send_modify(|closed| *closed += 1);
        });
    }
}

/// Until the client hangs up.
async fn converse(
    socket: TcpStream,
    script: &Script,
    (say, mut said): (mpsc::UnboundedSender<Vec<u8>>, mpsc::UnboundedReceiver<Vec<u8>>),
    published: &watch::Sender<usize>,
) -> io::Result<()> {
    let (from, mut to) = socket.into_split();
    let speaking = async {
        while let Some(frames) = said.recv().await {
            to.write_all(&frames).await?;
        }
        Ok(())
    };
    tokio::select! {
        end = listen(from, script, &say, published) => end,
        end = speaking => end,
    }
}

async fn listen(
    mut from: OwnedReadHalf,
    script: &Script,
    say: &mpsc::UnboundedSender<Vec<u8>>,
    published: &watch::Sender<usize>,
) -> io::Result<()> {
    from.read_exact(&mut [0; 8]).await?;
    answer(script, &Heard::Hello, 0, say);
    let mut counts = std::collections::HashMap::<u16, u64>::new();
    let mut key = String::new();
    loop {
        let (kind, channel, payload) = frame(&mut from).await?;
        match kind {
            1 => {
                let (class, id) = (number(&payload), number(&payload[2..]));
                if (class, id) == (60, 40) {
                    let exchange = 6 + 1 + usize::from(payload[6]);
                    let end = exchange + 1 + usize::from(payload[exchange]);
                    key = String::from_utf8_lossy(&payload[exchange + 1..end]).into_owned();
                } else {
                    answer(script, &Heard::Method(class, id), channel, say);
                }
            }
            2 => {
                let nth = counts.entry(channel).and_modify(|count| *count += 1).or_insert(1);
                let heard = Heard::Publish { channel, nth: *nth, key: key.clone(), header: payload };
                answer(script, &heard, channel, say);
                published.send_modify(|count| *count += 1);
            }
            _ => {}
        }
    }
}

async fn frame(from: &mut OwnedReadHalf) -> io::Result<(u8, u16, Vec<u8>)> {
    let (kind, channel, size) = (from.read_u8().await?, from.read_u16().await?, from.read_u32().await?);
    let mut payload = vec![0; size as usize];
    from.read_exact(&mut payload).await?;
    from.read_u8().await?;
    Ok((kind, channel, payload))
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn answer(script: &Script, heard: &Heard, channel: u16, say: &mpsc::UnboundedSender<Vec<u8>>) {
    let frames = match script(heard) {
        Reply::Polite => polite(heard, channel),
        Reply::Say(frames) => frames,
        Reply::Nothing => Vec::new(),
    };
    let _ = say.send(frames);
}

fn polite(heard: &Heard, channel: u16) -> Vec<u8> {
    match heard {
        Heard::Hello => method(0, 10, 10, &[&[0, 9][..], &[0; 4], &long("PLAIN"), &long("en_US")].concat()),
        // Tune: 2047 channels, frames of 128 KiB, no heartbeat.
        Heard::Method(10, 11) => method(0, 10, 30, &[0x07, 0xff, 0, 2, 0, 0, 0, 0]),
        Heard::Method(10, 40) => method(0, 10, 41, &[0]),
        Heard::Method(10, 50) => method(0, 10, 51, &[]),
        Heard::Method(20, 10) => method(channel, 20, 11, &[0; 4]),
        Heard::Method(20, 40) => method(channel, 20, 41, &[]),
        Heard::Method(85, 10) => method(channel, 85, 11, &[]),
        Heard::Publish { nth, .. } => ack(channel, *nth),
        Heard::Method(..) => Vec::new(),
    }
}

/// A method frame.
pub fn method(channel: u16, class: u16, id: u16, arguments: &[u8]) -> Vec<u8> {
    let payload = [&class.to_be_bytes(), &id.to_be_bytes(), arguments].concat();
    raw(1, channel, &payload)
}

pub fn ack(channel: u16, tag: u64) -> Vec<u8> {
    method(channel, 60, 80, &[&tag.to_be_bytes()[..], &[0]].concat())
}

/// `basic.return` 312 of a message with this header and a body of one byte.
pub fn returned(channel: u16, header: &[u8]) -> Vec<u8> {
    let arguments = [&312_u16.to_be_bytes()[..], &short("NO_ROUTE"), &short("e"), &short("k")].concat();
    [method(channel, 60, 50, &arguments), raw(2, channel, header), raw(3, channel, b"x")].concat()
}

/// `connection.close`.
pub fn hang_up(code: u16, text: &str) -> Vec<u8> {
    method(0, 10, 50, &[&code.to_be_bytes()[..], &short(text), &[0; 4]].concat())
}

pub fn blocked(reason: &str) -> Vec<u8> {
    method(0, 10, 60, &short(reason))
}

pub fn unblocked() -> Vec<u8> {
    method(0, 10, 61, &[])
}

fn raw(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap();
    [&[kind][..], &channel.to_be_bytes(), &size.to_be_bytes(), payload, &[0xce]].concat()
}

fn short(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

fn long(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat()
}
