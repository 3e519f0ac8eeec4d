//! Sends messages as requests and waits for the answers.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use posthaste_core::{
    Failure, Message,
    failure::Class,
    port::{Transport, TransportCapabilities},
};
use reqwest::{Client, Request, Response};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use crate::{classify, client, endpoint::Endpoint, request, resolve::Resolver, settings::Settings};

/// Requests of one publication at once.
const MAX_BATCH: usize = 32;
/// Publications at once.
const CONCURRENCY: usize = 4;
/// Most bytes of an answer's body that are read. What they say changes nothing but a failure's text.
const MAX_ANSWER: usize = 64 << 10;
/// The longest wait for the rest of an answer whose status is known.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Publishes to one webhook.
///
/// Each message is a request of its own. A publication that is dropped closes the connections of
/// its requests; any of them may have been taken.
pub struct HttpTransport {
    endpoint: Endpoint,
    settings: Settings,
    resolver: Resolver,
    client: Mutex<Option<Client>>,
    /// Grows with each [`Transport::close`].
    closings: watch::Sender<u64>,
}

impl HttpTransport {
    pub(crate) fn new(endpoint: Endpoint, mut settings: Settings) -> HttpTransport {
        settings.secrets.extend(endpoint.password().map(str::to_owned));
        let resolver = Resolver::new(Arc::clone(&settings.guard));
        HttpTransport { endpoint, settings, resolver, client: Mutex::default(), closings: watch::Sender::new(0) }
    }

    async fn send(&self, message: Message, until: Instant, mut closings: watch::Receiver<u64>) -> Result<(), Failure> {
        let client = self.client()?;
        let request = self.request(&client, &message)?;
        let exchange = self.exchange(&client, request, until);
        tokio::select! {
            biased;
            result = exchange => result.map_err(|failure| self.scrubbed(failure)),
            // The sender lives as long as `self`: this can only mean that it changed.
            _ = closings.changed() => Err(Failure::lost("the target was closed before an answer came")),
        }
    }

    fn request(&self, client: &Client, message: &Message) -> Result<Request, Failure> {
        let url = self.endpoint.fill(&message.row).map_err(|reason| Failure::new(Class::Permanent, reason))?;
        let (headers, body) = request::make(message, &self.settings, unix_seconds())?;
        client.post(url).headers(headers).body(body).build().map_err(classify::error)
    }

    async fn exchange(&self, client: &Client, request: Request, until: Instant) -> Result<(), Failure> {
        // The resolver is never asked about literals.
        if let Some(address) = self.endpoint.literal() {
            self.settings
                .guard
                .check(address)
                .map_err(|refused| Failure::new(Class::Transient, refused.to_string()))?;
        }
        let started = Instant::now();
        let Ok(response) = timeout_at(until, client.execute(request)).await else {
            return Err(Failure::no_answer(format!("no answer within {:?}", started.elapsed())));
        };
        let mut response = response.map_err(classify::error)?;
        let rest = until.min(Instant::now() + ANSWER_TIME);
        let mut body = Vec::new();
        // A status is an answer, whatever becomes of its body.
        let _ = timeout_at(rest, read(&mut response, &mut body)).await;
        classify::answer(response.status(), response.headers(), &body, unix_seconds())
    }

    /// The client, made at first use: reading the system's certificates is I/O.
    fn client(&self) -> Result<Client, Failure> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let made = client::build(&self.settings, self.resolver.clone())
            .map_err(|reason| Failure::new(Class::Transient, reason))?;
        Ok(client.insert(made).clone())
    }

    /// A target may repeat in its answer what it was sent.
    fn scrubbed(&self, failure: Failure) -> Failure {
        let secrets = self.settings.secrets.iter().filter(|secret| !secret.is_empty());
        let detail = secrets.fold(failure.detail, |detail, secret| detail.replace(secret, "***"));
        Failure { detail, ..failure }
    }

    async fn connect(&self) -> Result<TcpStream, Failure> {
        let unreachable = |reason: String| Failure::new(Class::Transient, format!("no connection: {reason}"));
        let (host, port) = self.endpoint.host_and_port();
        let addresses = match self.endpoint.literal() {
            Some(address) => {
                self.settings.guard.check(address).map_err(|refused| unreachable(refused.to_string()))?;
                vec![(address, port).into()]
            }
            None => self.resolver.lookup(host, port).await.map_err(|error| unreachable(classify::chain(&error)))?,
        };
        TcpStream::connect(addresses.as_slice()).await.map_err(|error| unreachable(error.to_string()))
    }
}

#[async_trait]
impl Transport for HttpTransport {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { max_batch: MAX_BATCH, concurrency: CONCURRENCY, max_body: None }
    }

    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>> {
        let wait = self.settings.timeout.map_or(deadline, |timeout| timeout.min(deadline));
        let until = Instant::now() + wait;
        let closings = self.closings.subscribe();
        let answers = stream::iter(batch).map(|message| self.send(message, until, closings.clone()));
        answers.buffered(MAX_BATCH).collect().await
    }

    /// Connects and sends nothing: a webhook has no request without effects.
    async fn probe(&self, deadline: Duration) -> Result<(), Failure> {
        let wait = deadline.min(self.settings.connect_timeout);
        let connected = timeout(wait, self.connect()).await;
        let connected =
            connected.unwrap_or_else(|_| Err(Failure::new(Class::Transient, format!("no connection within {wait:?}"))));
        connected.map(drop)
    }

    async fn close(&self) {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.closings.send_modify(|closings| *closings += 1);
    }
}

async fn read(response: &mut Response, body: &mut Vec<u8>) {
    while body.len() < MAX_ANSWER {
        let Ok(Some(chunk)) = response.chunk().await else { return };
        body.extend_from_slice(&chunk);
    }
}

/// The wall clock, which the signature's receiver compares with its own. Decides nothing here.
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
