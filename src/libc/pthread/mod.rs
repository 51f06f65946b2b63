//! The threads' primitives of C and C++: `pthread_…`, `sem_…`, and C11's `mtx_…`, `cnd_…`, `call_once`.
//!
//! | file | what is whose |
//! |---|---|
//! | `locks` | mutexes, reader-writer locks, semaphores: the lock is libc's; a green thread that finds it taken waits in [`TABLE`] |
//! | `condition` | green threads wait in [`TABLE`], kernel threads in libc; and the one place where libc unlocks a mutex and we do not see it |
//! | `own` | barriers, once: ours for all threads, built on futexes, which park |
//! | `mod` | what they share; C11's names for the same |
//!
//! A hooked thread first calls libc's function that tries. If the lock is taken, the thread queues in
//! the table, tries once more under the bucket's lock, and is parked. Every thread that gives a lock back does so by
//! libc's function first, and then looks into the table. So kernel threads and green ones share a lock, and a kernel
//! thread's wait stays libc's, with its priorities and its cancellation.
//!
//! Invariants:
//! 1. *No wake-up is lost* (invariant 1 of `addresses`): the condition is libc's word, which the
//!    waiter looks at under its bucket's lock, after a fence. All that gives back a lock is in these files, or is
//!    a locked instruction of libc's on x86-64, or (a wait on a condition variable) is told by `condition`.
//! 2. A thread that was woken for a lock either takes it, or queues again, or wakes another. So a lock that is
//!    free has no thread that waits for it, but for those on their way.
//! 3. After libc's function has given a lock back, its memory is not touched: another thread
//!    may have taken it, given it back, and freed it. Its address is a name.
//!
//! Process-shared objects, and mutexes that are robust or know priorities, are libc's alone: a thread that blocks on one
//! is handed off.
//!
//! A forked child has one thread, and does not look into the table: those that wait there are the parent's.

mod condition;
mod locks;
mod own;

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, clockid_t, pthread_cond_t, pthread_mutex_t, pthread_once_t,
    timespec,
};

use super::{deadline_on, errno, nanos, read, set_errno};
use crate::engine::facade::is_forked_child;
use crate::engine::hooks::thread_id;
use crate::libc::addresses::{Addresses, Beside, Buckets, Events, How, Waited, Waiting};
use crate::sys::libraries::Next;
use crate::wait::queue::Position;
use crate::wait::{WaitKind, reason};

/// The green threads that wait for locks, semaphores and conditions.
pub(super) static TABLE: Addresses = Addresses::new(&OBJECT, &BUCKETS);
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
    match !is_forked_child() && TABLE.may_have_after_locked(address) {
        true => TABLE.wake(address, events, most),
        false => 0,
    }
}

/// An object of libc's, as programs give it to functions: a pointer to C. It is valid for as long as the function runs that
/// was given it, and made of words.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Object<T>(*mut T);

impl<T> Object<T> {
    fn address(self) -> usize {
        self.0.addr()
    }

    /// The word at this offset, in glibc's layout.
    fn word<'a>(self, offset: usize) -> &'a AtomicU32 {
        debug_assert!(offset + size_of::<u32>() <= size_of::<T>());
        // SAFETY: the object is valid, and longer; objects of libc's are aligned to words at least.
        unsafe { AtomicU32::from_ptr(self.0.cast::<u32>().byte_add(offset)) }
    }

    fn load(self, offset: usize) -> u32 {
        self.word(offset).load(Relaxed)
    }
}

/// Until when a call waits, as its caller says: until this clock shows that time. `None`: for ever.
#[derive(Clone, Copy)]
struct Limit(clockid_t, Option<*const timespec>);

const FOR_EVER: Limit = Limit(CLOCK_MONOTONIC, None);

/// Until the real clock shows that time.
fn real_time(time: *const timespec) -> Limit {
    Limit(CLOCK_REALTIME, Some(time))
}

impl Limit {
    /// Whether libc's functions accept the clock.
    fn has_clock(self) -> bool {
        matches!(self.0, CLOCK_REALTIME | CLOCK_MONOTONIC)
    }

    /// Whether libc's functions accept the clock and the time.
    fn is_valid(self) -> bool {
        self.has_clock() && (self.1.is_none() || self.time().is_some())
    }

    fn time(self) -> Option<u64> {
        // SAFETY: the caller's time, which libc's function reads as well.
        let time = unsafe { *self.1? };
        // A time before the clock's beginning has passed, as its first second has.
        let tv_sec = time.tv_sec.max(0);
        nanos(timespec { tv_sec, ..time })
    }

    /// In monotonic nanoseconds, as the clock is now.
    fn deadline(self) -> Option<u64> {
        self.time().map(|time| deadline_on(self.0, time))
    }

    /// Whether the clock shows that time, or a later one. It may have been set meanwhile.
    fn has_come(self) -> bool {
        self.time().is_some_and(|time| read(self.0) >= time)
    }
}

/// Parks the calling thread at `address` until `attempt` returns an answer. It is asked under the bucket's
/// lock, before each wait. `None`: the time is up.
fn wait<A>(
    address: usize,
    events: Events,
    limit: Limit,
    mut attempt: impl FnMut(&Beside<'_>) -> Option<A>,
) -> Option<A> {
    let mut position = Position::Back;
    loop {
        let place = [Waiting::new(address, events)];
        let refuse = |_, beside: Beside<'_>| attempt(&beside).map_or(Ok(()), Err);
        match TABLE.wait(&place, How::Park, position, limit.deadline(), refuse, || ()) {
            Err(answer) => return Some(answer),
            // Another thread was faster: this one stays the first.
            Ok(Waited::Woken(_)) => position = Position::Front,
            Ok(_) if limit.has_come() => return None,
            Ok(_) => {}
        }
    }
}

/// The name by which libc's locks know the calling thread.
fn my_id() -> Option<u32> {
    // SAFETY: the thread's own name.
    unsafe { thread_id(libc::pthread_self() as usize) }
}

/// Waits on a word that only this process uses: any thread, by the hooked system call. May return early.
fn futex_wait(word: &AtomicU32, expected: u32) {
    futex(word, libc::FUTEX_WAIT, expected);
}

/// Wakes threads that wait on a word, which may be gone by now.
fn futex_wake(word: *const AtomicU32, most: u32) {
    futex(word, libc::FUTEX_WAKE, most.min(i32::MAX as u32));
}

fn futex(word: *const AtomicU32, operation: c_int, value: u32) {
    let before = errno();
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let for_ever = core::ptr::null::<timespec>();
    // SAFETY: a valid word, or one that is only named.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, value, for_ever) };
    set_errno(before);
}

/// What C11's functions answer, by threads.h: success, busy, no memory, timed out, error. glibc's types are those of its
/// pthreads.
extern "C" fn answered(_: usize, errno: c_int) -> c_int {
    match errno {
        0 => 0,
        libc::EBUSY => 1,
        libc::ENOMEM => 3,
        libc::ETIMEDOUT => 4,
        _ => 2,
    }
}

extern "C" fn unwound(_: usize) {}

/// Declares C11's names. (A thread may be cancelled in some of these functions, or they unwind.)
macro_rules! names {
    ($($name:ident($($argument:ident: $Type:ty),*) is $file:ident::$as_pthread:ident;)*) => {
        around! {
            $(fn $name($($argument: $Type),*) -> c_int {
                before {
                    Next::call($file::$as_pthread as *const (), 0)
                }
                after answered,
                unwound unwound,
            })*
        }
    };
}

names! {
    mtx_lock(lock: Object<pthread_mutex_t>) is locks::pthread_mutex_lock;
    mtx_timedlock(lock: Object<pthread_mutex_t>, time: *const timespec) is locks::pthread_mutex_timedlock;
    mtx_unlock(lock: Object<pthread_mutex_t>) is locks::pthread_mutex_unlock;
    cnd_signal(condition: Object<pthread_cond_t>) is condition::pthread_cond_signal;
    cnd_broadcast(condition: Object<pthread_cond_t>) is condition::pthread_cond_broadcast;
    cnd_wait(condition: Object<pthread_cond_t>, lock: Object<pthread_mutex_t>) is condition::pthread_cond_wait;
    cnd_timedwait(condition: Object<pthread_cond_t>, lock: Object<pthread_mutex_t>, time: *const timespec)
        is condition::pthread_cond_timedwait;
    call_once(control: Object<pthread_once_t>, initialise: unsafe extern "C-unwind" fn()) is own::pthread_once;
}
