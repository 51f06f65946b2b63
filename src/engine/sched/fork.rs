//! A forked child has one kernel thread, the one that forked. If that ran a green thread, this
//! thread goes on. All others exist in the parent only, and must not run in the child: their code
//! would run twice.
//!
//! So an atfork handler makes the child forget the runtime: the current thread is a kernel thread's
//! from now on (it parks on futexes), nothing preempts it, new threads are kernel threads, and the
//! queues are dropped as they are, without their locks. When the thread that forked returns, the
//! process ends, as it would with a pthread.
//!
//! How it is noticed: `fork` calls the atfork handler. `_Fork` and `clone` do not, so they are ours, and a page that
//! the kernel clears in every child that has a copy of the memory ([`current::is_forked_child`]) tells of those that come past them.
//! A child that *shares* the memory (`vfork`, `clone` with CLONE_VM) is another process in the middle of its
//! parent's thread. That thread is hidden as in a signal handler (`sched::current`) until the child has its own
//! memory, or, where that cannot be known, for good.
//!
//! Invariant: the child takes no lock that a thread of the parent may have held at the fork, unless
//! libc releases it in the child (malloc's, stdio's, the loader's, the list of pthreads), or the fork waits until it
//! is free (the loader's for its list: `sys::libraries`). That
//! rules out the scheduler's locks, everything that is made at its first use, and std's threads
//! (`runtime::kernel`).

use core::cell::Cell;
use std::sync::{Once, OnceLock};

use crate::engine::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use crate::engine::inspect::{hold, kernel, notes};
use crate::engine::probe;
use crate::engine::sched::{Identity, current};
use crate::engine::sys::libraries::{self, after_fork, before_fork};
use crate::engine::sys::{self, calls, mm};

static FORKED: AtomicBool = AtomicBool::new(false);
/// Where the kernel notes a thread's CPU, if glibc has registered such an area: its distance from the thread pointer,
/// and its bytes.
static RSEQ: OnceLock<Option<(isize, u32)>> = OnceLock::new();
/// The labels of the descriptors that a forked child closes; 0 is none.
static CLOSED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// While it lives, a forked child closes this descriptor: nobody serves it there. (Beyond some descriptors the child
/// keeps it open.) A program may have closed it and opened another file with the number: that stays open.
pub(crate) struct OnlyHere(Option<&'static AtomicU64>);

impl OnlyHere {
    pub(crate) fn new(descriptor: i32) -> OnlyHere {
        let label = label(descriptor);
        let takes = |place: &AtomicU64| place.compare_exchange(0, label, Relaxed, Relaxed).is_ok();
        OnlyHere(CLOSED.iter().find(|place| takes(place)))
    }
}

impl Drop for OnlyHere {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Relaxed);
        }
    }
}

/// The descriptor and, behind it, the number of its file, by which it is known again. Async-signal-safe.
fn label(descriptor: i32) -> u64 {
    let file = calls::stat(descriptor).map_or(u32::MAX, |stat| stat.st_ino as u32);
    (descriptor as u64) << 32 | u64::from(file)
}

/// Registers the handler, once per process, and makes the things that the child will use.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        RSEQ.get_or_init(rseq_area);
        let page = mm::map(mm::page()).ok().filter(|&page| {
            // SAFETY: the page is ours.
            unsafe { libc::madvise(page as *mut _, mm::page(), libc::MADV_WIPEONFORK) == 0 }
        });
        if let Some(page) = page {
            // SAFETY: the page is ours, and stays for good.
            let word = unsafe { &*(page as *const AtomicU32) };
            word.store(1, Relaxed);
            // Release: the word; partner: Acquire in `current::is_forked_child`.
            current::IS_PARENT.store(Some(word), Release);
        }
        // SAFETY: the handlers are async-signal-safe: they write atomics and a thread-local, and make system calls.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    });
}

fn rseq_area() -> Option<(isize, u32)> {
    // SAFETY: the names are those of glibc's two constants, and the constants have these types.
    unsafe {
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        // glibc tells how much of the area the kernel uses, and registers no less than 32 bytes.
        (!size.is_null() && !offset.is_null() && *size != 0).then(|| (*offset, (*size).max(32)))
    }
}

thread_local! {
    /// The thread has forked, and has not read since.
    pub(crate) static HAS_FORKED: Cell<bool> = const { Cell::new(false) };
}

extern "C" fn in_parent() {
    after_fork();
    HAS_FORKED.set(current::is_hooked());
}

/// The child has one thread, which calls this first: the thread that has forked.
extern "C" fn in_child() {
    libraries::forget_lists();
    FORKED.store(true, Relaxed);
    kernel::forget_others();
    notes::forget_sections();
    hold::forget();
    probe::forget();
    for known in CLOSED.each_ref().map(|place| place.swap(0, Relaxed)) {
        let descriptor = (known >> 32) as i32;
        if known != 0 && label(descriptor) == known {
            sys::close(descriptor);
        }
    }
    let Some(green) = current::owner() else {
        return;
    };
    // Signals that wait for the parent's thread are not the child's.
    let stack = green.stack();
    stack.inspect(|stack| stack.directed.store(0, Relaxed));
    current::begin(None);
    if let Some(Some((offset, size))) = RSEQ.get() {
        // The kernel notes the CPU of this kernel thread in the control block of a pthread that glibc takes for dead now.
        // glibc will give that pthread's stack to another thread, or unmap it, and the kernel kills a process whose area
        // it cannot write at a context switch.
        const UNREGISTER: usize = 1;
        const SIGNATURE: usize = 0x5305_3053;
        let own = green.worker().own_thread_pointer.get();
        let start = own.wrapping_offset(*offset) as usize;
        let arguments = [start, *size as usize, UNREGISTER, SIGNATURE];
        // SAFETY: the kernel only forgets the area; if it has another one it refuses.
        let _ = unsafe { sys::call(libc::SYS_rseq, &arguments) };
    }
    // From now on the identity is a kernel thread's, and is never freed.
    Identity::set_own(green.identity.load(Relaxed));
}

/// This is a forked child: the first question after that comes here. Returns true.
#[cold]
pub(super) fn begin_as_child() -> bool {
    if !FORKED.load(Relaxed) {
        in_child();
    }
    true
}

/// The calling thread is about to `vfork`. Returns whether it was not hidden.
pub(crate) extern "C" fn before_vfork() -> bool {
    current::hide(current::VFORK).frame
}

/// The parent goes on, with the result of the system call. `was_seen`: what [`before_vfork`] said.
pub(crate) extern "C" fn after_vfork(result: i32, was_seen: bool) -> libc::pid_t {
    if was_seen {
        current::reveal_all();
    }
    if result >= 0 {
        return result;
    }
    // SAFETY: the thread's own `errno`.
    unsafe { *libc::__errno_location() = -result };
    -1
}
