//! One connection to the broker: making it, knowing whether it is blocked, ending it.
//!
//! A connection that is given up is cut at its socket, so that nothing can hang on it for longer. lapin's
//! own recovery stays off: the next publication makes a new connection instead.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use lapin::{
    Channel, ConnectionProperties,
    options::ConfirmSelectOptions,
    runtime::default_runtime,
    uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo},
};
use posthaste_core::{Class, Failure};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    blockage::Blockage,
    socket::{self, Lifeline},
    target::Settings,
};

/// How long a farewell to the broker may take.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) struct Connection {
    inner: lapin::Connection,
    lifeline: Lifeline,
    blockage: Blockage,
    given_up: AtomicBool,
    heard: AtomicU64,
    idle: Mutex<Vec<Channel>>,
    declared: Mutex<HashSet<String>>,
}

/// Whether new work may start on a connection.
pub(crate) enum State {
    /// It may.
    Usable,
    /// The broker takes nothing from it; the answer for what can't be sent.
    Blocked(Failure),
    /// It is lost or given up.
    Gone,
}

impl Connection {
    /// Connects. The socket is open `within` that time or not at all; the handshake after it ends when
    /// the future is dropped.
    pub(crate) async fn open(settings: &Arc<Settings>, within: Duration) -> Result<Connection, lapin::Error> {
        let lifeline = Lifeline::default();
        let knot = lifeline.knot();
        let dialled = Arc::clone(settings);
        let dial = async move |_, _| Ok(socket::open(&dialled, &knot, within).await?);
        let properties = ConnectionProperties::default().with_connection_name(settings.name.as_str().into());
        let inner = lapin::Connection::connector(uri(settings), default_runtime()?, dial, properties).await?;
        let blockage = Blockage::follow(inner.events_listener());
        Ok(Connection {
            inner,
            lifeline,
            blockage,
            given_up: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            idle: Mutex::default(),
            declared: Mutex::default(),
        })
    }

    /// Whether new work may start on it.
    pub(crate) fn state(&self) -> State {
        if !self.inner.status().connected() {
            return State::Gone;
        }
        match (self.blockage.failure(), self.given_up.load(Ordering::Acquire)) {
            (Some(failure), _) => State::Blocked(failure),
            (None, true) => State::Gone,
            (None, false) => State::Usable,
        }
    }

    /// What the broker answers. Ends early with a failure while the connection is blocked, for nothing is
    /// written then; without an answer by `deadline` the connection is given up.
    pub(crate) async fn ask<T>(
        &self,
        deadline: Instant,
        asking: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<Result<T, lapin::Error>, Failure> {
        tokio::select! {
            answer = timeout_at(deadline, asking) => answer.map_err(|_| {
                self.give_up();
                Failure::new(Class::Transient, "the broker does not answer")
            }),
            failure = self.blockage.begins() => Err(failure),
        }
    }

    /// Never uses it again, and cuts it. While it is blocked it is kept as the witness of that, since the
    /// broker would tell a new connection only after another publication; it is dropped once it is not.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        if !self.blockage.is_on() {
            self.lifeline.cut();
        }
    }

    /// Confirmations so far: a sign of life.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub(crate) fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Largest frame, as agreed with the broker.
    pub(crate) fn frame_max(&self) -> usize {
        self.inner.configuration().frame_max() as usize
    }

    /// An idle channel, or a new one with confirmations on.
    pub(crate) async fn channel(&self) -> Result<Channel, lapin::Error> {
        while let Some(channel) = self.idle().pop() {
            if channel.status().connected() {
                return Ok(channel);
            }
        }
        let channel = self.inner.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Takes back a channel on which nothing is in flight.
    pub(crate) fn give_back(&self, channel: Channel) {
        self.idle().push(channel);
    }

    /// Asks the broker for a sign of life: a channel is opened and closed.
    pub(crate) async fn greet(&self) -> Result<(), lapin::Error> {
        self.inner.create_channel().await.map(drop)
    }

    /// A channel of its own, without confirmations: one that a question closes costs no publication.
    pub(crate) async fn channel_for_a_question(&self) -> Result<Channel, lapin::Error> {
        self.inner.create_channel().await
    }

    pub(crate) fn is_declared(&self, exchange: &str) -> bool {
        self.declared().contains(exchange)
    }

    pub(crate) fn set_declared(&self, exchange: &str, declared: bool) {
        if declared {
            self.declared().insert(exchange.to_owned());
        } else {
            self.declared().remove(exchange);
        }
    }

    /// Says farewell, for at most [`FAREWELL`], and cuts the socket.
    pub(crate) async fn close(&self) {
        self.given_up.store(true, Ordering::Release);
        // A broker that does not answer, or a connection that is gone, is cut all the same.
        let _ = timeout(FAREWELL, self.inner.close(200, "OK".into())).await;
        self.lifeline.cut();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn declared(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn uri(settings: &Settings) -> AMQPUri {
    AMQPUri {
        scheme: if settings.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo { username: settings.user.clone(), password: settings.password.expose().to_owned() },
            host: settings.host.clone(),
            port: settings.port,
        },
        vhost: settings.vhost.clone(),
        query: AMQPQueryString { heartbeat: Some(settings.heartbeat), ..AMQPQueryString::default() },
    }
}
