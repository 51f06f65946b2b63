//! Unloading a library while green threads resolve symbols.
//!
//! The loader looks symbols up without a lock. A thread says in its control block that it does, and
//! `dlclose`, when nobody can find the library any more, waits for all threads that say so before
//! it unmaps the library. But it asks only the threads in libc's list, where green threads are not.
//!
//! So while a `dlclose` runs, a kernel thread, the *proxy*, says that it looks something up, on
//! behalf of all green threads:
//!
//! ```text
//!   dlclose                                         proxy
//!                                                   own flag: unused -> used
//!   takes the library from the lists
//!   proxy's flag: used -> waited for
//!   sleeps on it                                    sees that
//!                                                   membarrier
//!                                                   waits until each green thread's flag was unused
//!                                                   own flag: waited for -> used; wakes
//!   unmaps the library
//! ```
//!
//! Orderings: a thread raises its flag by a plain store and then reads the lists. The membarrier
//! puts a fence between the two: either the proxy sees the flag, or the thread sees the new lists.
//! The Acquire load of a lowered flag pairs with glibc's release of it, after its last look at the
//! library.
//!
//! A constructor or a destructor may call `dlclose`, with the loader's lock held; and then it waits
//! for the proxy. Invariant: until its own flag is down the proxy needs no thread that may wait for
//! that lock. So it is a kernel thread by libc's means alone (std's registers a destructor of a
//! thread-local, which takes the lock), and neither allocates nor frees.
//!
//! Limits: libraries that libc unloads by itself (character sets) do not come this way. Nor does
//! `dlopen`, which waits likewise before it frees a list of libraries that has grown out of its place: a
//! green thread that looks up a symbol at that moment, lazily, may read the freed list.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::Arc;

use crate::engine::atomic::{AtomicU32, Ordering::*};
use crate::engine::inspect::notes::ReadSection;
use crate::engine::sched::tuning::{SHORTEST_TICK, SOON};
use crate::engine::sched::{current, signals, spawner, start::ThreadStack};
use crate::engine::sys::{clock, futex, kernel_thread, signal};
use crate::engine::{arch, stack, tls};

// A thread's flag, as glibc has it.
const UNUSED: u32 = 0;
const USED: u32 = 1;
const WAITED_FOR: u32 = 2;

// The messages between the proxy and the caller of `dlclose`.
const STARTING: u32 = 0;
const READY: u32 = 1;
const OVER: u32 = 2;

/// The state that the proxy and the caller of `dlclose` share.
struct Shared {
    word: AtomicU32,
    /// The caller's control block.
    caller: usize,
}

/// Calls `close`, which is `dlclose` of a library, so that it waits for green threads; returns its answer. If that is
/// impossible now, the library stays, and the answer is 0.
#[cfg(interposes)]
pub(crate) fn unloaded_by(close: impl FnOnce() -> c_int) -> c_int {
    if signals::reserved() == 0 || current::is_forked_child() {
        return close(); // there are no green threads
    }
    if !tls::is_known() {
        return 0; // a thread may be looking a symbol up in it
    }
    let shared = Arc::new(Shared {
        word: AtomicU32::new(STARTING),
        caller: arch::thread_pointer() as usize,
    });
    let theirs = Arc::into_raw(shared.clone());
    // SAFETY: `stand_in` expects a share that is its own; nothing in it unwinds.
    if unsafe { spawner::bare(stand_in, theirs.cast_mut().cast()) }.is_err() {
        // SAFETY: nobody has taken it.
        drop(unsafe { Arc::from_raw(theirs) });
        return 0;
    }
    let word = &shared.word;
    // Acquire: pairs with the Release in `stand_in`: its flag is up.
    while word.load(Acquire) == STARTING {
        futex::wait(word, STARTING, None);
    }
    let result = close();
    word.store(OVER, Relaxed);
    futex::wake(word, 1);
    // The proxy has visited the stacks in a read section, and frees nothing. So the memory that threads have left behind for
    // the section's sake is freed here.
    drop(ReadSection::begin());
    result
}

/// The proxy, as long as the word is not `OVER`.
extern "C" fn stand_in(shared: *mut c_void) -> *mut c_void {
    signal::set_mask(signal::ALL);
    kernel_thread::set_name(format_args!("gt-unload-0"));
    // SAFETY: the share that `unloaded_by` gave. It is freed in the end, when nobody waits for this
    // thread.
    let shared = unsafe { Arc::from_raw(shared.cast_const().cast::<Shared>()) };
    let word = &shared.word;
    // SAFETY: this thread's own control block.
    let flag = unsafe { tls::look_up_flag(arch::thread_pointer()) };
    flag.store(USED, Relaxed);
    // Release: pairs with the Acquire in `unloaded_by`.
    word.store(READY, Release);
    futex::wake(word, 1);
    // The proxy looks ever less often, since destructors may take long.
    let mut tick = SHORTEST_TICK;
    while word.load(Relaxed) != OVER {
        // Acquire: pairs with glibc's change of it, after the library is out of the lists.
        if flag.load(Acquire) == WAITED_FOR {
            kernel_thread::barrier();
            wait_for_green_threads(shared.caller);
            // Release: pairs with glibc's load of it, by which the unloading goes on.
            flag.store(USED, Release);
            futex::wake(flag, 1);
            tick = SHORTEST_TICK;
        }
        futex::wait(word, READY, Some(clock::now() + tick));
        tick = (tick * 2).min(SOON);
    }
    // Another `dlclose`, which has its own proxy, may be waiting for this flag.
    if flag.swap(UNUSED, Release) == WAITED_FOR {
        futex::wake(flag, 1);
    }
    ptr::null_mut()
}

/// Waits until each thread was seen to look nothing up, except the one whose control block is at
/// `caller`.
fn wait_for_green_threads(caller: usize) {
    // While the section is open, no stack that is visited is destroyed.
    let section = ReadSection::begin();
    stack::visit(|stack| {
        let block = ThreadStack::at(stack).thread_pointer;
        // SAFETY: a stack has a block.
        let flag = unsafe { tls::look_up_flag(block) };
        // Acquire: see the file's header.
        while block as usize != caller && flag.load(Acquire) != UNUSED {
            kernel_thread::give_way();
        }
    });
    section.end_without_dropping();
}
