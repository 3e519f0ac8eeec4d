//! Sessions: made when first needed, dropped when they break or keep silent, made again by the
//! next call. Nothing here tries twice.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use posthaste_core::{Error, ErrorKind, OutboxName, Result, options::ConfigError};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Notification, Row, Statement,
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{Settings, error::explain, tls, url};

/// A parameter and its type.
pub(crate) type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

/// What a session is for, and so how the planner is to behave on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Read,
    Settle,
    Look,
    Hold,
    Listen,
}

impl Role {
    /// A plan must never flip with the statistics: the right index is known.
    fn setup(self) -> &'static str {
        match self {
            Role::Read => {
                "SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan; \
                 SET jit = off; SET max_parallel_workers_per_gather = 0; SET work_mem = '16MB';"
            }
            Role::Settle => "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off;",
            Role::Look => "",
            // The lock of a machine that vanished must not outlive it for hours.
            Role::Hold | Role::Listen => {
                "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;"
            }
        }
    }
}

/// A server and how to reach it.
pub(crate) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    label: String,
    settings: Settings,
}

impl Server {
    pub(crate) fn new(url: &str, outbox: &OutboxName, settings: Settings) -> Result<Server, ConfigError> {
        let mut parsed = url::parse(url)?;
        let label = parsed.label;
        let tls = tls::connector(parsed.verify, parsed.root_certificates.as_deref())
            .map_err(|detail| ConfigError::Url { url: label.clone(), detail })?;
        parsed.config.connect_timeout(settings.connect_timeout);
        if parsed.config.get_application_name().is_none() {
            parsed.config.application_name(format!("posthaste {outbox}"));
        }
        Ok(Server { config: parsed.config, tls, label, settings })
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    pub(crate) async fn connect(&self, role: Role) -> Result<Session> {
        self.connect_listening(role, |_| ()).await
    }

    /// Connects a session that hands over its notifications.
    pub(crate) async fn connect_listening(
        &self,
        role: Role,
        on_notification: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Session> {
        let doing = || format!("connecting to {}", self.label);
        let connecting = timeout(self.settings.connect_timeout, self.config.connect(self.tls.clone()));
        let (client, connection) = match connecting.await {
            Ok(connected) => connected.map_err(|error| explain(doing(), error))?,
            Err(_) => return Err(silent(doing(), self.settings.connect_timeout)),
        };
        let session = Session::new(client, connection, self.settings.statement_timeout, on_notification);
        let millis = self.settings.statement_timeout.as_millis().max(1);
        let setup = format!(
            "SET statement_timeout = {millis}; SET default_transaction_isolation = 'read committed'; {} \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
            role.setup()
        );
        session.within(doing(), session.client.batch_execute(&setup)).await?;
        Ok(session)
    }
}

/// A connection with the task that drives it; both end when it is dropped.
pub(crate) struct Session {
    pub(crate) client: Client,
    driver: JoinHandle<()>,
    end: watch::Receiver<Option<String>>,
    given_up: AtomicBool,
    prepared: Mutex<HashMap<String, Statement>>,
    deadline: Duration,
}

impl Session {
    fn new<S, T>(
        client: Client,
        connection: Connection<S, T>,
        deadline: Duration,
        on_notification: impl FnMut(Notification) + Send + 'static,
    ) -> Session
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (ended, end) = watch::channel(None);
        let driver = tokio::spawn(async move {
            let reason = drive(connection, on_notification).await;
            ended.send_replace(Some(reason));
        });
        Session { client, driver, end, given_up: AtomicBool::new(false), prepared: Mutex::default(), deadline }
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.driver.is_finished() && !self.given_up.load(Relaxed)
    }

    /// Waits for `work` on this session, no longer than the deadline: a session that does not
    /// answer is given up.
    pub(crate) async fn within<T>(
        &self,
        doing: impl Into<String>,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        // The server's own limit comes first, so that it stops working on what nobody waits for.
        let deadline = self.deadline + Duration::from_millis(500);
        self.within_deadline(deadline, doing, work).await
    }

    pub(crate) async fn within_deadline<T>(
        &self,
        deadline: Duration,
        doing: impl Into<String>,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match timeout(deadline, work).await {
            Ok(answer) => answer.map_err(|error| explain(doing, error)),
            Err(_) => {
                self.give_up();
                Err(silent(doing, deadline))
            }
        }
    }

    /// The answer to one statement, which is parsed, planned and run in a single round trip.
    pub(crate) async fn ask(&self, doing: impl Into<String>, sql: &str, parameters: &[Typed<'_>]) -> Result<Vec<Row>> {
        self.within(doing, self.client.query_typed(sql, parameters)).await
    }

    /// The same, no longer than `deadline`.
    pub(crate) async fn ask_within(
        &self,
        deadline: Duration,
        doing: impl Into<String>,
        sql: &str,
        parameters: &[Typed<'_>],
    ) -> Result<Vec<Row>> {
        self.within_deadline(deadline, doing, self.client.query_typed(sql, parameters)).await
    }

    /// Runs `work` with the client for itself, as a transaction needs it.
    pub(crate) async fn exclusively<T>(
        &mut self,
        doing: impl Into<String>,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let deadline = self.deadline + Duration::from_millis(500);
        match timeout(deadline, work(&mut self.client)).await {
            Ok(answer) => answer.map_err(|error| explain(doing, error)),
            Err(_) => {
                self.give_up();
                Err(silent(doing, deadline))
            }
        }
    }

    /// The statement `sql`, prepared once a session.
    pub(crate) async fn prepared(&self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        let cached = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(statement) = cached {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Ends when the connection has ended; says why.
    pub(crate) async fn ended(&self) -> String {
        let mut end = self.end.clone();
        match end.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "the connection was given up".to_owned(),
        }
    }

    /// Stops using the session; the connection is closed.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Relaxed);
        self.driver.abort();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn drive<S, T>(mut connection: Connection<S, T>, mut on_notification: impl FnMut(Notification)) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => on_notification(notification),
            Some(Ok(AsyncMessage::Notice(notice))) => tracing::debug!(%notice, "the server says"),
            Some(Ok(_)) => {}
            Some(Err(error)) => return explain("the connection is lost", error).to_string(),
            None => return "the connection is closed".to_owned(),
        }
    }
}

fn silent(doing: impl Into<String>, deadline: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, doing).because(format!("no answer within {deadline:?}"))
}

/// Where a session of one role is kept between calls.
pub(crate) struct Slot {
    role: Role,
    session: Mutex<Option<Arc<Session>>>,
}

impl Slot {
    pub(crate) fn new(role: Role) -> Slot {
        Slot { role, session: Mutex::new(None) }
    }

    /// The session, connected if there is none that works.
    pub(crate) async fn session(&self, server: &Server) -> Result<Arc<Session>> {
        let kept = self.kept().clone().filter(|session| session.is_usable());
        if let Some(session) = kept {
            return Ok(session);
        }
        let session = Arc::new(server.connect(self.role).await?);
        *self.kept() = Some(session.clone());
        Ok(session)
    }

    /// Takes the session out for the caller alone. It is not kept unless it is put back, so an
    /// unfinished transaction ends with its connection.
    pub(crate) async fn take(&self, server: &Server) -> Result<Session> {
        let kept = self.kept().take().and_then(Arc::into_inner).filter(Session::is_usable);
        if let Some(session) = kept { Ok(session) } else { server.connect(self.role).await }
    }

    pub(crate) fn put_back(&self, session: Session) {
        *self.kept() = Some(Arc::new(session));
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
