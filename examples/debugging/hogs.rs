//! Two threads that compute, for a profiler that is to tell them apart (`docs/gdb.md`).

use std::time::{Duration, Instant};
#[inline(never)]
fn parse(n: u64) -> u64 {
    (0..n).fold(1, |a, b| std::hint::black_box(a.wrapping_mul(3) ^ b))
}
#[inline(never)]
fn render(n: u64) -> u64 {
    (0..n).fold(1, |a, b| std::hint::black_box(a ^ (b << 3)))
}
pub(crate) fn main() {
    let end = Instant::now() + Duration::from_secs(5);
    let threads: Vec<_> = ["parser", "renderer", "both"]
        .into_iter()
        .map(|name| {
            greenthread::Builder::new()
                .name(name.into())
                .spawn(move || {
                    let mut sum = 0_u64;
                    while Instant::now() < end {
                        if name != "renderer" {
                            sum ^= parse(1000);
                        }
                        if name != "parser" {
                            sum ^= render(1000);
                        }
                        greenthread::yield_now();
                    }
                    sum
                })
                .unwrap()
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
}
