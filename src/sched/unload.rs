//! Unloading a library while green threads resolve symbols.
//!
//! The loader looks symbols up without a lock. A thread says in its control block that it does, and
//! `dlclose`, when nobody can find the library any more, waits for all that say so before it unmaps
//! it. But it asks the threads in libc's list only, where green threads are not.
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
//! Orderings: a thread raises its flag by a plain store and then reads the lists. The membarrier puts
//! a fence between the two: either the proxy sees the flag, or the thread sees the new lists. Acquire
//! of a flag that is down: with glibc's release of it, after its last look at the library.
//!
//! Limits: libraries that libc unloads by itself (character sets) do not come this way.

use std::sync::Arc;

use crate::arch;
use crate::atomic::{AtomicU32, Ordering};
use crate::green::Room;
use crate::sched::fork;
use crate::sys::{clock, futex, kernel_thread, signal};
use crate::{stack, tls};

// A thread's flag, as glibc has it.
const UNUSED: u32 = 0;
const USED: u32 = 1;
const WAITED_FOR: u32 = 2;

// What the proxy and who calls `dlclose` tell each other.
const STARTING: u32 = 0;
const READY: u32 = 1;
const OVER: u32 = 2;

/// How often the proxy looks whether it is waited for, in nanoseconds.
const TICK: u64 = 20_000;
const STACK_SIZE: usize = 64 << 10;

/// Calls `close`, which unloads a library, so that it waits for green threads. `None`: that cannot be
/// had now, and the library must stay.
pub(super) fn waiting<T>(close: impl FnOnce() -> T) -> Option<T> {
    if fork::is_child() {
        return Some(close()); // alone
    }
    let word = Arc::new(AtomicU32::new(STARTING));
    let caller = arch::thread_pointer() as usize;
    let theirs = word.clone();
    std::thread::Builder::new()
        .name("gt-unload".into())
        .stack_size(tls::with_thread_locals(STACK_SIZE))
        .spawn(move || stand_in(&theirs, caller))
        .ok()?;
    // Acquire: pairs with the Release in `stand_in`: its flag is up.
    while word.load(Ordering::Acquire) == STARTING {
        futex::wait(&word, STARTING, None);
    }
    let result = close();
    word.store(OVER, Ordering::Relaxed);
    futex::wake(&*word, 1);
    Some(result)
}

/// The proxy, as long as `word` is not `OVER`.
fn stand_in(word: &AtomicU32, caller: usize) {
    signal::set_mask(signal::ALL);
    // SAFETY: this thread's own control block.
    let flag = unsafe { tls::look_up_flag(arch::thread_pointer()) };
    flag.store(USED, Ordering::Relaxed);
    // Release: pairs with the Acquire in `waiting`.
    word.store(READY, Ordering::Release);
    futex::wake(word, 1);
    while word.load(Ordering::Relaxed) != OVER {
        // Acquire: pairs with glibc's change of it, after the library is out of the lists.
        if flag.load(Ordering::Acquire) == WAITED_FOR {
            kernel_thread::barrier();
            wait_for_green_threads(caller);
            flag.store(USED, Ordering::Release);
            futex::wake(flag, 1);
        }
        futex::wait(word, READY, Some(clock::now() + TICK));
    }
    // Another `dlclose` has a proxy of its own.
    if flag.swap(UNUSED, Ordering::Release) == WAITED_FOR {
        futex::wake(flag, 1);
    }
}

/// Waits until each, but for the one whose control block is at `caller`, was seen to look nothing up.
fn wait_for_green_threads(caller: usize) {
    stack::visit(|slot| {
        let block = Room::on(slot).thread_pointer;
        // SAFETY: a room's block is there for ever.
        let flag = unsafe { tls::look_up_flag(block) };
        // Acquire: see the file's header.
        while block as usize != caller && flag.load(Ordering::Acquire) != UNUSED {
            kernel_thread::give_way();
        }
    });
}
