//! Stands in for the library's `sync`: its protocol files.

#[path = "../../../src/sync/once.rs"]
pub(crate) mod once;
#[path = "../../../src/sync/raw_mutex.rs"]
pub(crate) mod raw_mutex;
