//! RabbitMQ, and other brokers that speak AMQP 0-9-1 with publisher confirms.
//!
//! A message counts as published once the broker has confirmed it and has not returned it. Whatever
//! else happens is answered with a [`Failure`](posthaste_core::Failure) that says whether the message may
//! have been taken. Nothing is retried here, and nothing hangs for longer than the caller's deadline.
//!
//! TLS (`amqps:`) uses rustls with ring and the roots of Mozilla; no process-wide provider is needed
//! or installed. lapin logs errors, and every message that comes back, with its body, at level
//! `warn`: applications may want to silence the log target `lapin`.

mod blockage;
mod channels;
mod classify;
mod connection;
mod declare;
mod properties;
mod publish;
mod socket;
mod target;
mod transport;
mod uri;

pub use target::{open, parse};
pub use transport::AmqpTransport;
