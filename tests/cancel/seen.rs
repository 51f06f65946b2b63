//! What dumps, metrics and warnings tell of frames.

use std::sync::Arc;

use greenthread::cancel::Token;
use greenthread::observe::dump;
use greenthread::runtime::Runtime;
use greenthread::sync::{Mutex, Semaphore};
use greenthread::time::{self, Duration, Instant};
use greenthread::{channel, thread};

use crate::common::{green, wait_until, watchdog};

/// The line of the thread of this name, once it has all of these parts.
#[track_caller]
fn shows(name: &str, parts: &[&str]) {
    wait_until(|| {
        let text = dump().to_string();
        let mut lines = text.lines();
        let line = lines.find(|line| line.contains(name)).unwrap_or("");
        parts.iter().all(|part| line.contains(part))
    });
}

fn named<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::Builder::new().name(name.into()).spawn(f).unwrap()
}

#[test]
fn dumps_show_frames() {
    let _w = watchdog("seen::dumps_show_frames");
    let token = Token::new();
    let mutex = Arc::new(Mutex::new(()));
    let guard = mutex.lock().unwrap();
    let (other, of) = (mutex.clone(), token.clone());
    let late = named("late on a lock", move || {
        time::timeout_at(Instant::now(), || drop(other.lock().unwrap()))
    });
    shows(
        "late on a lock",
        &[
            "waits for mutex",
            "in a frame that ended ",
            " ago, and waits on",
        ],
    );
    let other = mutex.clone();
    let cancelled = named("cancelled on a lock", move || {
        of.run(|| drop(other.lock().unwrap())).is_ok()
    });
    shows("cancelled on a lock", &["waits for mutex"]);
    token.cancel();
    shows(
        "cancelled on a lock",
        &["in a frame that was cancelled, and waits on"],
    );
    let (sender, receiver) = channel::unbounded::<()>();
    let in_time = named("in time", move || {
        time::timeout(Duration::from_secs(3_000), || receiver.recv())
    });
    shows("in time", &["in a frame that ends in "]);
    drop((guard, sender));
    assert!(late.join().unwrap().is_ok() && cancelled.join().unwrap());
    assert!(in_time.join().unwrap().unwrap().is_err());
}

#[test]
fn refusals_are_counted() {
    let _w = watchdog("seen::refusals_are_counted");
    if !green() {
        return;
    }
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let semaphore = Arc::new(Semaphore::new(0));
    let waits = semaphore.clone();
    let refused = move || {
        for _ in 0..3 {
            assert!(time::timeout_at(Instant::now(), || waits.acquire().forget()).is_err());
        }
    };
    runtime.spawn(refused).join().unwrap();
    assert_eq!(runtime.metrics().refused_waits, 3);
    runtime.shutdown();
}
