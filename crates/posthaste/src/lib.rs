//! posthaste
