//! Mutexes that libc unlocks without a word: in `pthread_cond_wait` of a kernel thread.
//!
//! Around that call the kernel thread raises counters, which a table has for mutexes, and for mutexes with their owners. A
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

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use core::ffi::c_int;

use libc::pthread_mutex_t;

use super::{LOCK, Object, TABLE};
use crate::engine::facade::is_forked_child;
use crate::sys::unwinding::Next;

/// Of so many that threads which wait seldom meet by chance: a thread stands in vain where two counters are raised by
/// others.
const SLOTS: usize = 4096;

static WAITS: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];
static STANDING: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

fn slot(mutex: usize, owner: u32) -> usize {
    let key = (mutex as u64 >> 3) ^ u64::from(owner) << 32;
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % SLOTS
}

/// The counters that a thread raises while it waits.
#[derive(Clone, Copy)]
struct Raised([usize; 2]);

impl Raised {
    /// The calling thread has the mutex.
    fn new(mutex: Object<pthread_mutex_t>) -> Raised {
        let address = mutex.address();
        let raised = Raised([slot(address, 0), slot(address, mutex.owner())]);
        raised.0.iter().for_each(|&slot| {
            WAITS[slot].fetch_add(1, Relaxed);
        });
        if !is_forked_child() {
            // The one who is woken stands for the others.
            TABLE.wake(address, LOCK, 1);
        }
        raised
    }

    fn lower(self) {
        self.0.iter().for_each(|&slot| {
            WAITS[slot].fetch_sub(1, Relaxed);
        });
    }

    /// As a number that is not 0.
    fn number(self) -> usize {
        1 + self.0[0] + self.0[1] * SLOTS
    }

    fn of(number: usize) -> Option<Raised> {
        let both = number.checked_sub(1)?;
        Some(Raised([both % SLOTS, both / SLOTS]))
    }
}

/// A kernel thread is to call `target`, libc's wait with this mutex, which it has. [`ended`] comes after it, or
/// [`cancelled`]: it has the mutex again by then.
pub(super) fn begin(mutex: Object<pthread_mutex_t>, target: *const ()) -> Next {
    Next::call(target, Raised::new(mutex).number())
}

/// The thread is to call `target`, which is not libc's wait.
pub(super) fn not(target: *const ()) -> Next {
    Next::call(target, 0)
}

pub(super) extern "C" fn ended(number: usize, answer: c_int) -> c_int {
    cancelled(number);
    answer
}

pub(super) extern "C" fn cancelled(number: usize) {
    Raised::of(number).into_iter().for_each(Raised::lower);
}

/// Runs `wait`, libc's wait with this mutex on a green thread, which is not cancelled.
pub(super) fn unlocking<T>(mutex: Object<pthread_mutex_t>, wait: impl FnOnce() -> T) -> T {
    let raised = Raised::new(mutex);
    let answer = wait();
    raised.lower();
    answer
}

/// How a green thread waits for a mutex that may be unlocked without a word.
pub(super) enum Stand {
    /// As the one that stands for all.
    ForAll,
    /// As one more: the slot's thread stands for another mutex.
    Alone,
}

/// Asks whether the caller, which has found the mutex taken and holds its bucket's lock, may be parked. If not, it
/// calls [`Stand::waiting`].
pub(super) fn must_stand(mutex: Object<pthread_mutex_t>) -> Option<Stand> {
    let address = mutex.address();
    let may_be = |owner| WAITS[slot(address, owner)].load(Relaxed) != 0;
    if !may_be(0) || !may_be(mutex.owner()) {
        return None;
    }
    let stand = STANDING[slot(address, 0)].compare_exchange(0, address, Relaxed, Relaxed);
    match stand {
        Ok(_) => Some(Stand::ForAll),
        Err(standing) if standing == address => None,
        Err(_) => Some(Stand::Alone),
    }
}

impl Stand {
    /// Runs `lock`, libc's call, which returns whether the caller has the mutex now.
    pub(super) fn waiting(self, mutex: usize, lock: impl FnOnce() -> i32) -> i32 {
        let answer = lock();
        if matches!(self, Stand::ForAll) {
            STANDING[slot(mutex, 0)].store(0, Relaxed);
        }
        if answer != 0 {
            // Another takes its place.
            TABLE.wake(mutex, LOCK, 1);
        }
        answer
    }
}
