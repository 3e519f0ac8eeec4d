//! posthaste-relay
