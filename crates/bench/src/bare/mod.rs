//! The bare loops: what each job costs at least, with no care for failures, order or restarts.

pub(crate) mod drain;
pub(crate) mod enqueue;
pub(crate) mod listen;
pub(crate) mod publish;
pub(crate) mod sqlite;
