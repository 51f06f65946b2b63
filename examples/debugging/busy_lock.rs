//! A thread holds a lock while it waits for something slow; all others wait for the lock. `docs/debugging.md` finds out.

use std::sync::Arc;
use std::time::Duration;

use greenthread::sync::Mutex;
use greenthread::thread;

pub(crate) fn main() {
    let cache = Arc::new(Mutex::new(Vec::new()));
    let named = |name: String| thread::Builder::new().name(name);
    let refresher = named("refresher".into()).spawn({
        let cache = cache.clone();
        move || refresh(&cache)
    });
    thread::sleep(Duration::from_millis(10));
    let readers: Vec<_> = (0..100)
        .map(|i| {
            let cache = cache.clone();
            named(format!("reader-{i}")).spawn(move || look_up(&cache, i))
        })
        .collect();
    for reader in readers {
        reader.unwrap().join().unwrap();
    }
    refresher.unwrap().join().unwrap();
}

/// Fetches new data, and keeps the readers out for all the time that it takes.
fn refresh(cache: &Mutex<Vec<usize>>) {
    let mut cache = cache.lock().unwrap();
    *cache = fetch();
}

/// A slow server's answer.
fn fetch() -> Vec<usize> {
    thread::sleep(Duration::from_secs(5));
    (0..100).collect()
}

fn look_up(cache: &Mutex<Vec<usize>>, key: usize) -> usize {
    cache.lock().unwrap()[key]
}
