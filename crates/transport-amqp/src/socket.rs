//! The socket under a connection, with a way to cut it.
//!
//! lapin drives a connection from a thread of its own, which waits as long as the peer keeps the
//! socket open. Holding a second handle makes the end ours: when a [`Lifeline`] is dropped, the
//! socket is shut down, and thread, channels and everything that waits on them end with it.

use std::{
    io,
    net::{Shutdown, TcpStream as StdStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_compat::Compat;
use lapin::tcp::{AsyncTcpStream, RustlsConnector};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::{net::TcpStream, time::timeout};

use crate::target::Settings;

/// Cuts the socket when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Lifeline(Arc<Mutex<State>>);

/// The end of a lifeline that the socket is tied to once it is open.
#[derive(Clone, Debug)]
pub(crate) struct Knot(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unopened,
    Open(StdStream),
    Cut,
}

impl Lifeline {
    pub(crate) fn knot(&self) -> Knot {
        Knot(Arc::clone(&self.0))
    }

    /// Shuts the socket down, and keeps one that is still being opened from being used.
    pub(crate) fn cut(&self) {
        if let State::Open(socket) = std::mem::replace(&mut *lock(&self.0), State::Cut) {
            // It may be closed already, which is what is wanted.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Knot {
    fn tie(&self, socket: StdStream) -> io::Result<()> {
        let mut state = lock(&self.0);
        if matches!(*state, State::Cut) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        *state = State::Open(socket);
        Ok(())
    }
}

/// Opens the socket, TLS included, `within` that time.
pub(crate) async fn open(
    settings: &Settings,
    knot: &Knot,
    within: Duration,
) -> io::Result<AsyncTcpStream<Compat<TcpStream>>> {
    let opening = async {
        let socket = TcpStream::connect((settings.host.as_str(), settings.port)).await?;
        socket.set_nodelay(true)?;
        let socket = socket.into_std()?;
        knot.tie(socket.try_clone()?)?;
        let stream = AsyncTcpStream::Plain(Compat::new(TcpStream::from_std(socket)?));
        if settings.tls { stream.into_rustls(&tls()?, &settings.host).await } else { Ok(stream) }
    };
    timeout(within, opening).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// TLS with ring, named here so that no process-wide provider is needed or installed.
fn tls() -> io::Result<RustlsConnector> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config.into())
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing that holds this lock can leave a half-made state.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
