//! Condition variables.
//!
//! A green thread queues in the table, then unlocks the mutex, is parked, and locks the mutex again. A
//! kernel thread makes libc's call. A signal goes to both: it may end two waits, one of each kind, which POSIX
//! allows.
//!
//! No signal is lost: a thread that signals after it has had the mutex has it after the waiter, which
//! was in the queue before it unlocked. So the signal needs no fence to find it.
//!
//! Condition variables say in a word of flags which clock they go by, and whether they are process-shared. Where the
//! word lies differs between versions of glibc, so one is made to look at ([`flags_offset`]).

use core::convert::Infallible;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::{pthread_cond_t, pthread_mutex_t, timespec};

use super::{Asked, FOR_EVER, SIGNAL, TABLE, field, mutex, silent};
use crate::engine::facade::{blocking, is_forked_child};
use crate::libc::addresses::Waited;
use crate::libc::{around, count_parked, interposed, is_hooked};
use crate::wait::queue::Position;

const IS_SHARED: u32 = 1;
const IS_MONOTONIC: u32 = 2;

/// The word of flags. `None`: it was not recognised.
fn flags_offset() -> Option<usize> {
    /// The offset, and 1 beside it. 0: nobody has looked yet.
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    const NOWHERE: usize = usize::MAX;
    match FOUND.load(Relaxed) {
        0 => {
            let found = look_for_flags();
            FOUND.store(found.map_or(NOWHERE, |offset| offset + 1), Relaxed);
            found
        }
        NOWHERE => None,
        found => Some(found - 1),
    }
}

/// A condition variable with both flags has one word that is not 0.
fn look_for_flags() -> Option<usize> {
    const WORDS: usize = size_of::<pthread_cond_t>() / size_of::<u32>();
    let mut words = [0_u32; WORDS];
    let mut attributes = MaybeUninit::<libc::pthread_condattr_t>::uninit();
    // SAFETY: valid places; a condition variable is made of words, and has that size.
    let is_made = unsafe {
        let attributes = attributes.as_mut_ptr();
        libc::pthread_condattr_init(attributes) == 0
            && libc::pthread_condattr_setclock(attributes, libc::CLOCK_MONOTONIC) == 0
            && libc::pthread_condattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) == 0
            && libc::pthread_cond_init(words.as_mut_ptr().cast(), attributes) == 0
    };
    let mut set = words.iter().enumerate().filter(|&(_, &word)| word != 0);
    match (set.next(), set.next()) {
        (Some((index, &flags)), None) if is_made && flags == IS_SHARED | IS_MONOTONIC => {
            Some(index * size_of::<u32>())
        }
        _ => None,
    }
}

/// The flags of a condition variable; the other bits of the word count. One that cannot be read
/// counts as process-shared.
unsafe fn flags(condition: *mut pthread_cond_t) -> u32 {
    // SAFETY: the caller's condition variable, and the offset of a word in it.
    flags_offset().map_or(IS_SHARED, |offset| unsafe {
        field(condition, offset).load(Relaxed)
    })
}

/// Waits; the calling thread is hooked. `asked` and `real` as in `mutex`.
unsafe fn wait_or(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    asked: Asked,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's objects.
    unsafe {
        if flags(condition) & IS_SHARED != 0 || mutex::is_special(mutex) {
            return silent::unlocking(mutex, || blocking(real));
        }
        count_parked();
        let Some(until) = asked.until() else {
            return libc::EINVAL;
        };
        if mutex::may_not_unlock(mutex) {
            return libc::EPERM;
        }
        let Ok(ended) = TABLE.wait_beside(
            condition as usize,
            SIGNAL,
            Position::Back,
            until.deadline(),
            |_| Ok::<(), Infallible>(()),
            || {
                mutex::pthread_mutex_unlock(mutex);
            },
        );
        match mutex::pthread_mutex_lock(mutex) {
            // If the clock was set back meanwhile, the wait ends without a signal.
            0 if ended == Waited::TimedOut && until.has_come() => libc::ETIMEDOUT,
            answer => answer,
        }
    }
}

fn wake(condition: *mut pthread_cond_t, most: usize) {
    if !is_forked_child() {
        TABLE.wake_after_locked(condition as usize, SIGNAL, most);
    }
}

/// The clock that a condition variable goes by.
unsafe fn clock_of(condition: *mut pthread_cond_t) -> libc::clockid_t {
    // SAFETY: the caller's condition variable.
    match unsafe { flags(condition) } & IS_MONOTONIC {
        0 => libc::CLOCK_REALTIME,
        _ => libc::CLOCK_MONOTONIC,
    }
}

/// Declares waits, which unlock a mutex and lock it again. `$asked` says until when.
macro_rules! waits {
    ($(
        fn $name:ident $([$version:literal])?
            ($condition:ident, $mutex:ident $(, $argument:ident: $Type:ty)*) until $asked:expr;
    )*) => {
        around! {
            $(fn $name $([$version])? (
                $condition: *mut pthread_cond_t,
                $mutex: *mut pthread_mutex_t
                $(, $argument: $Type)*
            ) -> c_int {
                before {
                    unsafe extern "C-unwind" fn parking(
                        $condition: *mut pthread_cond_t,
                        $mutex: *mut pthread_mutex_t
                        $(, $argument: $Type)*
                    ) -> c_int {
                        // SAFETY: the caller's objects and time.
                        unsafe {
                            let real = || $name::real($condition, $mutex $(, $argument)*);
                            wait_or($condition, $mutex, $asked, real)
                        }
                    }
                    match is_hooked() {
                        true => silent::not(parking as *const ()),
                        // SAFETY: the caller's mutex.
                        false => unsafe { silent::begin($mutex, $name::target()) },
                    }
                }
                after silent::ended,
                unwound silent::cancelled,
            })*
        }
    };
}

waits! {
    fn pthread_cond_wait["GLIBC_2.3.2"](condition, mutex) until FOR_EVER;
    fn pthread_cond_timedwait["GLIBC_2.3.2"](condition, mutex, time: *const timespec)
        until Asked(clock_of(condition), Some(time));
    fn pthread_cond_clockwait(condition, mutex, clock: libc::clockid_t, time: *const timespec)
        until Asked(clock, Some(time));
}

interposed! {
    fn pthread_cond_signal["GLIBC_2.3.2"](condition: *mut pthread_cond_t) -> c_int {
        // SAFETY: the caller's condition variable.
        let answer = unsafe { pthread_cond_signal::real(condition) };
        wake(condition, 1);
        answer
    }

    fn pthread_cond_broadcast["GLIBC_2.3.2"](condition: *mut pthread_cond_t) -> c_int {
        // SAFETY: the caller's condition variable.
        let answer = unsafe { pthread_cond_broadcast::real(condition) };
        wake(condition, usize::MAX);
        answer
    }
}
