//! posthaste-store-sqlite
