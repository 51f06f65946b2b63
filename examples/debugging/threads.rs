//! Threads in every state, to be looked at with gdb (docs/gdb.md):
//!
//! ```sh
//! cargo build --release --example debugging
//! gdb -iex "add-auto-load-safe-path target" -ex "break gdb_stops_here" -ex "run threads" \
//!     target/release/examples/debugging
//! (gdb) info greenthreads
//! ```

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use greenthread::channel::{Receiver, Sender, unbounded};
use greenthread::runtime::{Builder as RuntimeBuilder, Runtime};
use greenthread::sync::{Mutex, RwLock};
use greenthread::thread::{self, Builder, JoinHandle, yield_now};

/// Here all threads are in the states that their names say.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn gdb_stops_here() {
    black_box(());
}

#[inline(never)]
fn hold_a_lock_and_park(mutex: &Mutex<u64>, done: &AtomicBool) -> u64 {
    let mut guard = mutex.lock().unwrap();
    while !done.load(Relaxed) {
        thread::park();
    }
    *guard += 1;
    *guard
}

#[inline(never)]
fn wait_for_the_lock(mutex: &Mutex<u64>) -> u64 {
    let mut guard = mutex.lock().unwrap();
    *guard += 1;
    *guard
}

#[inline(never)]
fn wait_to_read(lock: &RwLock<u64>) -> u64 {
    *lock.read().unwrap() + 1
}

#[inline(never)]
fn wait_for_a_message(receiver: &Receiver<u64>) -> u64 {
    receiver.recv().unwrap_or(0) + 1
}

#[inline(never)]
fn wait_for_another_thread(other: JoinHandle<u64>) -> u64 {
    other.join().unwrap() + 1
}

#[inline(never)]
fn sleep_for_long(time: Duration) -> u64 {
    thread::sleep(time);
    black_box(1)
}

#[inline(never)]
fn compute_until(done: &AtomicBool, turns: &AtomicUsize) -> u64 {
    let mut sum = 0_u64;
    while !done.load(Relaxed) {
        turns.store(turns.load(Relaxed) + 1, Relaxed);
        sum = black_box(sum.wrapping_mul(3) + 1);
    }
    sum
}

#[track_caller]
fn named(name: &str, f: impl FnOnce() -> u64 + Send + 'static) -> JoinHandle<u64> {
    Builder::new().name(name.into()).spawn(f).unwrap()
}

/// Threads that wait; on one processor, so that one runs after another.
fn waiters(
    mutex: &Arc<Mutex<u64>>,
    written: &Arc<RwLock<u64>>,
    done: &Arc<AtomicBool>,
) -> Sender<u64> {
    let (sender, receiver) = unbounded();
    let (held, done) = (mutex.clone(), done.clone());
    let holder = named("holder", move || hold_a_lock_and_park(&held, &done));
    while mutex.try_lock().is_ok() {
        yield_now();
    }
    let wanted = mutex.clone();
    named("locker", move || wait_for_the_lock(&wanted));
    let written = written.clone();
    named("reader", move || wait_to_read(&written));
    named("receiver", move || wait_for_a_message(&receiver));
    named("joiner", move || wait_for_another_thread(holder));
    named("sleeper", || sleep_for_long(Duration::from_secs(1000)));
    // Each of them has waited since, even if it was preempted before.
    for _ in 0..20 {
        yield_now();
    }
    sender
}

/// Threads that compute, and take turns on one processor.
fn hogs(done: &Arc<AtomicBool>, turns: &'static [AtomicUsize; 3]) {
    for (i, turns) in turns.iter().enumerate() {
        let done = done.clone();
        named(&format!("hog-{i}"), move || compute_until(&done, turns));
    }
}

/// Threads that never get a processor, while the caller computes on it.
fn newcomers(done: &Arc<AtomicBool>, turns: &AtomicUsize) -> u64 {
    for i in 0..3 {
        named(&format!("new-{i}"), move || i);
    }
    compute_until(done, turns)
}

fn runtime(builder: RuntimeBuilder) -> Runtime {
    builder.processors(1).build().unwrap()
}

/// Brings the threads into their states, and calls `gdb_stops_here`.
pub(crate) fn main() {
    static TURNS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    static STUBBORN: AtomicUsize = AtomicUsize::new(0);
    let slice = Duration::from_millis(1);
    let waiting = runtime(Runtime::builder());
    // A thread that a debugger slows down may lose its processor, and run on. With two kernel threads at most, one of
    // three threads is ready nevertheless.
    let computing = runtime(Runtime::builder().time_slice(slice).max_kernel_threads(2));
    let stubborn = runtime(Runtime::builder().preemption(false));
    let (mutex, done) = (Arc::new(Mutex::new(0)), Arc::new(AtomicBool::new(false)));
    // This kernel thread holds it.
    let written = Arc::new(RwLock::new(0));
    let guard = written.write().unwrap();

    let flag = done.clone();
    computing.spawn(move || hogs(&flag, &TURNS)).join().unwrap();
    let flag = done.clone();
    stubborn.spawn(move || newcomers(&flag, &STUBBORN));
    let to_read = written.clone();
    let sender = waiting
        .spawn(move || waiters(&mutex, &to_read, &done))
        .join();

    // All three have had their turns, and the stubborn one has begun.
    let all = || {
        TURNS
            .iter()
            .chain([&STUBBORN])
            .map(|turns| turns.load(Relaxed))
    };
    for _ in 0..3 {
        let before: Vec<_> = all().collect();
        while all().zip(&before).any(|(now, &before)| now == before) {
            std::thread::sleep(slice);
        }
    }
    gdb_stops_here();
    if std::env::var_os("CRASH").is_some() {
        // Leaves a core file, where the system is set up so.
        std::process::abort();
    }
    println!("all threads are there; they end with the program");
    drop((sender, guard));
    std::process::exit(0);
}
