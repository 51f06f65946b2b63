//! Channels, and select over them.

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;

mod channel;
mod leftovers;
mod select;
mod select_macro;
