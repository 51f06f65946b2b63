//! What stands in for `batch` without the feature `io-uring`: nothing is sent together.

use std::io;

pub(crate) const SIZE: usize = 1;

pub(crate) struct Batch;

pub(crate) struct Entry;

impl Batch {
    pub(crate) fn new() -> io::Result<Batch> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn is_usable(&self) -> bool {
        false
    }

    pub(crate) unsafe fn push(&mut self, _entry: &Entry, _name: u64) {}

    pub(crate) fn perform(&mut self, _done: impl FnMut(u64, i32)) {}
}
