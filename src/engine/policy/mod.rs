//! Which ready thread runs next, and where: a policy behind one small trait.
//!
//! A [`Policy`] holds the threads of a runtime that are ready and not running, and nothing else: it
//! neither switches nor wakes anybody. The scheduler hands it a thread that has become ready, asks
//! it for the next one to run, and decides by its answers whom to wake.
//!
//! | policy | its idea | source |
//! |---|---|---|
//! | [`WorkStealing`] (default) | a queue per processor; who has nothing takes half of another's | Go's scheduler |
//! | [`RelaxedFifo`] | an array of queues for all: push to any, take from the older of two | the scheduler proposed for Cforall |
//! | [`LeastLoaded`] | a queue per processor; a thread goes to the shortest of a rotating batch | the seeds' coroutine runtime, Nio |
//! | [`Priorities`] | a queue per processor and priority; aging, so that nothing starves | what the talk misses in Go's |
//! | [`GlobalQueue`] | one queue for all, under a lock | what Go's scheduler no longer is |
//!
//! A runtime's policy is chosen with [`runtime::Builder::policy`](crate::runtime::Builder::policy)
//! or by `GREENTHREAD_POLICY`.
//!
//! # A policy of one's own
//!
//! It takes no unsafe code: a ready thread is a [`Ready`], which can be moved but not copied, and
//! which only `next` and `steal` get rid of. [`Queue`] and [`Heap`] hold any number of them without
//! allocating, and [`Lock`] protects such things.
//!
//! ```
//! use greenthread::policy::{Lock, Next, Policy, Queue, Readied, Ready, Seat};
//! use greenthread::runtime::Runtime;
//!
//! /// Runs threads in the order in which they became ready.
//! #[derive(Default)]
//! struct InOrder(Lock<Queue>);
//!
//! impl Policy for InOrder {
//!     fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> bool {
//!         self.0.lock().push(thread);
//!         true // any processor can take it
//!     }
//!
//!     fn next(&self, _: &Seat, _: bool) -> Option<Next> {
//!         self.0.lock().pop().map(Next::from)
//!     }
//!
//!     fn len(&self, processor: Option<usize>) -> usize {
//!         match processor {
//!             None => self.0.lock().len(),
//!             Some(_) => 0,
//!         }
//!     }
//! }
//!
//! let runtime = Runtime::builder().policy(InOrder::default()).build()?;
//! assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
//! # Ok::<(), std::io::Error>(())
//! ```

mod aging;
mod global_queue;
mod heap;
mod least_loaded;
mod local_queue;
mod lock;
mod priorities;
mod readers;
mod ready;
mod relaxed_fifo;
mod seats;
mod shared_queue;
#[cfg(test)]
mod stand_ins;
mod victims;
mod work_stealing;

pub use self::global_queue::GlobalQueue;
pub use self::heap::Heap;
pub use self::least_loaded::LeastLoaded;
pub use self::lock::{Guard, Lock};
pub use self::priorities::Priorities;
pub use self::ready::{Priority, Queue, Ready, set_priority};
pub use self::relaxed_fifo::RelaxedFifo;
pub use self::victims::Victims;
pub use self::work_stealing::WorkStealing;

use core::fmt;
use core::marker::PhantomData;

use crate::engine::sys::table::MAX;

/// The right to act as one of the runtime's processors. Whoever has it is the only one, so what a
/// policy keeps for each processor has one user at a time. It is lent for one call, and stays on the
/// kernel thread that makes it.
///
/// ```compile_fail,E0277
/// # use greenthread::policy::{Policy, Seat, WorkStealing};
/// fn twice(policy: &WorkStealing, seat: &Seat) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| policy.leave(seat)); // `Seat` cannot be shared between threads
///         policy.leave(seat);
///     });
/// }
/// ```
pub struct Seat {
    /// Of which runtime, and behind it the index: one word to compare.
    name: u64,
    not_shared: PhantomData<*const ()>,
}

/// What the index has of a seat's name.
const INDEX_BITS: u32 = 16;
const _: () = assert!(MAX < 1 << INDEX_BITS);

impl Seat {
    /// `runtime` is a number that no other runtime has, and not 0. (An address will do: it has at
    /// most 48 bits.)
    ///
    /// # Safety
    /// The caller owns that processor of that runtime until it drops the seat.
    #[inline(always)]
    pub(crate) unsafe fn new(processor: usize, runtime: usize) -> Seat {
        Seat {
            name: (runtime as u64) << INDEX_BITS | processor as u64,
            not_shared: PhantomData,
        }
    }

    /// The processor's index, which is less than what [`Policy::resize`] was last called with.
    #[inline(always)]
    pub fn index(&self) -> usize {
        (self.name & ((1 << INDEX_BITS) - 1)) as usize
    }

    /// What no seat has of another processor, or another runtime; not 0.
    #[inline(always)]
    pub(crate) fn name(&self) -> u64 {
        self.name
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seat").field(&self.index()).finish()
    }
}

/// Checks what a policy of ours is told by [`Policy::resize`], which anybody may call.
fn check(processors: usize) {
    assert!(
        (1..=MAX).contains(&processors),
        "a policy for {processors} processors: accepted are 1 to {MAX}"
    );
}

/// How a thread became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readied {
    /// It is new.
    Spawned,
    /// Another thread has woken it.
    Woken,
    /// What it waited for has come: a point in time, or something at a descriptor.
    Arrived,
    /// It gave way by itself.
    Yielded,
    /// Its time slice was over.
    Preempted,
}

/// A thread to run, and whether it goes on in the time slice of the one before.
#[derive(Debug)]
pub struct Next {
    /// The thread.
    pub thread: Ready,
    /// Whether it is preempted when the thread before it would have been. Two threads that wake each
    /// other, and inherit, do not run longer in a row than one alone.
    pub inherits_slice: bool,
}

impl From<Ready> for Next {
    /// A thread with a time slice of its own.
    fn from(thread: Ready) -> Next {
        Next {
            thread,
            inherits_slice: false,
        }
    }
}

/// Holds the ready threads of a runtime.
///
/// All but [`resize`](Policy::resize) is called in the middle of scheduling, by several processors
/// at once. So it must be quick, must not allocate or free, must not block but on a [`Lock`], and
/// must call nothing of this crate besides this module; else all threads may stand still. If it
/// panics, the process is aborted. Nothing that safe code does in it is undefined behaviour.
///
/// A policy may ask another one, those of this module too: all their methods can be called by
/// anybody, at any time. Each of those serves one runtime. They panic if they are given the seat of
/// another one, or of a processor that [`resize`](Policy::resize) has not told them of.
///
/// No thread may be kept for ever: whenever a processor asks, and there are threads that it can
/// take, it must get one; and each must get its turn, if promise is made of fairness.
pub trait Policy: Send + Sync + 'static {
    /// `thread` is ready, by what the processor of `seat` did, or, without a seat, by somebody
    /// outside. True: another processor could run something now, wake one that sleeps.
    ///
    /// If it is false though others could, a thread waits until one of them looks by itself, which
    /// can be several milliseconds.
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> bool;

    /// What the processor of `seat` runs next, without looking at what other processors have for
    /// themselves. `share`: others have nothing to do, so what waits here should be where they can
    /// take it.
    fn next(&self, seat: &Seat, share: bool) -> Option<Next>;

    /// What the processor of `seat`, which has nothing itself, takes over from others. They are
    /// best looked at in the order of `victims`.
    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        let _ = (seat, victims);
        None
    }

    /// The processor of `seat` goes without: what only it could reach must be put where all can.
    fn leave(&self, seat: &Seat) {
        let _ = seat;
    }

    /// There are so many processors from now on, at least one. Called before anything else, and
    /// when a running runtime gets more processors, before it has them, or fewer, when those with
    /// the highest indices have left; a thief may still be offered one of those as a victim. It may
    /// allocate and block, but not wait for a green thread, nor for a change of their number.
    ///
    /// If it panics when there are to be more, there are not: who asked for them, or builds the
    /// runtime, gets an error. If it panics when some have left, which nobody waits for, the process
    /// is aborted.
    fn resize(&self, processors: usize) {
        let _ = processors;
    }

    /// How many threads wait at `processor`; of those that wait at none, for `None`. It may be out of
    /// date by what others do at the same time, and by no more.
    fn len(&self, processor: Option<usize>) -> usize;

    /// How many of those at `processor` other processors cannot take. Whoever runs before them has a
    /// shorter time slice.
    fn out_of_reach(&self, processor: usize) -> usize {
        let _ = processor;
        0
    }

    /// Whether there is something that a processor with nothing to do would get. As exact as
    /// [`len`](Policy::len): after this has said no, processors go to sleep.
    fn has_work_for_others(&self) -> bool {
        self.len(None) != 0
    }
}
