//! Random reads from many threads: `read RUNTIME FILE MODE SECONDS`. Prints how many blocks were
//! read, in how many seconds, with how many seconds of CPU time.
//!
//! A block holds its number in its first and its last bytes, and both are checked.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

use crate::{on_greenthread, on_std, on_tokio};

/// How many threads, or tasks, read.
pub const THREADS: u64 = 128;

/// How much they read at a time.
pub const BLOCK: usize = 4096;

const DIRECT: &str = "direct";
const CACHED: &str = "cached";

/// A buffer aligned as O_DIRECT wants it.
#[repr(align(4096))]
pub struct Block([u8; BLOCK]);

/// A block's place in the file.
#[derive(Clone, Copy)]
pub struct Position(u64);

impl Block {
    pub const EMPTY: Block = Block([0; BLOCK]);

    fn numbered(position: Position) -> Block {
        let mut block = Block::EMPTY;
        block.0[..8].copy_from_slice(&position.0.to_le_bytes());
        block.0[BLOCK - 8..].copy_from_slice(&position.0.to_le_bytes());
        block
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The read was whole and brought the block from there.
    pub fn check(&self, read: io::Result<usize>, position: Position) {
        let number = position.0.to_le_bytes();
        assert_eq!(read.expect("a read failed"), BLOCK, "a short read");
        assert_eq!(self.0[..8], number, "another block's start");
        assert_eq!(self.0[BLOCK - 8..], number, "another block's end");
    }
}

impl Position {
    pub fn start(self) -> u64 {
        self.0 * BLOCK as u64
    }
}

/// Which blocks are read, and until when.
pub struct Reads {
    blocks: u64,
    end: Instant,
}

impl Reads {
    fn new(file: &File, seconds: f64) -> io::Result<Reads> {
        Ok(Reads {
            blocks: file.metadata()?.len() / BLOCK as u64,
            end: Instant::now() + Duration::from_secs_f64(seconds),
        })
    }

    /// The blocks that a thread reads: the same each time, up to when time is up.
    pub fn positions(&self, thread: u64) -> impl Iterator<Item = Position> {
        let mut state = (thread + 1) * 0x9e37_79b9_7f4a_7c15;
        std::iter::from_fn(move || {
            // Xorshift64.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (Instant::now() < self.end).then_some(Position(state % self.blocks))
        })
    }
}

/// Makes a file of so many blocks.
pub fn make(path: &Path, blocks: u64) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for block in 0..blocks {
        file.write_all(Block::numbered(Position(block)).bytes())?;
    }
    file.into_inner()?.sync_all()
}

/// The mode's name on the command line.
pub fn mode(direct: bool) -> &'static str {
    if direct { DIRECT } else { CACHED }
}

/// One measurement in this process.
pub fn run(args: &[&str]) -> Option<()> {
    let [runtime, path, mode, seconds] = *args else {
        return None;
    };
    let flags = match mode {
        DIRECT => OFlags::DIRECT,
        CACHED => OFlags::empty(),
        _ => return None,
    };
    let read = match runtime {
        "greenthread" => on_greenthread::read,
        "std" => on_std::read,
        "tokio" => on_tokio::read,
        _ => return None,
    };
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .expect("the file cannot be opened");
    let reads = Reads::new(&file, seconds.parse().ok()?).expect("no metadata");
    let start = Instant::now();
    let done = read(file, Arc::new(reads));
    let elapsed = start.elapsed().as_secs_f64();
    println!("{done} {elapsed} {}", cpu_seconds());
    Some(())
}

/// The CPU time this process has used.
fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
