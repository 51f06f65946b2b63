//! A thread that takes a lock which it holds already.

use greenthread::sync::Mutex;
use greenthread::thread;
use std::sync::Arc;

pub(crate) fn main() {
    let total = Arc::new(Mutex::new(0));
    let recursive = thread::Builder::new().name("recursive".into());
    let add = move || sum(&total, 3);
    recursive.spawn(add).unwrap().join().unwrap();
}

/// Locks once for each level.
fn sum(total: &Mutex<u32>, depth: u32) {
    let mut total_here = total.lock().unwrap();
    *total_here += depth;
    if depth != 0 {
        sum(total, depth - 1);
    }
}
