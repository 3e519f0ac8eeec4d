//! Servers that the tests may break: one of each kind for all tests of this binary, used by one
//! test at a time.

use std::{
    net::SocketAddr,
    ops::{Deref, DerefMut},
};

use lapin::uri::AMQPUri;
use posthaste_testkit::{
    proxy::Proxy,
    server::{Cluster, Node, Recipe, Server},
    service,
};
use tokio::sync::{Mutex, MutexGuard};

static POSTGRES: Mutex<Option<Server<Cluster>>> = Mutex::const_new(None);
static RABBITMQ: Mutex<Option<Server<Node>>> = Mutex::const_new(None);

/// The server, running, until this is dropped.
pub struct Own<R: Recipe>(MutexGuard<'static, Option<Server<R>>>);

pub async fn postgres() -> Option<Own<Cluster>> {
    own(&POSTGRES).await
}

pub async fn rabbitmq() -> Option<Own<Node>> {
    own(&RABBITMQ).await
}

async fn own<R: Recipe>(server: &'static Mutex<Option<Server<R>>>) -> Option<Own<R>> {
    let mut server = server.lock().await;
    if server.is_none() {
        *server = Some(Server::start().await?);
    }
    Some(Own(server))
}

impl<R: Recipe> Deref for Own<R> {
    type Target = Server<R>;

    fn deref(&self) -> &Server<R> {
        self.0.as_ref().expect("there from the start")
    }
}

impl<R: Recipe> DerefMut for Own<R> {
    fn deref_mut(&mut self) -> &mut Server<R> {
        self.0.as_mut().expect("there from the start")
    }
}

impl<R: Recipe> Drop for Own<R> {
    fn drop(&mut self) {
        // A test that failed may have left it in any state: the next one gets a new one.
        if std::thread::panicking() {
            *self.0 = None;
        }
    }
}

/// A proxy in front of the shared broker, with the URL of the broker through it.
pub async fn proxied_rabbitmq() -> Option<(Proxy, String)> {
    let url = service::rabbitmq()?;
    let authority = url.parse::<AMQPUri>().unwrap().authority;
    let upstream: Vec<SocketAddr> =
        tokio::net::lookup_host((authority.host.as_str(), authority.port)).await.unwrap().collect();
    let proxy = Proxy::start(upstream[0]).await;
    let direct = format!("{}:{}", authority.host, authority.port);
    let through = url.replace(&direct, &proxy.addr().to_string());
    assert_ne!(url, through, "the URL names its port");
    Some((proxy, through))
}
