//! Stands in for the library's `driver`: its protocol files.

#[path = "../../../src/driver/uring/inbox.rs"]
pub(crate) mod inbox;
#[path = "../../../src/driver/readiness.rs"]
pub(crate) mod readiness;
