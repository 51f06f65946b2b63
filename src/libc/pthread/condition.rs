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
//!
//! # Mutexes that libc unlocks without a word
//!
//! In `pthread_cond_wait` of a kernel thread libc unlocks the mutex, and none of our functions hears of it. Around
//! that call the kernel thread raises counters, which a table has for mutexes, and for mutexes with their owners. A
//! green thread that finds the mutex taken looks at them under its bucket's lock, before it is parked. If its owner may
//! be such a kernel thread, one green thread *stands* for all others that wait for this mutex: it makes libc's call, on
//! a kernel thread that it blocks. The others are parked: when the standing thread has the mutex
//! and gives it back, it does so by our function, which wakes the next.
//!
//! | | |
//! |---|---|
//! | [`WAITS`] of a mutex, and of a mutex and an owner | how many kernel threads may unlock it without a word; who owned it then |
//! | [`STANDING`] of a mutex | the mutex for which a green thread stands; 0: none |
//!
//! The owner, which libc notes in the mutex, tells a kernel thread that is about to unlock it from one that has done so,
//! and may wait for hours. If there is none, the holder has just locked it or is about to unlock it, or libc does not note
//! it: then it may be anybody.
//!
//! No wake-up is lost. Let a green thread G be parked for a mutex. It took the bucket's lock, made a fence, and saw the
//! mutex taken, by a thread H. Let R be that H gives it back.
//! 1. Who locks the mutex after R makes a fence when it gives the mutex back in its turn, or before it does so without
//!    a word, and looks at the bucket then. This fence comes after G's, for otherwise G would have seen the mutex as
//!    it was then. So that thread finds the bucket not empty, and wakes G or one that is before G. That one takes the mutex,
//!    or stands for it, or queues again because the next holder came first, to which all this applies.
//! 2. The same holds of H, if R is a call of our function. So let R be without a word. H has raised the counters, made a
//!    fence, looked at the bucket, and made R. If G's fence comes before H's, H has found G.
//! 3. If H's fence comes before G's, G sees what H did before it, or what was done later. As the owner G saw H; or nobody,
//!    since R had begun; or one that locked the mutex after R, which finds G by 1. In the first two cases G saw
//!    the counters raised, and stands, or saw another that stands; or it saw them lowered. H lowers them after it has
//!    locked the mutex again, after R: again 1.
//! 4. A thread that stands ends with the mutex, which it gives back by our function, or without it (its time is up): then
//!    it clears `STANDING`, makes a fence, and wakes another. G saw it before it was cleared, so
//!    G's fence came first, and G is found.
//!
//! Orderings: all accesses are Relaxed. The fences are those of `addresses`.

use core::ffi::c_int;
use core::mem::zeroed;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use libc::{pthread_cond_t, pthread_mutex_t, timespec};

use super::{FOR_EVER, LOCK, Libcs, Limit, Object, SIGNAL, TABLE, locks, wake};
use crate::engine::facade::{blocking, is_forked_child};
use crate::libc::addresses::{Beside, How, Waited, Waiting};
use crate::libc::{Interruption, count_parked, heed, interruptible, is_hooked};
use crate::sys::libraries::Decision;
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
    real: Libcs<'_>,
) -> c_int {
    if condition.has(IS_SHARED) || mutex.is_special() {
        return ended(raise(mutex), blocking(real));
    }
    count_parked();
    if !limit.is_valid() {
        return libc::EINVAL;
    }
    if mutex.may_not_unlock() {
        return libc::EPERM;
    }
    let place = [Waiting::new(condition.address(), SIGNAL)];
    let mut refuse = |_, _: Beside<'_>| Ok(());
    let unlock = || {
        // SAFETY: a mutex that the caller has locked.
        unsafe { locks::pthread_mutex_unlock(mutex) };
    };
    #[cfg(sim)]
    if crate::sys::simulated::is_spurious() {
        unlock();
        crate::thread::yield_now();
        // SAFETY: as below.
        return unsafe { locks::pthread_mutex_lock(mutex) };
    }
    let deadline = limit.deadline();
    let (how, position) = (How::Listen, Position::Back);
    let ended = TABLE.wait(&place, how, position, deadline, &mut refuse, &unlock);
    // SAFETY: a mutex, which the caller keeps.
    match unsafe { locks::pthread_mutex_lock(mutex) } {
        // If the clock was set back meanwhile, the wait ends without a signal.
        0 if ended == Ok(Waited::TimedOut) && limit.has_come() => libc::ETIMEDOUT,
        0 if ended == Ok(Waited::Interrupted) => {
            heed(!0); // where the thread is cancelled, it has the mutex
            0
        }
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
                        operation!();
                        // SAFETY: the caller's arguments, unchanged.
                        let real = || unsafe { $name::real($condition, $mutex $(, $argument)*) };
                        interruptible(Interruption::Returns, || wait_or($condition, $mutex, $limit, &real))
                    }
                    match is_hooked() {
                        true => Decision::call(parking as *const (), 0),
                        false => Decision::call($name::REAL.target(), raise($mutex)),
                    }
                }
                after ended,
                unwound lower,
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
        operation!();
        let answer = real();
        wake(condition.address(), SIGNAL, 1);
        answer
    }

    fn pthread_cond_broadcast["GLIBC_2.3.2"](condition: Object<pthread_cond_t>) -> c_int
    where real() {
        operation!();
        let answer = real();
        wake(condition.address(), SIGNAL, usize::MAX);
        answer
    }
}

/// Of so many that threads which wait seldom meet by chance: a thread stands in vain where two counters are raised by
/// others.
const SLOTS: usize = 4096;

static WAITS: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];
static STANDING: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

fn slot(mutex: usize, owner: u32) -> usize {
    let key = (mutex as u64 >> 3) ^ u64::from(owner) << 32;
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % SLOTS
}

/// The calling thread, which has the mutex, raises the counters. The number names them for [`lower`]; it is not 0.
fn raise(mutex: Object<pthread_mutex_t>) -> usize {
    let address = mutex.address();
    let slots = [slot(address, 0), slot(address, mutex.owner())];
    for slot in slots {
        WAITS[slot].fetch_add(1, Relaxed);
    }
    if !is_forked_child() {
        // The thread that is woken looks at the counters, and stands for the others.
        TABLE.wake(address, LOCK, 1);
    }
    1 + slots[0] + slots[1] * SLOTS
}

/// Lowers the counters; 0: none were raised.
extern "C" fn lower(number: usize) {
    if let Some(both) = number.checked_sub(1) {
        for slot in [both % SLOTS, both / SLOTS] {
            WAITS[slot].fetch_sub(1, Relaxed);
        }
    }
}

/// Comes after a wait of libc's, as [`lower`] if a thread is cancelled there; the thread has the mutex again by then.
extern "C" fn ended(number: usize, answer: c_int) -> c_int {
    lower(number);
    answer
}

/// How a green thread waits for a mutex that may be unlocked without a word.
pub(super) struct Stand {
    /// It stands for all; otherwise it is one more: the slot's thread stands for another mutex.
    for_all: bool,
}

/// Asks whether the caller, which has found the mutex taken and holds its bucket's lock, may be parked. If not, it
/// calls [`Stand::waiting`].
pub(super) fn must_stand(mutex: Object<pthread_mutex_t>) -> Option<Stand> {
    let address = mutex.address();
    let may_be = |owner| WAITS[slot(address, owner)].load(Relaxed) != 0;
    if !may_be(0) || !may_be(mutex.owner()) {
        return None;
    }
    let stood = STANDING[slot(address, 0)].compare_exchange(0, address, Relaxed, Relaxed);
    let for_all = stood.is_ok();
    (stood != Err(address)).then_some(Stand { for_all })
}

impl Stand {
    /// Runs `lock`, libc's call, which returns whether the caller has the mutex now.
    pub(super) fn waiting(self, mutex: usize, lock: impl FnOnce() -> i32) -> i32 {
        let answer = lock();
        if self.for_all {
            STANDING[slot(mutex, 0)].store(0, Relaxed);
        }
        if answer != 0 {
            // Another thread may have to stand in its place.
            TABLE.wake(mutex, LOCK, 1);
        }
        answer
    }
}
