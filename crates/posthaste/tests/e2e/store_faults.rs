//! The database fails.
