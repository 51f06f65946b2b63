//! Kernel threads.

use std::fs::File;
use std::{net, thread};

#[allow(
    clippy::duplicate_mod,
    reason = "this is the point: the same code, imported twice"
)]
#[path = "plain.rs"]
mod plain;
pub use plain::{read, serve};
