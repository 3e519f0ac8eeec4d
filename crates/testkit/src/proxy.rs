//! A TCP proxy whose network fails on command.
//!
//! Bytes are passed on in order or the connection ends: a connection that lost bytes in either
//! direction is cut as soon as the mode would let bytes through again, since a stream with a hole is
//! something no network does.

use std::{
    future::pending,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    select,
    sync::{mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::sleep,
    try_join,
};

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Passes everything on.
    Pass,
    /// Refuses new connections; those that are open go on.
    Refuse,
    /// Takes connections and bytes from both sides, and passes nothing on, ends neither.
    BlackHole,
    /// Passes bytes on to the server only: what it answers is lost, and that it closed.
    LoseAnswers,
    /// Passes bytes on after this time, each read in both directions.
    Delay(Duration),
    /// Passes this many more bytes on to the server, then cuts the connection and is `Pass`.
    CutAfter(usize),
}

/// A proxy in front of one server; ends, with its connections, on drop.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    commands: mpsc::Sender<(Command, oneshot::Sender<()>)>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
enum Command {
    Set(Mode),
    Cut,
}

/// The connection is to be reset on both sides.
#[derive(Debug)]
struct Cut;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

impl Proxy {
    /// Starts one that passes everything on to this address.
    ///
    /// # Panics
    /// If it can't listen on the loopback interface.
    pub async fn start(upstream: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the loopback interface can be used");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let (commands, orders) = mpsc::channel(1);
        let network =
            Network { addr, upstream, modes: Arc::new(watch::Sender::new(Mode::Pass)), cuts: watch::Sender::new(()) };
        Proxy { addr, commands, task: tokio::spawn(network.run(listener, orders)) }
    }

    /// Where clients connect to; the same in every mode.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Switches the mode. What is sent after this has returned meets the new mode.
    pub async fn set(&self, mode: Mode) {
        self.order(Command::Set(mode)).await;
    }

    /// Resets all open connections, on both sides. New ones meet the mode as it is.
    pub async fn cut(&self) {
        self.order(Command::Cut).await;
    }

    async fn order(&self, command: Command) {
        let (done, wait) = oneshot::channel();
        self.commands.send((command, done)).await.expect("the proxy runs as long as this value");
        wait.await.expect("the proxy did it: if it panicked, its own message says why");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Network {
    addr: SocketAddr,
    upstream: SocketAddr,
    modes: Arc<watch::Sender<Mode>>,
    cuts: watch::Sender<()>,
}

impl Network {
    async fn run(self, listener: TcpListener, mut orders: mpsc::Receiver<(Command, oneshot::Sender<()>)>) {
        let mut listener = Some(listener);
        let mut connections = JoinSet::new();
        loop {
            select! {
                order = orders.recv() => {
                    let Some((command, done)) = order else { return };
                    match command {
                        Command::Set(mode) => self.set(mode, &mut listener).await,
                        Command::Cut => {
                            self.cuts.send_replace(());
                            while connections.join_next().await.is_some() {}
                        }
                    }
                    let _ = done.send(());
                }
                client = accept(listener.as_ref()) => {
                    connections.spawn(serve(client, self.upstream, Arc::clone(&self.modes), self.cuts.subscribe()));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// A port is refused by the kernel only if nobody listens on it.
    async fn set(&self, mode: Mode, listener: &mut Option<TcpListener>) {
        if mode == Mode::Refuse {
            *listener = None;
        } else if listener.is_none() {
            *listener = Some(TcpListener::bind(self.addr).await.expect("nobody took the port of a proxy that refused"));
        }
        self.modes.send_replace(mode);
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    match listener {
        Some(listener) => listener.accept().await.expect("connections can be accepted").0,
        None => pending().await,
    }
}

/// Runs one connection to its end; dropping the future ends it at once.
async fn serve(
    mut client: TcpStream,
    upstream: SocketAddr,
    modes: Arc<watch::Sender<Mode>>,
    mut cuts: watch::Receiver<()>,
) {
    let mut server = None;
    let end = select! {
        end = relay(&mut client, &mut server, upstream, &modes) => end,
        _ = cuts.changed() => Err(Cut),
    };
    if let Err(Cut) = end {
        for stream in [Some(client), server].into_iter().flatten() {
            // closed with this, a socket sends a reset
            let _ = stream.set_zero_linger();
        }
    }
}

async fn relay(
    client: &mut TcpStream,
    server: &mut Option<TcpStream>,
    upstream: SocketAddr,
    modes: &watch::Sender<Mode>,
) -> Result<(), Cut> {
    let mut changes = modes.subscribe();
    if *changes.borrow_and_update() == Mode::BlackHole {
        // the server is not even asked for: one that is not there must look no different
        let swallow = async {
            let _ = tokio::io::copy(client, &mut tokio::io::sink()).await;
            pending::<()>().await;
        };
        select! {
            () = swallow => {}
            _ = changes.wait_for(|mode| *mode != Mode::BlackHole) => {}
        }
        return Err(Cut);
    }
    let server = server.insert(TcpStream::connect(upstream).await.map_err(|_| Cut)?);
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    try_join!(pump(from_client, to_server, Way::ToServer, modes), pump(from_server, to_client, Way::ToClient, modes))?;
    Ok(())
}

async fn pump(
    mut from: tokio::net::tcp::ReadHalf<'_>,
    mut to: tokio::net::tcp::WriteHalf<'_>,
    way: Way,
    modes: &watch::Sender<Mode>,
) -> Result<(), Cut> {
    let mut changes = modes.subscribe();
    let mut buffer = vec![0; 16 * 1024];
    let (mut lost, mut ended) = (false, false);
    loop {
        let mode = *changes.borrow_and_update();
        let swallows = mode.swallows(way);
        if lost && !swallows {
            return Err(Cut);
        }
        let read = select! {
            biased;
            changed = changes.changed() => { changed.map_err(|_| Cut)?; continue }
            read = from.read(&mut buffer), if !ended => read,
        };
        if swallows {
            (lost, ended) = (true, matches!(read, Ok(0) | Err(_)));
            continue;
        }
        let read = read.map_err(|_| Cut)?;
        if read == 0 {
            return to.shutdown().await.map_err(|_| Cut);
        }
        if let Mode::Delay(time) = mode {
            sleep(time).await;
        }
        let (passes, cut) = if way == Way::ToServer { spend(modes, read) } else { (read, false) };
        to.write_all(&buffer[..passes]).await.map_err(|_| Cut)?;
        if cut {
            return Err(Cut);
        }
    }
}

/// Takes bytes from what `CutAfter` leaves: how many pass, and whether the connection is cut then.
fn spend(modes: &watch::Sender<Mode>, bytes: usize) -> (usize, bool) {
    let mut spent = (bytes, false);
    modes.send_if_modified(|mode| {
        let Mode::CutAfter(left) = mode else { return false };
        if bytes < *left {
            *left -= bytes;
            return false;
        }
        spent = (*left, true);
        *mode = Mode::Pass;
        true
    });
    spent
}

impl Mode {
    fn swallows(self, way: Way) -> bool {
        self == Mode::BlackHole || (self == Mode::LoseAnswers && way == Way::ToClient)
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Instant};

    use super::*;

    /// A server that sends back what it gets, in a task that ends with the test.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    let _ = write.shutdown().await;
                });
            }
        });
        addr
    }

    /// A server that hands over all that it gets on one connection, up to its end.
    async fn sink() -> (SocketAddr, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let got = tokio::spawn(async move {
            let mut got = Vec::new();
            let (mut stream, _) = listener.accept().await.unwrap();
            // a cut is an end too
            let _ = stream.read_to_end(&mut got).await;
            got
        });
        (addr, got)
    }

    async fn ask(stream: &mut TcpStream, text: &str) -> io::Result<String> {
        stream.write_all(text.as_bytes()).await?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await?;
        Ok(String::from_utf8(answer).unwrap())
    }

    /// Nothing has come, and the stream is open.
    fn is_silent(stream: &TcpStream) -> bool {
        stream.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    #[tokio::test]
    async fn passing_is_transparent_up_to_the_half_close() {
        let proxy = Proxy::start(echo().await).await;
        let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
        let big = vec![7; 1 << 20];
        let (mut read, mut write) = client.split();
        let send = async {
            write.write_all(&big).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (_, length) = tokio::join!(send, read.read_to_end(&mut got));
        assert_eq!((length.unwrap(), got == big), (1 << 20, true));
    }

    #[tokio::test]
    async fn refusing_is_for_new_connections_and_ends_on_the_same_port() {
        let proxy = Proxy::start(echo().await).await;
        let mut open = TcpStream::connect(proxy.addr()).await.unwrap();
        assert_eq!(ask(&mut open, "before").await.unwrap(), "before");
        proxy.set(Mode::Refuse).await;
        let refused = TcpStream::connect(proxy.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(ask(&mut open, "still").await.unwrap(), "still");
        proxy.set(Mode::Pass).await;
        let mut new = TcpStream::connect(proxy.addr()).await.unwrap();
        assert_eq!(ask(&mut new, "again").await.unwrap(), "again");
    }

    #[tokio::test]
    async fn a_cut_resets_what_is_open_and_nothing_else() {
        let proxy = Proxy::start(echo().await).await;
        let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
        ask(&mut client, "hello").await.unwrap();
        proxy.cut().await;
        let error = client.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let mut new = TcpStream::connect(proxy.addr()).await.unwrap();
        assert_eq!(ask(&mut new, "again").await.unwrap(), "again");
    }

    #[tokio::test]
    async fn a_black_hole_takes_everything_and_gives_nothing_then_cuts_the_stream_with_a_hole() {
        let proxy = Proxy::start(echo().await).await;
        let mut old = TcpStream::connect(proxy.addr()).await.unwrap();
        assert_eq!(ask(&mut old, "before").await.unwrap(), "before");
        proxy.set(Mode::BlackHole).await;
        let mut new = TcpStream::connect(proxy.addr()).await.unwrap();
        for stream in [&mut old, &mut new] {
            // more than all socket buffers on the way can hold: somebody takes it
            stream.write_all(&vec![0; 32 << 20]).await.unwrap();
            assert!(is_silent(stream));
        }
        proxy.set(Mode::Pass).await;
        assert!(old.read(&mut [0]).await.is_err() && new.read(&mut [0]).await.is_err());
    }

    #[tokio::test]
    async fn lost_answers_are_those_of_a_server_that_got_the_question() {
        let (upstream, got) = sink().await;
        let proxy = Proxy::start(upstream).await;
        proxy.set(Mode::LoseAnswers).await;
        let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        // the server has seen it all and has closed: of that the client learns nothing
        assert_eq!(got.await.unwrap(), b"question");
        assert!(is_silent(&client));
        proxy.cut().await;
        assert!(client.read(&mut [0]).await.is_err());
    }

    #[tokio::test]
    async fn a_delay_is_added_in_each_direction() {
        let proxy = Proxy::start(echo().await).await;
        proxy.set(Mode::Delay(Duration::from_millis(20))).await;
        let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
        let start = Instant::now();
        ask(&mut client, "slow").await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(40));
    }

    #[tokio::test]
    async fn the_cut_after_some_bytes_is_exact_and_happens_once() {
        let (upstream, got) = sink().await;
        let proxy = Proxy::start(upstream).await;
        proxy.set(Mode::CutAfter(5)).await;
        let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
        client.write_all(b"abc").await.unwrap();
        client.write_all(b"defgh").await.unwrap();
        assert!(client.read(&mut [0]).await.is_err());
        // a reset can overtake the last bytes; more than five never arrive
        assert!(b"abcde".starts_with(&got.await.unwrap()));
        let budget = watch::Sender::new(Mode::CutAfter(5));
        assert_eq!([spend(&budget, 3), spend(&budget, 3), spend(&budget, 3)], [(3, false), (2, true), (3, false)]);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_a_reset() {
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let proxy = Proxy::start(gone).await;
        let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
        assert!(client.read(&mut [0]).await.is_err());
    }
}
