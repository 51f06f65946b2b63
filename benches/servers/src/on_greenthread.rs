//! Green threads.

use greenthread as thread;
use greenthread::fs::File;
use greenthread::net;

#[allow(
    clippy::duplicate_mod,
    reason = "this is the point: the same code, imported twice"
)]
#[path = "plain.rs"]
mod plain;
pub use plain::{read, serve};
