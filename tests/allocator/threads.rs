//! A global allocator that keeps a list of its threads, as jemalloc does: it
//! enters a thread at the first allocation, and strikes it off in the destructor of a pthread key.
//! A thread that is entered after its last destructor stays in the list for ever.

use crate::common::alone;
use greenthread as thread;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::*};

thread_local!(static LISTED: Cell<bool> = const { Cell::new(false) });
/// How many threads are listed.
static THREADS: AtomicUsize = AtomicUsize::new(0);
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

struct Listing;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Listing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(&key) = KEY.get()
            && !LISTED.replace(true)
        {
            THREADS.fetch_add(1, Relaxed);
            // SAFETY: a live key.
            unsafe { libc::pthread_setspecific(key, c"listed".as_ptr().cast()) };
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

unsafe extern "C" fn strike_off(_: *mut c_void) {
    LISTED.set(false);
    THREADS.fetch_sub(1, Relaxed);
}

/// Loads a library that nobody has loaded and that has a thread-local, and unloads it.
fn load_and_unload() {
    const LIBRARY: &CStr = c"libc_malloc_debug.so.0";
    // SAFETY: a library of libc's, without constructors, of which nothing is used.
    let loaded = unsafe {
        let library = libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        !library.is_null() && libc::dlclose(library) == 0
    };
    assert!(loaded, "{LIBRARY:?} cannot be loaded");
}

/// What a thread does at its end because libraries were loaded meanwhile allocates.
#[test]
fn no_thread_is_listed_after_its_end() {
    alone!();
    const LIVES: usize = 500;
    crate::become_a(&Listing);
    let mut key = 0;
    // SAFETY: the signal ends the process, unless it is cancelled in time.
    unsafe { libc::alarm(120) };
    // SAFETY: a destructor of the right type.
    let made = unsafe { libc::pthread_key_create(&mut key, Some(strike_off)) };
    assert_eq!(made, 0);
    KEY.set(key).expect("once");
    for i in 0..LIVES {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        static LOADED: AtomicUsize = AtomicUsize::new(0);
        // One that allocates itself, and one that does not.
        let life = move || {
            RUNNING.store(i + 1, Release); // pairs with the Acquire below
            // Acquire: with the Release below.
            while LOADED.load(Acquire) != i + 1 {
                thread::yield_now();
            }
            (i % 2 == 0).then(|| vec![1u8; i + 1])
        };
        let green = thread::spawn(life);
        while RUNNING.load(Acquire) != i + 1 {
            std::thread::yield_now();
        }
        load_and_unload();
        LOADED.store(i + 1, Release);
        drop(green.join().unwrap());
    }
    let kernel_threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    let listed = THREADS.load(Relaxed);
    assert!(
        listed <= 2 * kernel_threads,
        "{listed} threads are listed after {LIVES} lives, with {kernel_threads} kernel threads"
    );
    // SAFETY: as above.
    unsafe { libc::alarm(0) };
}
