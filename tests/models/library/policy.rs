//! Stands in for the library's `policy`: its protocol file.

#[path = "../../../src/engine/policy/local_queue.rs"]
pub(crate) mod local_queue;
