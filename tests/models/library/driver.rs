//! Stands in for the library's `driver`: its protocol files.

#[path = "../../../src/engine/driver/uring/inbox.rs"]
pub(crate) mod inbox;
#[path = "../../../src/engine/driver/readiness.rs"]
pub(crate) mod readiness;
