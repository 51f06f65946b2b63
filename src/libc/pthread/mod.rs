//! The threads' primitives of C and C++: `pthread_…`, `sem_…`, and C11's `mtx_…`, `cnd_…`, `call_once`.
//!
//! | file | what is whose |
//! |---|---|
//! | `locks` | mutexes, reader-writer locks, semaphores: the lock is libc's; a green thread that finds it taken waits in [`TABLE`] |
//! | `condition` | green threads wait in [`TABLE`], kernel threads in libc; and the one place where libc unlocks a mutex and we do not see it |
//! | `create` | the life of a pthread that is a green thread |
//! | `modules` | libraries whose threads stay kernel threads |
//! | `signals` | signals for one green thread, cancellation |
//! | `mod` | what they share; barriers, once: ours for all threads, built on futexes, which park; C11's names for all of it |
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
//!
//! # `pthread_once`
//!
//! | the control word | |
//! |---|---|
//! | 0 | nobody has called yet, or a call has unwound |
//! | process id × 4 + 1 | a thread of that process calls; in a forked child that thread is gone, and another calls again |
//! | 2 | done, as in glibc |
//!
//! Orderings: "done" is stored with Release and read with Acquire.
//!
//! # Barriers
//!
//! The memory of a private one is laid out anew:
//!
//! | offset | ours | glibc's |
//! |---|---|---|
//! | 0 | how many threads have come in this round | |
//! | 4 | the round: the futex on which threads wait | |
//! | 8 | how many threads it takes | the same |
//! | 12 | [`OURS`] | 0, or 128: process-shared |
//! | 16 | how many threads are inside: the futex on which the thread waits that destroys it | |
//!
//! A thread comes by one change of the first two words. The last one of a round empties the count and begins the
//! next round, which lets the others go. Threads may come for the next round before the others have left.
//!
//! A barrier may be destroyed, and its memory freed, as soon as one thread has returned. So a thread takes itself out
//! of `inside` as its last step, and `pthread_barrier_destroy` waits for that. Wakers know the memory by its address only.
//!
//! Orderings: threads come with AcqRel and see the new round with Acquire, so what they did before the barrier
//! happens before what they do after it. A thread leaves with Release, and the one that destroys sees that with Acquire.

mod condition;
pub(super) mod create;
mod locks;
mod modules;
pub(super) mod signals;

use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, FUTEX_WAIT, FUTEX_WAKE, PTHREAD_PROCESS_PRIVATE, clockid_t,
    pthread_barrier_t, pthread_barrierattr_t, pthread_cond_t, pthread_mutex_t, pthread_once_t,
    timespec,
};

use super::{deadline_on, errno, is_on, nanos, read, set_errno};
use crate::engine::facade::{blocking, is_forked_child};
use crate::engine::hooks::thread_id;
use crate::libc::addresses::{Addresses, Beside, Buckets, Events, How, Waited, Waiting};
use crate::sys::libraries::Decision;
use crate::wait::{WaitKind, queue::Position};

/// The green threads that wait for locks, semaphores and conditions.
pub(super) static TABLE: Addresses = Addresses::new([&OBJECT, &LISTENING], &BUCKETS);
static BUCKETS: Buckets = Buckets::new();

/// For reports.
static OBJECT: WaitKind = WaitKind::inside("lock of C").handles();
static LISTENING: WaitKind = WaitKind::inside("lock of C").returns();

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

/// Makes libc's call, with the caller's arguments.
type Libcs<'a> = &'a dyn Fn() -> c_int;

/// Until when a call waits, as its caller says: until this clock shows that time. `None`: for ever.
#[derive(Clone, Copy)]
struct Limit(clockid_t, Option<*const timespec>);

const FOR_EVER: Limit = Limit(CLOCK_MONOTONIC, None);

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
/// lock, before each wait. `None`: the time is up, or there is a signal for the thread.
fn wait<A>(
    address: usize,
    events: Events,
    limit: Limit,
    mut attempt: impl FnMut(&Beside<'_>) -> Option<A>,
) -> Option<A> {
    let mut position = Position::Back;
    loop {
        let place = [Waiting::new(address, events)];
        let mut answer = None;
        let mut refuse = |_, beside: Beside<'_>| {
            answer = attempt(&beside);
            answer.is_none().then_some(()).ok_or(())
        };
        let deadline = limit.deadline();
        let how = match events {
            POST => How::Listen,
            _ => How::Park,
        };
        match TABLE.wait(&place, how, position, deadline, &mut refuse, &|| ()) {
            Err(()) => return answer,
            Ok(Waited::Interrupted) if how == How::Listen => return None,
            // A wait for a lock goes on whatever handlers run.
            Ok(Waited::Interrupted) => {
                signals::handle();
                position = Position::Front;
            }
            // If another thread is faster now, this one queues again as the first.
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

/// Waits on a word that only this process uses: any thread, by the hooked system call. It may return early. Or wakes threads that
/// wait on a word, which may be gone by now.
fn futex(word: *const AtomicU32, operation: c_int, value: u32) {
    let before = errno();
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let for_ever = core::ptr::null::<timespec>();
    // SAFETY: a valid word, or one that is only named.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, value, for_ever) };
    set_errno(before);
}

// ==== once, and barriers ====

const DONE: u32 = 2;

/// Says how the call has ended. The number is the control word's address, or 0: it was libc's.
fn end(word: usize, how: u32) {
    if word != 0 {
        // The control word is there for as long as the call has not ended.
        let word = Object(word as *mut pthread_once_t).word(0);
        // Release: partner is the Acquire of those that find it done. The word may be gone afterwards.
        word.store(how, Release);
        futex(word, FUTEX_WAKE, i32::MAX as u32);
    }
}

extern "C" fn done(word: usize, _: c_int) -> c_int {
    end(word, DONE);
    0
}

extern "C" fn not_done(word: usize) {
    end(word, 0);
}

around! {
    fn pthread_once(
        control: Object<pthread_once_t>, initialise: unsafe extern "C-unwind" fn(),
    ) -> c_int {
        before {
            let word = control.word(0);
            // Acquire: partner is the Release in `end`.
            if word.load(Acquire) & DONE != 0 {
                return Decision::answer(0);
            }
            if !is_on() {
                return Decision::call(pthread_once::REAL.target(), 0);
            }
            let calling = std::process::id() << 2 | 1;
            loop {
                // Acquire: as above.
                match word.load(Acquire) {
                    done if done & DONE != 0 => return Decision::answer(0),
                    busy if busy == calling => futex(word, FUTEX_WAIT, busy),
                    free => {
                        // Acquire: what a call that has unwound did is seen by the next.
                        if word.compare_exchange(free, calling, Acquire, Relaxed).is_ok() {
                            // The function takes no arguments, so it does not look at those of this call.
                            return Decision::call(initialise as *const (), control.address());
                        }
                    }
                }
            }
        }
        after done,
        unwound not_done,
    }
}

const ROUND: usize = 4;
const COUNT: usize = 8;
const MARK: usize = 12;
const INSIDE: usize = 16;

/// No value of glibc's.
const OURS: u32 = 0x6772_6e74;

impl Object<pthread_barrier_t> {
    /// The round, and below it how many threads have come in it.
    fn state<'a>(self) -> &'a AtomicU64 {
        // SAFETY: a valid object, aligned to eight bytes. The lower half comes first, and an access to one half agrees with
        // those to both.
        unsafe { AtomicU64::from_ptr(self.0.cast()) }
    }

    fn is_ours(self) -> bool {
        self.load(MARK) == OURS
    }
}

interposed! {
    fn pthread_barrier_init(
        barrier: Object<pthread_barrier_t>, attributes: *const pthread_barrierattr_t, count: c_uint,
    ) -> c_int where real() {
        let mut shared = PTHREAD_PROCESS_PRIVATE;
        if !attributes.is_null() {
            // SAFETY: the caller's attributes, and a place of ours.
            unsafe { libc::pthread_barrierattr_getpshared(attributes, &mut shared) };
        }
        let is_acceptable = (1..=c_int::MAX as c_uint).contains(&count);
        if shared != PTHREAD_PROCESS_PRIVATE || !is_acceptable || !is_on() {
            return real();
        }
        barrier.state().store(0, Relaxed);
        for (offset, value) in [(COUNT, count), (MARK, OURS), (INSIDE, 0)] {
            barrier.word(offset).store(value, Relaxed);
        }
        0
    }

    // The barrier stays as long as this thread is inside.
    fn pthread_barrier_wait(barrier: Object<pthread_barrier_t>) -> c_int where real() {
        if !barrier.is_ours() {
            return blocking(real);
        }
        let (round, inside) = (barrier.word(ROUND), barrier.word(INSIDE));
        let count = u64::from(barrier.load(COUNT));
        inside.fetch_add(1, Relaxed);
        let next = |state: u64| match u64::from(state as u32) + 1 == count {
            // The last thread begins the next round, in which no thread has come yet.
            true => (state >> 32).wrapping_add(1) << 32,
            false => state + 1,
        };
        // AcqRel: partners are the other threads of the round, here and below.
        let before = barrier.state().fetch_update(AcqRel, Relaxed, |state| Some(next(state)));
        let before = before.unwrap_or_default();
        let mine = (before >> 32) as u32;
        let is_last = next(before) as u32 == 0;
        if is_last {
            futex(round, FUTEX_WAKE, i32::MAX as u32);
        } else {
            // Acquire: partner is the AcqRel above.
            while round.load(Acquire) == mine {
                futex(round, FUTEX_WAIT, mine);
            }
        }
        // Release: partner is the Acquire of the thread that destroys the barrier.
        if inside.fetch_sub(1, Release) == 1 {
            futex(inside, FUTEX_WAKE, 1);
        }
        if is_last { libc::PTHREAD_BARRIER_SERIAL_THREAD } else { 0 }
    }

    fn pthread_barrier_destroy(barrier: Object<pthread_barrier_t>) -> c_int where real() {
        if !barrier.is_ours() {
            return blocking(real);
        }
        let inside = barrier.word(INSIDE);
        // Acquire: partner is the Release with which a thread leaves.
        while let some @ 1.. = inside.load(Acquire) {
            futex(inside, FUTEX_WAIT, some);
        }
        barrier.word(MARK).store(0, Relaxed);
        0
    }
}

// ==== C11's names ====

/// What C11's functions answer, by threads.h: success, busy, no memory, timed out, error. glibc's types are those of its
/// pthreads.
extern "C" fn answered(_: usize, errno: c_int) -> c_int {
    as_c11(errno)
}

fn as_c11(errno: c_int) -> c_int {
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
    ($($name:ident($($argument:ident: $Type:ty),*) is $as_pthread:path;)*) => {
        around! {
            $(fn $name($($argument: $Type),*) -> c_int {
                before {
                    Decision::call($as_pthread as *const (), 0)
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
    call_once(control: Object<pthread_once_t>, initialise: unsafe extern "C-unwind" fn()) is self::pthread_once;
}
