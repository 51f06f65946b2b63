//! What can be seen of a program: dumps, metrics, traces, warnings, deadlocks, the socket, gdb. Most of it is of the whole
//! process, so each test has one of its own.

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;
#[path = "../support/dumps.rs"]
mod dumps;
#[path = "../support/json_schema.rs"]
mod json_schema;
#[path = "../support/rows.rs"]
mod rows;

mod deadlocks;
mod dump;
mod facade;
mod gdb;
mod load;
mod metrics;
mod socket;
mod trace;
mod tracing;
mod waits;
mod warnings;
