//! The broker fails.
