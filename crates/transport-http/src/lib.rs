//! posthaste-transport-http
