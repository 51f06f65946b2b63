//! Tests that measure memory or machine code: one after the other, with nothing beside them.

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;
#[path = "../support/mod.rs"]
mod support;

mod disassembly;
mod memory;
#[cfg(feature = "net")]
mod roads;
mod scale;
