//! The best local alignment of two DNA sequences (Smith and Waterman), by dataflow.
//!
//! Each cell of the matrix depends on its neighbours above, on the left and between. So does each
//! block of cells, and a block is a node: its inputs are the borders of the blocks above it and on
//! its left. The program names neither the order of the blocks nor those that run in parallel; both
//! follow from the inputs of each block, and a wave of blocks crosses the matrix.
//!
//! ```sh
//! cargo run --release --example smith_waterman -- 20000 500
//! ```

use std::sync::Arc;
use std::time::Instant;

use greenthread::dataflow::{Value, call, value};

const MATCH: i32 = 2;
const MISMATCH: i32 = -1;
const GAP: i32 = -1;

/// The part of a block that other blocks need.
struct Block {
    /// The last row, and before it the last cell of the column on the left.
    bottom: Vec<i32>,
    /// The last column.
    right: Vec<i32>,
    best: i32,
}

/// The borders at the edge of the matrix: all zero.
fn edge(height: usize, width: usize) -> Block {
    Block {
        bottom: vec![0; width + 1],
        right: vec![0; height],
        best: 0,
    }
}

/// Aligns `a`, from top to bottom, with `b`, from left to right.
fn align(a: &[u8], b: &[u8], above: &Block, left: &Block) -> Block {
    let mut row = above.bottom.clone();
    let mut right = Vec::with_capacity(a.len());
    let mut best = above.best.max(left.best);
    for (x, &first) in a.iter().zip(&left.right) {
        let mut corner = std::mem::replace(&mut row[0], first);
        let mut before = first;
        for (y, cell) in b.iter().zip(&mut row[1..]) {
            let diagonal = corner + if x == y { MATCH } else { MISMATCH };
            corner = *cell;
            before = diagonal.max(corner + GAP).max(before + GAP).max(0);
            *cell = before;
            best = best.max(before);
        }
        right.push(before);
    }
    Block {
        bottom: row,
        right,
        best,
    }
}

/// The same in blocks. All calls return at once, and the value of the last one is waited for.
fn align_in_blocks(a: &Arc<Vec<u8>>, b: &Arc<Vec<u8>>, size: usize) -> i32 {
    let ranges = |length| {
        (0..length)
            .step_by(size)
            .map(move |i| i..length.min(i + size))
    };
    let mut above: Vec<Value<Block>> = ranges(b.len())
        .map(|columns| value(edge(0, columns.len())))
        .collect();
    for rows in ranges(a.len()) {
        let mut left = value(edge(rows.len(), 0));
        for (columns, above) in ranges(b.len()).zip(&mut above) {
            let (a, b, rows) = (a.clone(), b.clone(), rows.clone());
            left = call((&*above, left), move |(above, left)| {
                align(&a[rows], &b[columns], above, left)
            });
            *above = left.clone();
        }
    }
    // A block knows the best of all that it depends on, and the last one depends on all.
    let last = above.last().expect("a matrix has a block");
    last.get().expect("no block panics").best
}

/// Random bases, the same each time.
fn dna(length: usize, mut seed: u64) -> Arc<Vec<u8>> {
    let base = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b"ACGT"[(seed >> 62) as usize]
    };
    Arc::new((0..length).map(base).collect())
}

fn main() {
    let argument = |position, default| match std::env::args().nth(position) {
        None => default,
        Some(given) => given.parse().ok().filter(|&n| n > 0).unwrap_or_else(|| {
            eprintln!("smith_waterman [LENGTH [SIZE OF A BLOCK]]: '{given}' is neither");
            std::process::exit(2)
        }),
    };
    let (length, size): (usize, usize) = (argument(1, 8_000), argument(2, 400));
    let (a, b) = (dna(length, 1), dna(length, 2));

    let start = Instant::now();
    let expected = align(&a, &b, &edge(0, length), &edge(length, 0)).best;
    let sequential = start.elapsed();

    let start = Instant::now();
    let found = align_in_blocks(&a, &b, size);
    let parallel = start.elapsed();

    assert_eq!(found, expected);
    println!("the best alignment of {length} with {length} bases scores {found}");
    println!("at once {sequential:.1?}, in blocks of {size} {parallel:.1?}");
}
