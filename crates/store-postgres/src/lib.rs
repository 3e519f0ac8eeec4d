//! posthaste-store-postgres
