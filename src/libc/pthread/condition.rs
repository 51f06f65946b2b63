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
//! word lies differs between versions of glibc, so one is made to look at when the program is loaded ([`FLAGS`]).

use core::convert::Infallible;
use core::ffi::c_int;
use core::mem::zeroed;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::{pthread_cond_t, pthread_mutex_t, timespec};

use super::{FOR_EVER, Limit, Object, SIGNAL, TABLE, mutex, silent, wake};
use crate::engine::facade::blocking;
use crate::libc::addresses::{Beside, How, Waited, Waiting};
use crate::libc::macros::when_loaded;
use crate::libc::{around, count_parked, interposed, is_hooked};
use crate::wait::queue::Position;

const IS_SHARED: u32 = 1;
const IS_MONOTONIC: u32 = 2;

/// Where the word of flags lies. 0: it was not recognised. Relaxed: the offset is all that there is to see.
static FLAGS: AtomicUsize = AtomicUsize::new(0);
when_loaded!(FLAGS.store(look_for_flags(), Relaxed));

/// A condition variable with both flags has one word that is not 0.
fn look_for_flags() -> usize {
    const WORDS: usize = size_of::<pthread_cond_t>() / size_of::<u32>();
    let mut words = [0_u32; WORDS];
    // SAFETY: places of ours; a condition variable is made of words, and has that size.
    let is_made = unsafe {
        let mut attributes: libc::pthread_condattr_t = zeroed();
        libc::pthread_condattr_init(&mut attributes) == 0
            && libc::pthread_condattr_setclock(&mut attributes, libc::CLOCK_MONOTONIC) == 0
            && libc::pthread_condattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED) == 0
            && libc::pthread_cond_init(words.as_mut_ptr().cast(), &attributes) == 0
    };
    let mut set = words.iter().enumerate().filter(|&(_, &word)| word != 0);
    match (set.next(), set.next()) {
        (Some((index, &flags)), None) if is_made && flags == IS_SHARED | IS_MONOTONIC => {
            index * size_of::<u32>()
        }
        _ => 0,
    }
}

impl Object<pthread_cond_t> {
    /// The flags; the other bits of the word count. A condition variable that cannot be read counts as process-shared.
    fn has(self, flag: u32) -> bool {
        match FLAGS.load(Relaxed) {
            0 => flag == IS_SHARED,
            offset => self.load(offset) & flag != 0,
        }
    }

    /// The clock that it goes by.
    fn clock(self) -> libc::clockid_t {
        match self.has(IS_MONOTONIC) {
            true => libc::CLOCK_MONOTONIC,
            false => libc::CLOCK_REALTIME,
        }
    }
}

/// Waits; the calling thread is hooked. `limit` and `real` as in `mutex`.
fn wait_or(
    condition: Object<pthread_cond_t>,
    mutex: Object<pthread_mutex_t>,
    limit: Limit,
    real: impl FnOnce() -> c_int,
) -> c_int {
    if condition.has(IS_SHARED) || mutex.is_special() {
        return silent::unlocking(mutex, || blocking(real));
    }
    count_parked();
    if !limit.is_valid() {
        return libc::EINVAL;
    }
    if mutex.may_not_unlock() {
        return libc::EPERM;
    }
    let place = [Waiting::new(condition.address(), SIGNAL)];
    let refuse = |_, _: Beside<'_>| Ok::<(), Infallible>(());
    let unlock = || {
        // SAFETY: a mutex that the caller has locked.
        unsafe { mutex::pthread_mutex_unlock(mutex) };
    };
    let deadline = limit.deadline();
    let Ok(ended) = TABLE.wait(&place, How::Park, Position::Back, deadline, refuse, unlock);
    // SAFETY: a mutex, which the caller keeps.
    match unsafe { mutex::pthread_mutex_lock(mutex) } {
        // If the clock was set back meanwhile, the wait ends without a signal.
        0 if ended == Waited::TimedOut && limit.has_come() => libc::ETIMEDOUT,
        answer => answer,
    }
}

/// Declares waits, which unlock a mutex and lock it again. `$limit` says until when.
macro_rules! waits {
    ($(
        fn $name:ident $([$version:literal])?
            ($condition:ident, $mutex:ident $(, $argument:ident: $Type:ty)*) until $limit:expr;
    )*) => {
        around! {
            $(fn $name $([$version])? (
                $condition: Object<pthread_cond_t>,
                $mutex: Object<pthread_mutex_t>
                $(, $argument: $Type)*
            ) -> c_int {
                before {
                    extern "C-unwind" fn parking(
                        $condition: Object<pthread_cond_t>,
                        $mutex: Object<pthread_mutex_t>
                        $(, $argument: $Type)*
                    ) -> c_int {
                        // SAFETY: the caller's arguments, unchanged.
                        let real = || unsafe { $name::real($condition, $mutex $(, $argument)*) };
                        wait_or($condition, $mutex, $limit, real)
                    }
                    match is_hooked() {
                        true => silent::not(parking as *const ()),
                        false => silent::begin($mutex, $name::target()),
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
        until Limit(condition.clock(), Some(time));
    fn pthread_cond_clockwait(condition, mutex, clock: libc::clockid_t, time: *const timespec)
        until Limit(clock, Some(time));
}

interposed! {
    fn pthread_cond_signal["GLIBC_2.3.2"](condition: Object<pthread_cond_t>) -> c_int where real() {
        let answer = real();
        wake(condition.address(), SIGNAL, 1);
        answer
    }

    fn pthread_cond_broadcast["GLIBC_2.3.2"](condition: Object<pthread_cond_t>) -> c_int
    where real() {
        let answer = real();
        wake(condition.address(), SIGNAL, usize::MAX);
        answer
    }
}
