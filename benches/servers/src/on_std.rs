//! Kernel threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::{net, thread};

#[allow(
    clippy::duplicate_mod,
    reason = "this is the point: the same code, imported twice"
)]
#[path = "plain.rs"]
mod plain;
pub use plain::{read, serve};

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}
