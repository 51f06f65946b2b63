//! Policies: which ready thread runs next, and on which processor.
//!
//! Each runtime has a [`Policy`]. It holds the threads that are ready and not running, and does
//! nothing else: it neither switches threads nor wakes processors. The scheduler hands it each
//! thread that becomes ready, asks it for the next thread to run, and learns from its answers
//! whether a sleeping processor should wake up.
//!
//! | policy | how it works | known from |
//! |---|---|---|
//! | [`WorkStealing`] (default) | Each processor has a queue. A processor whose queue is empty takes half of another one. | Go |
//! | [`RelaxedFifo`] | All processors share many queues. A thread goes to any of them; of two queues, the one whose first thread is older is served. | the scheduler proposed for Cforall |
//! | [`LeastLoaded`] | Each processor has a queue. A thread goes to the shortest of a few queues. | Nio |
//! | [`Priorities`] | Each processor has a queue for each priority. Now and then it serves the oldest thread instead, so that none starves. | |
//! | [`GlobalQueue`] | All processors share one queue under a lock. | Go before version 1.1 |
//!
//! [`runtime::Builder::policy`](crate::runtime::Builder::policy) or the variable
//! `GREENTHREAD_POLICY` chooses the policy of a runtime.
//!
//! # Writing a policy
//!
//! A policy needs no unsafe code. A ready thread is a [`Ready`], which can be moved but not copied,
//! and which leaves the policy only as the result of [`next`](Policy::next) or
//! [`steal`](Policy::steal). [`Queue`] and [`Heap`] hold any number of ready threads without
//! allocating, and [`Lock`] protects what processors share.
//!
//! ```
//! use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
//! use greenthread::runtime::Runtime;
//!
//! /// Runs threads in the order in which they became ready.
//! #[derive(Default)]
//! struct InOrder(Lock<Queue>);
//!
//! impl Policy for InOrder {
//!     fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
//!         self.0.lock().push(thread);
//!         ForOthers::Work // any processor can take it
//!     }
//!
//!     fn next(&self, _: &Seat, _: Others) -> Option<Next> {
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
    /// It is less than the number of processors that [`Policy::resize`] was last called with.
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

    /// A number other than 0 that only this processor's seat in this runtime has.
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

/// Panics if a policy of this module cannot have so many processors. ([`Policy::resize`] may be
/// called by anybody, with any number.)
fn check(processors: usize) {
    assert!(
        (1..=MAX).contains(&processors),
        "a policy for {processors} processors: accepted are 1 to {MAX}"
    );
}

/// Whether there is work for other processors than the one that asks.
///
/// # Examples
///
/// ```
/// use greenthread::policy::ForOthers;
/// assert_eq!(ForOthers::when(1 + 1 == 2), ForOthers::Work);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForOthers {
    /// Another processor could run something now.
    Work,
    /// None would find anything.
    Nothing,
}

impl ForOthers {
    /// Returns [`Work`](ForOthers::Work) if there is some.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::ForOthers;
    /// assert_eq!(ForOthers::when(false), ForOthers::Nothing);
    /// ```
    #[inline]
    pub const fn when(there_is_some: bool) -> ForOthers {
        match there_is_some {
            true => ForOthers::Work,
            false => ForOthers::Nothing,
        }
    }
}

/// What the other processors of a runtime are doing.
///
/// # Examples
///
/// ```
/// use greenthread::policy::Others;
/// assert_ne!(Others::Busy, Others::Idle);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Others {
    /// All of them run threads.
    Busy,
    /// At least one of them has nothing to do.
    Idle,
}

/// How a thread became ready.
///
/// # Examples
///
/// ```
/// use greenthread::policy::Readied;
///
/// /// Whether the thread is likely to run for long.
/// fn computes(how: Readied) -> bool {
///     match how {
///         Readied::Preempted => true,
///         Readied::Spawned | Readied::Woken | Readied::Arrived | Readied::Yielded => false,
///         _ => false, // the list may grow
///     }
/// }
///
/// assert!(computes(Readied::Preempted));
/// assert!(!computes(Readied::Woken));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readied {
    /// The thread is new.
    Spawned,
    /// Another thread has woken the thread.
    Woken,
    /// An event that the thread waited for has come: a point in time, or input or output at a
    /// descriptor.
    Arrived,
    /// The thread has given way by itself ([`yield_now`](crate::yield_now)).
    Yielded,
    /// The thread has used up its time slice and was made to give way.
    Preempted,
}

/// A thread to run, and the time slice that it runs in.
///
/// # Examples
///
/// ```
/// use greenthread::policy::{Next, Ready};
///
/// /// Runs `woken` in the time slice of the thread that woke it.
/// fn in_the_same_slice(woken: Ready) -> Next {
///     Next {
///         thread: woken,
///         inherits_slice: true,
///     }
/// }
///
/// /// Gives `thread` a time slice of its own.
/// fn in_a_new_slice(thread: Ready) -> Next {
///     Next::from(thread)
/// }
/// ```
#[derive(Debug)]
pub struct Next {
    /// The thread that runs next.
    pub thread: Ready,
    /// Whether the thread goes on in the time slice of the thread before it, and is preempted when
    /// that one would have been. Two threads that wake each other in turn then run no longer in a
    /// row than one thread alone.
    pub inherits_slice: bool,
}

impl From<Ready> for Next {
    /// Gives the thread a time slice of its own.
    fn from(thread: Ready) -> Next {
        Next {
            thread,
            inherits_slice: false,
        }
    }
}

/// Holds the ready threads of a runtime and chooses the next one to run.
///
/// The scheduler calls all methods but [`resize`](Policy::resize) in the middle of scheduling, from
/// several processors at once. They must be quick, must not allocate or free memory, must not block
/// except on a [`Lock`], and must not call anything of this crate outside this module. Otherwise
/// all threads of the runtime may stand still. If one of them panics, the process aborts. A policy
/// written in safe code cannot cause undefined behaviour, whatever it does.
///
/// Any code may call the methods of a policy at any time, so one policy can be built on another.
///
/// # Fairness
///
/// When a processor asks for a thread and the policy has threads for it, the policy must return
/// one. A policy that claims to be fair must return each thread sooner or later, however many
/// others become ready.
///
/// # Panics
///
/// A policy of this module serves one runtime. Its methods panic if they are called with a seat of
/// another runtime, or of a processor that [`resize`](Policy::resize) has not announced.
///
/// # Examples
///
/// A policy that counts new threads and leaves everything else to another policy:
///
/// ```
/// use greenthread::policy::{ForOthers, Next, Others, Policy, Readied, Ready, Seat, Victims, WorkStealing};
/// use greenthread::runtime::{Mode, Runtime};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static SPAWNED: AtomicUsize = AtomicUsize::new(0);
///
/// struct Counting(WorkStealing);
///
/// impl Policy for Counting {
///     fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
///         if how == Readied::Spawned {
///             SPAWNED.fetch_add(1, Ordering::Relaxed);
///         }
///         self.0.ready(thread, how, seat)
///     }
///
///     fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
///         self.0.next(seat, others)
///     }
///
///     fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
///         self.0.steal(seat, victims)
///     }
///
///     fn leave(&self, seat: &Seat) {
///         self.0.leave(seat);
///     }
///
///     fn resize(&self, processors: usize) {
///         self.0.resize(processors);
///     }
///
///     fn len(&self, processor: Option<usize>) -> usize {
///         self.0.len(processor)
///     }
///
///     fn out_of_reach(&self, processor: usize) -> usize {
///         self.0.out_of_reach(processor)
///     }
///
///     fn work_for_others(&self) -> ForOthers {
///         self.0.work_for_others()
///     }
/// }
///
/// let runtime = Runtime::builder().policy(Counting(WorkStealing::new())).build()?;
/// let threads: Vec<_> = (0..3).map(|_| runtime.spawn(|| ())).collect();
/// threads.into_iter().for_each(|thread| thread.join().unwrap());
/// match runtime.mode() {
///     Mode::Green => assert_eq!(SPAWNED.load(Ordering::Relaxed), 3),
///     _ => assert_eq!(SPAWNED.load(Ordering::Relaxed), 0), // the system schedules
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Policy: Send + Sync + 'static {
    /// Takes over a thread that has become ready, and returns whether another processor could run
    /// something now.
    ///
    /// `how` says how the thread became ready. `seat` is the seat of the processor that made it
    /// ready; it is `None` if something outside the processors did.
    ///
    /// After [`ForOthers::Work`] the scheduler wakes a processor that sleeps. If a policy returns
    /// [`ForOthers::Nothing`] although another processor could run something, a thread may wait several milliseconds until
    /// a processor looks by itself.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
    /// # #[derive(Default)]
    /// # struct InOrder(Lock<Queue>);
    /// # impl Policy for InOrder {
    /// fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
    ///     self.0.lock().push(thread);
    ///     // A processor whose thread gives way takes one from the queue in exchange.
    ///     ForOthers::when(!(how == Readied::Yielded && seat.is_some()))
    /// }
    /// #     fn next(&self, _: &Seat, _: Others) -> Option<Next> { self.0.lock().pop().map(Next::from) }
    /// #     fn len(&self, at: Option<usize>) -> usize { at.map_or(self.0.lock().len(), |_| 0) }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder().policy(InOrder::default()).build()?;
    /// # assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers;

    /// Returns the thread that the processor of `seat` runs next, or `None` if there is none for
    /// it.
    ///
    /// It does not look at threads that wait at other processors; [`steal`](Policy::steal) does.
    /// While the `others` are idle, the policy should put the threads that wait here where they
    /// can take them.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
    /// # #[derive(Default)]
    /// # struct InOrder(Lock<Queue>);
    /// # impl Policy for InOrder {
    /// #     fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
    /// #         self.0.lock().push(thread);
    /// #         ForOthers::Work
    /// #     }
    /// fn next(&self, _seat: &Seat, _others: Others) -> Option<Next> {
    ///     let thread = self.0.lock().pop()?;
    ///     Some(Next::from(thread)) // in a time slice of its own
    /// }
    /// #     fn len(&self, at: Option<usize>) -> usize { at.map_or(self.0.lock().len(), |_| 0) }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder().policy(InOrder::default()).build()?;
    /// # assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn next(&self, seat: &Seat, others: Others) -> Option<Next>;

    /// Takes a thread away from other processors for the processor of `seat`, which has none
    /// itself.
    ///
    /// A policy best looks at the others in the order of `victims`. By default there is nothing to
    /// take, which suits a policy whose threads wait at no processor.
    ///
    /// # Examples
    ///
    /// A policy with a queue for each processor takes the oldest thread of the first one that has
    /// any:
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat, Victims};
    /// # use std::mem;
    /// # #[derive(Default)]
    /// # struct PerProcessor { queues: Lock<Vec<Queue>>, shared: Lock<Queue> }
    /// # impl Policy for PerProcessor {
    /// #     fn ready(&self, thread: Ready, _: Readied, seat: Option<&Seat>) -> ForOthers {
    /// #         match seat {
    /// #             Some(seat) => self.queues.lock()[seat.index()].push(thread),
    /// #             None => self.shared.lock().push(thread),
    /// #         }
    /// #         ForOthers::Work
    /// #     }
    /// #     fn next(&self, seat: &Seat, _: Others) -> Option<Next> {
    /// #         let own = self.queues.lock()[seat.index()].pop();
    /// #         own.or_else(|| self.shared.lock().pop()).map(Next::from)
    /// #     }
    /// fn steal(&self, _seat: &Seat, mut victims: Victims<'_>) -> Option<Ready> {
    ///     let mut queues = self.queues.lock();
    ///     victims.find_map(|victim| queues.get_mut(victim)?.pop())
    /// }
    /// #     fn leave(&self, seat: &Seat) {
    /// #         let mut left = mem::take(&mut self.queues.lock()[seat.index()]);
    /// #         self.shared.lock().append(&mut left);
    /// #     }
    /// #     fn resize(&self, processors: usize) {
    /// #         let mut queues: Vec<_> = (0..processors).map(|_| Queue::new()).collect();
    /// #         let mut current = self.queues.lock();
    /// #         for (index, queue) in current.iter_mut().enumerate() {
    /// #             queues[index % processors].append(queue);
    /// #         }
    /// #         mem::swap(&mut *current, &mut queues);
    /// #         drop(current);
    /// #     }
    /// #     fn len(&self, processor: Option<usize>) -> usize {
    /// #         match processor {
    /// #             Some(index) => self.queues.lock().get(index).map_or(0, Queue::len),
    /// #             None => self.shared.lock().len(),
    /// #         }
    /// #     }
    /// #     fn work_for_others(&self) -> ForOthers {
    /// #         let waits = |queue: &Queue| !queue.is_empty();
    /// #         ForOthers::when(waits(&self.shared.lock()) || self.queues.lock().iter().any(waits))
    /// #     }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder()
    /// #     .processors(2)
    /// #     .policy(PerProcessor::default())
    /// #     .build()?;
    /// # let parent = runtime.spawn(|| {
    /// #     let children: Vec<_> = (0..10).map(|i| greenthread::spawn(move || i)).collect();
    /// #     children.into_iter().map(|child| child.join().unwrap()).sum::<i32>()
    /// # });
    /// # runtime.set_processors(1)?;
    /// # assert_eq!(parent.join().unwrap(), 45);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        let _ = (seat, victims);
        None
    }

    /// Moves the threads that only the processor of `seat` can take to where all processors can
    /// take them.
    ///
    /// The scheduler calls this when it takes a processor out of use. By default nothing happens,
    /// which suits a policy whose threads are always within reach of all.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue, Seat};
    ///
    /// struct PerProcessor {
    ///     own: Vec<Lock<Queue>>,
    ///     shared: Lock<Queue>,
    /// }
    ///
    /// impl PerProcessor {
    ///     fn leave(&self, seat: &Seat) {
    ///         let mut left = std::mem::take(&mut *self.own[seat.index()].lock());
    ///         self.shared.lock().append(&mut left);
    ///     }
    /// }
    /// ```
    fn leave(&self, seat: &Seat) {
        let _ = seat;
    }

    /// Sets the number of processors, which is at least one.
    ///
    /// The scheduler calls this before all other methods. Later it calls it before a running
    /// runtime gets more processors, and after processors have left, which are those with the
    /// highest indices. A thief may still be offered a processor that has left as a victim.
    ///
    /// This method may allocate and block, but must not wait for a green thread or for another
    /// change of the number. By default nothing happens.
    ///
    /// # Panics
    ///
    /// If it panics when processors are to be added, the number stays as it was, and
    /// [`Builder::build`](crate::runtime::Builder::build) or
    /// [`Runtime::set_processors`](crate::runtime::Runtime::set_processors) returns an error. If it
    /// panics after processors have left, the process aborts.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue};
    ///
    /// #[derive(Default)]
    /// struct PerProcessor(Lock<Vec<Queue>>);
    ///
    /// impl PerProcessor {
    ///     fn resize(&self, processors: usize) {
    ///         // The holder of a `Lock` must neither allocate nor free memory.
    ///         let mut queues: Vec<_> = (0..processors).map(|_| Queue::new()).collect();
    ///         let mut current = self.0.lock();
    ///         for (index, queue) in current.iter_mut().enumerate() {
    ///             queues[index % processors].append(queue);
    ///         }
    ///         std::mem::swap(&mut *current, &mut queues);
    ///         drop(current); // unlocks before the old queues are freed
    ///     }
    /// }
    ///
    /// let policy = PerProcessor::default();
    /// policy.resize(4);
    /// policy.resize(2);
    /// assert_eq!(policy.0.lock().len(), 2);
    /// ```
    fn resize(&self, processors: usize) {
        let _ = processors;
    }

    /// Returns the number of threads that wait at `processor` or, for `None`, of those that wait at
    /// no processor.
    ///
    /// The number may be out of date by what other threads do at the same time, and by no more.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{GlobalQueue, Policy};
    ///
    /// let policy = GlobalQueue::new();
    /// assert_eq!(policy.len(None), 0);
    /// assert_eq!(policy.len(Some(0)), 0); // its threads wait at no processor
    /// ```
    fn len(&self, processor: Option<usize>) -> usize;

    /// Returns the number of threads at `processor` that other processors cannot take.
    ///
    /// While there are any, the thread that runs there has a shorter time slice. By default there
    /// are none.
    ///
    /// # Examples
    ///
    /// Without stealing, threads that wait at a processor are out of reach of the others:
    ///
    /// ```
    /// use greenthread::policy::{Policy, WorkStealing};
    ///
    /// let policy = WorkStealing::new().stealing(false);
    /// policy.resize(2);
    /// assert_eq!(policy.out_of_reach(0), policy.len(Some(0)));
    /// ```
    fn out_of_reach(&self, processor: usize) -> usize {
        let _ = processor;
        0
    }

    /// Returns whether a processor that has nothing to do would get a thread.
    ///
    /// The answer is as exact as that of [`len`](Policy::len). After [`ForOthers::Nothing`],
    /// processors go to sleep. By default the answer is whether `len(None)` is greater than 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{ForOthers, LeastLoaded, Policy};
    ///
    /// let policy = LeastLoaded::new();
    /// policy.resize(2);
    /// assert_eq!(policy.work_for_others(), ForOthers::Nothing);
    /// ```
    fn work_for_others(&self) -> ForOthers {
        ForOthers::when(self.len(None) != 0)
    }
}
