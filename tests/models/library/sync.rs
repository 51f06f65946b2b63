//! Stands in for the library's `sync`: its protocol files.

#[path = "../../../src/sync/condvar.rs"]
pub(crate) mod condvar;
#[path = "../../../src/sync/mutex.rs"]
pub(crate) mod mutex;
#[path = "../../../src/sync/once.rs"]
pub(crate) mod once;
#[path = "../../../src/sync/poison.rs"]
pub(crate) mod poison;
#[path = "../../../src/sync/raw_mutex.rs"]
pub(crate) mod raw_mutex;
#[path = "../../../src/sync/raw_rwlock.rs"]
pub(crate) mod raw_rwlock;
