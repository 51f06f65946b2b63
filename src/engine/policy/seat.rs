//! [`Seat`]: the right to act as one processor.
//!
//! Invariant: a processor of a runtime has at most one seat at a time, as the caller of
//! [`Seat::new`] promises. A seat stays on one kernel thread, since it is neither `Send` nor `Sync`.

use core::fmt;
use core::marker::PhantomData;

use crate::engine::sys::statics::MAX;

/// The right to act as one of a runtime's processors.
///
/// The scheduler lends a seat to the policy for one call. A processor has only one seat; so the
/// data that a policy keeps for each processor has one user at a time. A seat stays on the kernel
/// thread that makes the call.
///
/// # Examples
///
/// A policy that counts how many threads each processor takes:
///
/// ```
/// use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
/// use greenthread::runtime::{Mode, Runtime};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static TAKEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
///
/// #[derive(Default)]
/// struct Counting(Lock<Queue>);
///
/// impl Policy for Counting {
///     fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
///         self.0.lock().push(thread);
///         ForOthers::Work
///     }
///
///     fn next(&self, seat: &Seat, _: Others) -> Option<Next> {
///         let thread = self.0.lock().pop()?;
///         TAKEN[seat.index()].fetch_add(1, Ordering::Relaxed);
///         Some(thread.into())
///     }
///
///     fn len(&self, processor: Option<usize>) -> usize {
///         match processor {
///             None => self.0.lock().len(),
///             Some(_) => 0,
///         }
///     }
/// }
///
/// let runtime = Runtime::builder().processors(2).policy(Counting::default()).build()?;
/// runtime.spawn(|| ()).join().unwrap();
/// let taken: usize = TAKEN.iter().map(|count| count.load(Ordering::Relaxed)).sum();
/// match runtime.mode() {
///     Mode::Green => assert!(taken >= 1),
///     _ => assert_eq!(taken, 0),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A seat cannot be used by two threads at once:
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
    /// The runtime's number and, in the low bits, the processor's index: one word to compare.
    name: u64,
    not_shared: PhantomData<*const ()>,
}

/// The bits of a seat's name that hold the index.
const INDEX_BITS: u32 = 16;
const _: () = assert!(MAX < 1 << INDEX_BITS);

impl Seat {
    /// Makes the seat of a processor. `runtime` is a number other than 0 that no other runtime has.
    /// (An address will do: it has at most 48 bits.)
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

    /// Returns the index of the processor.
    ///
    /// It is less than the number of processors that [`Policy::resize`](super::Policy::resize) was
    /// last called with.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue, Ready, Seat};
    ///
    /// /// Takes a thread from the processor's own queue.
    /// fn take(queues: &[Lock<Queue>], seat: &Seat) -> Option<Ready> {
    ///     queues.get(seat.index())?.lock().pop()
    /// }
    /// ```
    #[inline(always)]
    pub fn index(&self) -> usize {
        (self.name & ((1 << INDEX_BITS) - 1)) as usize
    }

    /// Returns a number other than 0 that only this processor's seat in this runtime has.
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
