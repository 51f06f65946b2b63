//! Stands in for the library's `driver`: its protocol file.

#[path = "../../../src/driver/uring/inbox.rs"]
pub(crate) mod inbox;
