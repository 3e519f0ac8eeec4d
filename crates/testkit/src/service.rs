//! Servers for tests.

use std::net::TcpStream;

use posthaste_core::OutboxName;

/// The shared PostgreSQL, if it answers.
#[must_use]
pub fn postgres() -> Option<String> {
    answers(5432).then(|| "postgres://postgres@127.0.0.1:5432/test".to_owned())
}

/// The shared RabbitMQ, if it answers.
#[must_use]
pub fn rabbitmq() -> Option<String> {
    answers(5672).then(|| "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned())
}

/// A name that no other test uses.
#[must_use]
pub fn outbox_name() -> OutboxName {
    format!("t{}", uuid::Uuid::now_v7().simple()).parse().expect("33 letters and digits")
}

fn answers(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}
