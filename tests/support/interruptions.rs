//! For tests of interrupted calls: a runtime with short time slices, and threads that keep its processors busy.

#![allow(dead_code)] // every test file uses its own part of this

use greenthread::runtime::Runtime;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

/// Whether the runtime can mend a call of libc's: glibc 2.41 and newer leave nothing on aarch64 from which the
/// first argument could be told, unless the call comes by a function of the feature `unmodified`.
pub fn is_mended() -> bool {
    // SAFETY: libc's own text.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let mut numbers = version
        .to_str()
        .unwrap()
        .split('.')
        .map(|n| n.parse().unwrap());
    let version: [u32; 2] = [numbers.next().unwrap(), numbers.next().unwrap()];
    let keeps = cfg!(any(target_arch = "x86_64", feature = "unmodified"));
    let is_mended = keeps || version < [2, 41];
    if !is_mended {
        println!("skipped: this libc's interrupted calls cannot be mended on aarch64");
    }
    is_mended
}

pub fn runtime() -> Runtime {
    Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_micros(100))
        .build()
        .expect("a runtime")
}

/// Two threads that compute until they are dropped: somebody always waits.
pub struct Hogs<'a>(&'a Runtime, Arc<AtomicBool>);

impl<'a> Hogs<'a> {
    pub fn new(runtime: &'a Runtime) -> Hogs<'a> {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 {
            let stop = stop.clone();
            runtime.spawn(move || while !stop.load(Relaxed) {});
        }
        Hogs(runtime, stop)
    }
}

impl Drop for Hogs<'_> {
    fn drop(&mut self) {
        self.1.store(true, Relaxed);
        println!("{} preemptions", self.0.metrics().preemptions);
    }
}

pub fn compute(rounds: usize) {
    // A round takes about so many times as long if it is not optimized.
    let times = if cfg!(debug_assertions) { 16 } else { 1 };
    for i in 0..rounds / times {
        black_box(i);
    }
}

pub fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
