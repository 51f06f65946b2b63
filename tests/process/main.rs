//! What the system and the rest of the program do to a process: limits, filters, containers, handlers, libraries that
//! come and go. None of it goes back, so each test has a process of its own.

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;
#[path = "../support/filter.rs"]
mod filter;
#[cfg(all(feature = "net", feature = "observe"))]
#[path = "../support/mixture.rs"]
mod mixture;

mod containers;
mod edges;
mod handlers;
mod hidden;
mod kernel_changes;
mod kernel_state;
mod large_thread_locals;
mod limits;
mod missing_calls;
mod quotas;
mod restricted;
mod sandbox;
mod shared_libraries;
mod signals;
mod unloading;
