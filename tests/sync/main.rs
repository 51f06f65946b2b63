//! `greenthread::sync`, and what a panic or a time-out leaves behind in it.

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;

mod condvar;
mod leftovers;
mod misc;
mod mutex;
mod once;
mod poison;
mod rwlock;
mod traits;
