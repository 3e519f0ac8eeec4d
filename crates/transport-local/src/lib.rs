//! posthaste-transport-local
