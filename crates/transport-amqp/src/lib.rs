//! posthaste-transport-amqp
