//! posthaste-testkit
