//! The threads' primitives of C and C++: `pthread_…`, `sem_…`, and C11's `mtx_…`, `cnd_…`, `call_once`.
//!
//! | file | what is whose |
//! |---|---|
//! | `mutex`, `rwlock`, `semaphore` | the lock is libc's; a green thread that finds it taken waits in [`TABLE`] |
//! | `condition` | green threads wait in [`TABLE`], kernel threads in libc |
//! | `silent` | the one place where libc unlocks a mutex and we do not see it |
//! | `barrier`, `once` | ours for all threads, built on futexes, which park |
//! | `join` | a green thread waits for the descriptor of the thread that it joins |
//! | `c11` | other names for the same |
//!
//! A hooked thread first calls libc's function that tries. If the lock is taken, the thread queues in
//! the table, tries once more under the bucket's lock, and is parked. Every thread that gives a lock back does so by
//! libc's function first, and then looks into the table. So kernel threads and green ones share a lock, and a kernel
//! thread's wait stays libc's, with its priorities and its cancellation.
//!
//! Invariants:
//! 1. *No wake-up is lost* (invariant 1 of `addresses`): the condition is libc's word, which the
//!    waiter looks at under its bucket's lock, after a fence. All that gives back a lock is in these files, or is
//!    a locked instruction of libc's on x86-64, or (a wait on a condition variable) is told by `silent`.
//! 2. A thread that was woken for a lock either takes it, or queues again, or wakes another. So a lock that is
//!    free has no thread that waits for it, but for those on their way.
//! 3. After libc's function has given a lock back, its memory is not touched: another thread
//!    may have taken it, given it back, and freed it. Its address is a name.
//!
//! Process-shared objects, and mutexes that are robust or know priorities, are libc's alone: a thread that blocks on one
//! is handed off.
//!
//! A forked child has one thread, and does not look into the table: those that wait there are the parent's.

mod barrier;
mod c11;
mod condition;
mod join;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
mod silent;

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::timespec;

use super::{deadline_on, errno, nanos, read, set_errno};
use crate::engine::facade::is_forked_child;
use crate::engine::hooks::thread_id;
use crate::libc::addresses::{Addresses, Beside, Buckets, Events, Waited};
use crate::wait::queue::Position;
use crate::wait::{WaitKind, reason};

/// The green threads that wait for locks, semaphores and conditions.
static TABLE: Addresses = Addresses::new(&OBJECT, &BUCKETS);
static BUCKETS: Buckets = Buckets::new();

/// For reports.
static OBJECT: WaitKind = WaitKind::inside("lock of C", reason::nothing);

// What a thread waits for.
const LOCK: Events = 1;
const READ: Events = 2;
const WRITE: Events = 4;
const POST: Events = 8;
const SIGNAL: Events = 16;

/// Wakes threads that wait for a lock, which libc's function has just given back with a locked
/// instruction. Returns how many.
#[inline]
fn wake(address: usize, events: Events, most: usize) -> usize {
    if is_forked_child() {
        return 0;
    }
    TABLE.wake_after_locked(address, events, most)
}

/// Until when a call is to wait, as its caller says: until this clock shows that time. `None`: for ever.
#[derive(Clone, Copy)]
struct Asked(libc::clockid_t, Option<*const timespec>);

const FOR_EVER: Asked = Asked(libc::CLOCK_MONOTONIC, None);

/// The same by the real clock.
fn real_time(time: *const timespec) -> Asked {
    Asked(libc::CLOCK_REALTIME, Some(time))
}

impl Asked {
    /// Whether libc's functions accept the clock.
    fn has_clock(self) -> bool {
        matches!(self.0, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
    }

    /// `None`: libc does not accept the clock or the time.
    ///
    /// # Safety
    /// A time is valid.
    unsafe fn until(self) -> Option<Until> {
        let Asked(clock, time) = self;
        let time = match time {
            None => None,
            // A time before the clock's beginning has passed, as its first second has.
            // SAFETY: the caller's promise.
            Some(time) => Some(unsafe {
                nanos(timespec {
                    tv_sec: (*time).tv_sec.max(0),
                    ..*time
                })?
            }),
        };
        self.has_clock().then_some(Until { clock, time })
    }
}

/// How long a call waits, by a clock of libc's.
#[derive(Clone, Copy)]
struct Until {
    clock: libc::clockid_t,
    /// `None`: for ever.
    time: Option<u64>,
}

impl Until {
    /// In monotonic nanoseconds, as the clock is now.
    fn deadline(self) -> Option<u64> {
        self.time.map(|time| deadline_on(self.clock, time))
    }

    /// Whether the clock shows that time, or a later one. It may have been set meanwhile.
    fn has_come(self) -> bool {
        self.time.is_some_and(|time| read(self.clock) >= time)
    }
}

/// Parks the calling thread at `address` until `attempt` returns an answer. It is asked under the bucket's
/// lock, before each wait. `None`: the time is up.
fn wait<A>(
    address: usize,
    events: Events,
    until: Until,
    mut attempt: impl FnMut(&Beside<'_>) -> Option<A>,
) -> Option<A> {
    let mut position = Position::Back;
    loop {
        let attempt = |beside: Beside<'_>| match attempt(&beside) {
            Some(answer) => Err(answer),
            None => Ok(()),
        };
        let ended = TABLE.wait_beside(address, events, position, until.deadline(), attempt, || ());
        match ended {
            Err(answer) => return Some(answer),
            // Another thread was faster: this one stays the first.
            Ok(Waited::Woken(_)) => position = Position::Front,
            Ok(_) if until.has_come() => return None,
            Ok(_) => {}
        }
    }
}

/// The name by which libc's locks know the calling thread.
fn my_id() -> Option<u32> {
    // SAFETY: the thread's own name.
    unsafe { thread_id(libc::pthread_self() as usize) }
}

/// A field of an object of libc's.
///
/// # Safety
/// `object` is valid, and has a word at `offset`.
unsafe fn field<'a, T>(object: *mut T, offset: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's promise; objects of libc's are aligned to words at least.
    unsafe { AtomicU32::from_ptr(object.cast::<u32>().byte_add(offset)) }
}

/// Whether the word at `offset` says "process-shared": glibc stores 0 for private objects, and for the others 1 in
/// reader-writer locks and 128 in semaphores.
///
/// # Safety
/// As [`field`].
unsafe fn is_shared<T>(object: *mut T, offset: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { field(object, offset) }.load(Relaxed) != 0
}

/// Waits on a word that only this process uses: any thread, by the hooked system call. May return early.
fn futex_wait(word: &AtomicU32, expected: u32) {
    let none = core::ptr::null::<timespec>();
    futex(word, libc::FUTEX_WAIT, expected, none);
}

/// Wakes threads that wait on a word, which may be gone by now.
fn futex_wake(word: *const AtomicU32, most: u32) {
    futex(
        word,
        libc::FUTEX_WAKE,
        most.min(i32::MAX as u32),
        core::ptr::null(),
    );
}

fn futex(word: *const AtomicU32, operation: i32, value: u32, time: *const timespec) {
    let before = errno();
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a valid word, or one that is only named.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, value, time) };
    set_errno(before);
}
