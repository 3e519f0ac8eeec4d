//! The servers that tests may use.

use std::{net::TcpStream, time::Duration};

use posthaste_core::OutboxName;

/// The URL of the shared PostgreSQL, if it is up.
#[must_use]
pub fn postgres() -> Option<String> {
    answers(5432).then(|| "postgres://postgres@127.0.0.1:5432/test".to_owned())
}

/// The URL of the shared RabbitMQ, if it is up.
#[must_use]
pub fn rabbitmq() -> Option<String> {
    answers(5672).then(|| "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned())
}

/// A random name.
///
/// # Panics
/// Never: the name is made of letters and digits.
#[must_use]
pub fn outbox_name() -> OutboxName {
    format!("t{}", uuid::Uuid::now_v7().simple()).parse().expect("letters and digits")
}

fn answers(port: u16) -> bool {
    TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_secs(1)).is_ok()
}
