//! A library for programs that know nothing of Rust (`tests/process/shared_libraries.rs`): a C library whose functions start threads.

use greenthread::channel::bounded;
use greenthread::runtime::{Mode, Runtime};
use greenthread::thread;
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Whether its threads are green ones.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_is_green() -> c_int {
    (Runtime::global().mode() == Mode::Green).into()
}

/// Threads that wait for each other, keep something in thread-locals, sleep, and panic; returns a sum, 4950.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_use() -> c_int {
    let (sender, receiver) = bounded(1);
    let workers: Vec<_> = (0..100)
        .map(|i| {
            let sender = sender.clone();
            thread::spawn(move || {
                OWN.set(i);
                thread::yield_now();
                thread::sleep(Duration::from_millis(1));
                std::thread::sleep(Duration::from_millis(1));
                let locked = std::sync::Mutex::new(OWN.get());
                sender.send(*locked.lock().unwrap() as c_int).unwrap();
            })
        })
        .collect();
    drop(sender);
    let sum = receiver.iter().sum();
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());
    let panics = thread::spawn(|| std::panic::resume_unwind(Box::new("the plug-in's")));
    assert!(panics.join().is_err());
    sum
}

/// Three times as many threads as processors compute, until another one has run 15 times; returns 1.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_computes_beside() -> c_int {
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, SeqCst);
    let count = 3 * thread::available_parallelism().unwrap().get();
    let hogs = (0..count).map(|_| {
        thread::spawn(|| {
            while !STOP.load(SeqCst) {
                std::hint::spin_loop();
            }
        })
    });
    let hogs: Vec<_> = hogs.collect();
    let other = thread::spawn(|| {
        (0..15).for_each(|_| thread::sleep(Duration::from_millis(1)));
        STOP.store(true, SeqCst);
    });
    other.join().unwrap();
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    1
}

/// Waits at a word of the caller's, in a thread, for as long as it is 0: returns 1 once it is not. The caller wakes it as the kernel does.
///
/// # Safety
/// The word stays until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plugin_waits_at(word: *const std::sync::atomic::AtomicU32) -> c_int {
    // SAFETY: the caller's word, which it keeps until this returns.
    let word = unsafe { &*word };
    let waiter = move || {
        while word.load(SeqCst) == 0 {
            // SAFETY: a word, its value, and no time-out.
            unsafe {
                let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 0, 0usize)
            };
        }
    };
    thread::spawn(waiter).join().is_ok().into()
}

/// Leaves threads behind that go on for ever, and returns how often they have run.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_leaves_threads() -> c_int {
    static TURNS: AtomicUsize = AtomicUsize::new(0);
    thread::spawn(|| {
        loop {
            TURNS.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
    });
    while TURNS.load(SeqCst) < 3 {
        thread::yield_now();
    }
    TURNS.load(SeqCst) as c_int
}

/// The calling thread gets a handle, which it drops at its end, and a value in a thread-local; no runtime is started.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_knows_me() -> c_int {
    thread::current().name().map_or(0, |name| name.len()) as c_int
}
