//! What the scheduler and a policy agree on: the questions of [`Policy`] and the promises that the scheduler relies on, the
//! ready threads that change hands ([`Ready`], and [`Queue`], which holds any number of them), and the values that go
//! with them: how a thread became ready ([`Readied`]), what the other processors do ([`Others`]), whether there is work
//! for them ([`ForOthers`]), which thread runs next ([`Next`]), and in which order a thief looks at the others
//! ([`Victims`]). The right to act as one processor is a [`Seat`]; [`Seats`] has what a policy keeps for each of them.
//!
//! # Seats
//!
//! The holder of a processor's seat is the one user of that processor's entry, and uses the entry without a lock. A seat
//! is unique within its runtime only, and two runtimes can use one policy: safe code may put the policy into an `Arc` and
//! wrap that twice. So an entry belongs for ever to the runtime whose seat came first, and the seats of other runtimes are
//! refused.
//!
//! # Lists of threads
//!
//! They are intrusive: a queue ([`Fifo`]), and the links by which heaps hold threads ([`Links`]). The owner of a list
//! alone uses it.
//!
//! # Fewer processors
//!
//! Entries are never freed. When a policy is told of fewer processors, what waits at the entries of those that have left
//! moves to the entries of the processors that stay ([`Seats::resize`]). A thread that is about to be queued at such an
//! entry, because its pusher had read the number of processors before, goes to another one: whoever queues a thread asks
//! under the entry's lock whether the entry is in use ([`Seats::uses`]).
//!
//! # Invariants
//! 1. A processor of a runtime has at most one seat at a time, as the caller of [`Seat::new`] promises. A seat stays on
//!    one kernel thread, since it is neither `Send` nor `Sync`.
//! 2. So an entry that [`Seats::of`] has given out has one user at a time.
//! 3. No thread stays behind at the entry of a processor that has left. The number of entries in use is stored before the
//!    entry is emptied under its lock. Who has that lock before finds the thread moved; who has it after reads the new
//!    number.
//! 4. A thread is in one list at most: its links belong to the owner of the list.
//! 5. A queue is dropped empty: its threads would never run.
//!
//! Orderings: none of its own. The seat's name is compared, and nothing is read by way of it. The work of a seat's
//! holders on an entry travels with the processor (`sched::processor`); the entry's first state travels with the length
//! of the table, and the number of entries in use with the locks of the entries.

use core::{cell::Cell, fmt, marker::PhantomData, ops::Deref};

use crate::engine::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::engine::sched::{Green, current};
use crate::engine::sys::shared::{Lock, MAX, Table};
use crate::engine::{sys::die, sys::topology::RINGS};

// ==== the questions ====

/// Holds the ready threads of a runtime and chooses the next one to run.
///
/// The scheduler calls all methods but [`resize`](Policy::resize) in the middle of scheduling, from
/// several processors at once. They must be quick, must not allocate or free memory, must not block
/// except on a [`Lock`](super::Lock), and must not call anything of this crate outside this module.
/// Otherwise all threads of the runtime may stand still. If one of them panics, the process aborts.
/// A policy written in safe code cannot cause undefined behaviour, whatever it does.
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
#[allow(unused_variables, reason = "defaults that do nothing")]
pub trait Policy: Send + Sync + 'static {
    /// Enqueues a thread that has become ready, and returns whether another processor could run
    /// something now.
    ///
    /// `how` says how the thread became ready. `seat` is the seat of the processor that made it
    /// ready; it is `None` if something outside the processors did.
    ///
    /// After [`ForOthers::Work`] the scheduler wakes a processor that sleeps. If a policy returns
    /// [`ForOthers::Nothing`] although another processor could run something, a thread may wait
    /// several milliseconds until a processor looks by itself.
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
    fn leave(&self, seat: &Seat) {}

    /// Sets the number of processors, which is at least one.
    ///
    /// The scheduler calls this before all other methods. Later it calls it before a running
    /// runtime gets more processors, and after processors have left, which are those with the
    /// highest indices. The victims that a thief is offered may still include a processor that has
    /// left.
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
    fn resize(&self, processors: usize) {}

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

    /// Returns the number of threads that only `processor` can run: that wait there, and that other
    /// processors cannot take.
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

/// How a ready thread came to be enqueued: how it became ready.
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
    /// The thread is new. The scheduler hands each thread to a policy once in this way.
    Spawned,
    /// Another thread has woken the thread.
    Woken,
    /// An event that the thread waited for has come: a point in time, input or output at a
    /// descriptor, or memory for the stack of a thread that has not run yet.
    Arrived,
    /// The thread has given way by itself ([`yield_now`](crate::yield_now)).
    Yielded,
    /// The thread has used up its time slice and was made to give way.
    Preempted,
}

/// Whether the other processors of a runtime are all busy.
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

/// A hint to the scheduler whether to wake a sleeping processor: whether there is work for others.
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
    /// No other processor would find anything.
    Nothing,
}

impl ForOthers {
    /// Makes the wake hint of a condition: [`Work`](ForOthers::Work) when there is some, and otherwise
    /// [`Nothing`](ForOthers::Nothing).
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
    /// that slice ends. Two threads that wake each other in turn then run no longer in a row than
    /// one thread alone.
    pub inherits_slice: bool,
}

impl From<Ready> for Next {
    /// Gives the thread a time slice of its own.
    #[inline]
    fn from(thread: Ready) -> Next {
        Next {
            thread,
            inherits_slice: false,
        }
    }
}

/// A thread that is ready to run, in a policy's hands.
///
/// Each ready thread has one `Ready`, and the thread runs only when a policy returns it from
/// [`next`](Policy::next) or [`steal`](Policy::steal). It must not be dropped: that
/// aborts the process, because the thread would never run.
///
/// # Examples
///
/// A policy keeps ready threads in its queues:
///
/// ```
/// use greenthread::policy::{Queue, Ready};
///
/// /// Puts urgent threads into the one queue, all others into the other one.
/// fn sort(thread: Ready, urgent: &mut Queue, others: &mut Queue) {
///     match thread.priority().get() {
///         0 => urgent.push(thread),
///         _ => others.push(thread),
///     }
/// }
/// ```
pub struct Ready(&'static Green);

impl Ready {
    /// The place of the schedule's mark (`src/sim`).
    #[cfg(sim)]
    pub(crate) fn mark(&self) -> &AtomicU64 {
        &self.green().observed[0]
    }

    /// The thread, which is new, has this mark, and is inside no operation.
    #[cfg(sim)]
    pub(crate) fn mark_as_new(&self, mark: u64) {
        self.mark().store(mark, Ordering::Relaxed);
        self.green().observed[1].store(0, Ordering::Relaxed);
    }

    /// The thread's number and name.
    #[cfg(sim)]
    pub(crate) fn who(&self) -> Option<(u64, &str)> {
        // SAFETY: the identity lives as long as the thread, which is ready.
        let identity = unsafe { self.green().identity.load(Ordering::Relaxed).as_ref() }?;
        Some((identity.id().get(), identity.name().unwrap_or_default()))
    }

    #[inline(always)]
    pub(crate) fn new(green: &'static Green) -> Ready {
        Ready(green)
    }

    #[inline(always)]
    pub(crate) fn into_green(self) -> &'static Green {
        let green = self.0;
        core::mem::forget(self);
        green
    }

    #[inline(always)]
    pub(crate) fn green(&self) -> &'static Green {
        self.0
    }

    /// Returns the thread's priority, which [`Builder::priority`](crate::Builder::priority) or
    /// [`set_priority`] has set.
    ///
    /// # Examples
    ///
    /// A policy that uses priorities as deadlines, and runs the thread with the earliest one:
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Heap, Lock, Next, Others, Policy, Readied, Ready, Seat};
    /// # #[derive(Default)]
    /// # struct Earliest(Lock<Heap>);
    /// # impl Policy for Earliest {
    /// fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
    ///     let deadline = thread.priority().get();
    ///     self.0.lock().push(deadline, thread);
    ///     ForOthers::Work
    /// }
    /// #     fn next(&self, _: &Seat, _: Others) -> Option<Next> { self.0.lock().pop().map(Next::from) }
    /// #     fn len(&self, at: Option<usize>) -> usize { at.map_or(self.0.lock().len(), |_| 0) }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder().policy(Earliest::default()).build()?;
    /// # assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn priority(&self) -> Priority {
        // Relaxed: the thread wrote it before it came into a queue.
        Priority(self.0.priority.load(Ordering::Relaxed))
    }
}

impl Drop for Ready {
    #[cold]
    fn drop(&mut self) {
        die("a policy has dropped a ready thread")
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ready({:p})", self.0)
    }
}

/// The rank of a thread among others: smaller values come first.
///
/// The policy decides what it means. Most policies do not look at it;
/// [`Priorities`](super::Priorities) runs threads of a higher priority first. Your own policy may
/// use it for any purpose, as a deadline for example.
///
/// # Examples
///
/// ```
/// use greenthread::policy::Priority;
///
/// assert!(Priority::HIGH < Priority::NORMAL && Priority::NORMAL < Priority::LOW);
/// assert_eq!(Priority::default(), Priority::NORMAL);
/// assert!(Priority::new(1_700_000_000) > Priority::LOW);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u64);

impl Priority {
    /// The priority that comes before all others; its value is 0.
    pub const HIGHEST: Priority = Priority(0);
    /// A priority that comes before [`NORMAL`](Priority::NORMAL); its value is 1.
    pub const HIGH: Priority = Priority(1);
    /// The priority of threads that were given none; its value is 2.
    pub const NORMAL: Priority = Priority(2);
    /// A priority that comes after [`NORMAL`](Priority::NORMAL); its value is 3.
    pub const LOW: Priority = Priority(3);

    /// Creates a priority from a value, where 0 is the highest.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Priority;
    ///
    /// assert_eq!(Priority::new(0), Priority::HIGHEST);
    /// assert!(Priority::new(10) < Priority::new(11));
    /// ```
    pub const fn new(value: u64) -> Priority {
        Priority(value)
    }

    /// Returns the value, where 0 is the highest priority.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Priority;
    ///
    /// assert_eq!(Priority::HIGHEST.get(), 0);
    /// assert_eq!(Priority::new(1_000).get(), 1_000);
    /// ```
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Default for Priority {
    /// Returns [`Priority::NORMAL`].
    #[inline]
    fn default() -> Priority {
        Priority::NORMAL
    }
}

/// Sets the priority of the current thread.
///
/// The new priority takes effect when the thread becomes ready the next time. On a kernel thread,
/// which the system schedules, this does nothing.
///
/// # Examples
///
/// ```
/// use greenthread::policy::{self, Priority};
///
/// greenthread::spawn(|| policy::set_priority(Priority::LOW)).join().unwrap();
/// ```
pub fn set_priority(priority: Priority) {
    if let Some(green) = current::green() {
        green.priority.store(priority.get(), Ordering::Relaxed);
    }
}

/// A first-in-first-out queue of ready threads.
///
/// It never allocates: a thread's own record holds the link to the next one. Dropping a queue that
/// is not empty aborts the process.
///
/// # Examples
///
/// See [the module](super#writing-a-policy) for a policy that keeps its threads in a queue.
///
/// ```
/// use greenthread::policy::Queue;
///
/// let mut queue = Queue::new();
/// assert_eq!(queue.len(), 0);
/// assert!(queue.pop().is_none());
/// ```
#[derive(Default)]
pub struct Queue(Fifo);

impl Queue {
    /// Creates an empty queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue};
    ///
    /// static WAITING: Lock<Queue> = Lock::new(Queue::new());
    /// assert!(WAITING.lock().is_empty());
    /// ```
    pub const fn new() -> Queue {
        Queue(Fifo::new())
    }

    /// Appends a thread to the queue.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
    /// # #[derive(Default)]
    /// # struct InOrder(Lock<Queue>);
    /// # impl Policy for InOrder {
    /// fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
    ///     self.0.lock().push(thread);
    ///     ForOthers::Work
    /// }
    /// #     fn next(&self, _: &Seat, _: Others) -> Option<Next> { self.0.lock().pop().map(Next::from) }
    /// #     fn len(&self, at: Option<usize>) -> usize { at.map_or(self.0.lock().len(), |_| 0) }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder().policy(InOrder::default()).build()?;
    /// # assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn push(&mut self, thread: Ready) {
        self.0.push(thread.into_green());
    }

    /// Removes the first thread and returns it, or `None` if the queue is empty.
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
    /// fn next(&self, _: &Seat, _: Others) -> Option<Next> {
    ///     let thread = self.0.lock().pop()?;
    ///     Some(Next::from(thread))
    /// }
    /// #     fn len(&self, at: Option<usize>) -> usize { at.map_or(self.0.lock().len(), |_| 0) }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder().policy(InOrder::default()).build()?;
    /// # assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn pop(&mut self) -> Option<Ready> {
        self.0.pop().map(Ready::new)
    }

    /// Moves all threads of `other` to the end of this queue, which takes constant time.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue};
    ///
    /// /// Gathers the threads of many queues in one.
    /// fn gather(queues: &[Lock<Queue>], all: &mut Queue) {
    ///     for queue in queues {
    ///         all.append(&mut queue.lock());
    ///     }
    /// }
    ///
    /// let mut all = Queue::new();
    /// gather(&[Lock::default(), Lock::default()], &mut all);
    /// assert!(all.is_empty());
    /// ```
    pub fn append(&mut self, other: &mut Queue) {
        self.0.append(core::mem::take(&mut other.0));
    }

    /// Returns the number of threads in the queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Queue;
    ///
    /// assert_eq!(Queue::new().len(), 0);
    /// ```
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no thread is in the queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Queue;
    ///
    /// assert!(Queue::new().is_empty());
    /// ```
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({} threads)", self.len())
    }
}

// SAFETY: a queue owns the records in it, as a `Ready` owns its one; both may go where they like.
unsafe impl Send for Queue {}

// ==== victims ====

/// An iterator over the indices of the other processors, in the order in which a thief should look
/// at them.
///
/// Processors on nearer CPUs come first, since both CPUs may share a cache that holds the data of
/// their threads. Among equally near ones the order begins at a random processor, so that thieves
/// do not meet.
///
/// The scheduler passes it to [`Policy::steal`](Policy::steal).
///
/// # Examples
///
/// ```
/// use greenthread::policy::{Lock, Queue, Ready, Victims};
///
/// /// Takes the first thread of the nearest processor that has one.
/// fn steal_from(queues: &[Lock<Queue>], mut victims: Victims<'_>) -> Option<Ready> {
///     victims.find_map(|victim| queues.get(victim)?.lock().pop())
/// }
/// ```
#[derive(Clone)]
pub struct Victims<'a> {
    thief: usize,
    start: usize,
    count: usize,
    looked: usize,
    last_pass: bool,
    /// Tells in which of the [`RINGS`] around the thief another processor is. `None`: all are in the first ring. The iterator
    /// looks at all of them once for each ring.
    pub(crate) distance: Option<&'a dyn Fn(usize) -> usize>,
}

impl Victims<'_> {
    /// Makes the order that begins at a processor chosen by `random`.
    pub(crate) fn new(thief: usize, count: usize, random: u32, last_pass: bool) -> Self {
        Victims {
            thief,
            start: random as usize % count,
            count,
            looked: 0,
            last_pass,
            distance: None,
        }
    }

    /// Returns whether the thief sleeps if it finds nothing in this pass.
    ///
    /// In earlier passes a policy may spare threads that their processors are about to run; in the
    /// last pass it should take them too.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue, Ready, Victims};
    ///
    /// /// Takes a thread that is alone in its queue in the last pass only.
    /// fn steal_from(queues: &[Lock<Queue>], mut victims: Victims<'_>) -> Option<Ready> {
    ///     let spared = if victims.is_last_pass() { 0 } else { 1 };
    ///     victims.find_map(|victim| {
    ///         let mut queue = queues.get(victim)?.lock();
    ///         if queue.len() > spared { queue.pop() } else { None }
    ///     })
    /// }
    /// ```
    pub fn is_last_pass(&self) -> bool {
        self.last_pass
    }
}

impl Iterator for Victims<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let rings = if self.distance.is_some() { RINGS } else { 1 };
        while self.looked < rings * self.count {
            let ring = self.looked / self.count;
            let victim = (self.start + self.looked) % self.count;
            self.looked += 1;
            let distance = self.distance.map_or(0, |distance| distance(victim));
            if victim != self.thief && distance == ring {
                return Some(victim);
            }
        }
        None
    }
}

impl fmt::Debug for Victims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Victims")
            .field("thief", &self.thief)
            .field("processors", &self.count)
            .field("last_pass", &self.last_pass)
            .finish_non_exhaustive()
    }
}

// ==== seats ====

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
    /// It is less than the number of processors that [`Policy::resize`](Policy::resize) was
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
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seat").field(&self.index()).finish()
    }
}

/// An entry for each processor.
pub(crate) struct Seats<T> {
    entries: Table<Entry<T>>,
    in_use: AtomicUsize,
    resizing: Lock<()>,
}

/// An entry on cache lines of its own, together with the name of its seat.
#[repr(align(128))]
struct Entry<T> {
    /// The name of the seat that is accepted; 0 before the first seat comes.
    seat: AtomicU64,
    value: Held<T>,
}

/// What an entry holds. A reference to it is the right to be the entry's one user: that of the seat's holder, for as long
/// as the holder lends the seat. Everybody else gets references to the value alone.
pub(crate) struct Held<T>(T);

impl<T> Deref for Held<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Seats<T> {
    pub(crate) const fn new() -> Seats<T> {
        Seats {
            entries: Table::new(),
            in_use: AtomicUsize::new(0),
            resizing: Lock::new(()),
        }
    }

    /// Makes entries until there are as many as processors. Any thread may call it, at any time; it allocates.
    ///
    /// # Panics
    ///
    /// Panics if a policy cannot have so many processors. (Any code may call [`Policy::resize`](Policy::resize), with
    /// any number.)
    pub(crate) fn grow_to(&self, processors: usize, mut make: impl FnMut(usize) -> T) {
        assert!(
            (1..=MAX).contains(&processors),
            "a policy for {processors} processors: accepted are 1 to {MAX}"
        );
        self.entries.grow_to(processors, |index| Entry {
            seat: AtomicU64::new(0),
            value: Held(make(index)),
        });
    }

    /// Makes entries as [`grow_to`](Seats::grow_to) does. Then calls `empty` for each entry of a processor that has left,
    /// with the entry that takes over what waits there.
    pub(crate) fn resize(
        &self,
        processors: usize,
        make: impl FnMut(usize) -> T,
        empty: impl Fn(&T, &T),
    ) {
        self.grow_to(processors, make);
        let _off = current::preemption_off();
        let _resizing = self.resizing.lock();
        // Relaxed: the locks of the entries order this (invariant 3).
        self.in_use.store(processors, Ordering::Relaxed);
        for (left, entry) in self.iter().skip(processors).enumerate() {
            empty(entry, self.get(left % processors));
        }
    }

    /// Returns the number of processors.
    #[inline(always)]
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns whether a thread may be queued at the entry of this processor. The caller has the entry's lock.
    pub(crate) fn uses(&self, processor: usize) -> bool {
        processor < self.in_use()
    }

    /// Returns the entry of the caller, as its one user.
    ///
    /// # Panics
    ///
    /// Panics if there is none, or if the entry belongs to another runtime.
    #[inline(always)]
    pub(crate) fn of<'a>(&'a self, seat: &'a Seat) -> &'a Held<T> {
        self.known(seat).unwrap_or_else(|| self.claim(seat))
    }

    /// Returns the entry of the caller if its seat has come before. (A caller that handles the other case last need
    /// not save its registers for a call that is hardly ever made.)
    #[inline(always)]
    pub(crate) fn known<'a>(&'a self, seat: &'a Seat) -> Option<&'a Held<T>> {
        let entry = self.entries.find(seat.index())?;
        let is_known = entry.seat.load(Ordering::Relaxed) == seat.name;
        is_known.then_some(&entry.value)
    }

    #[cold]
    #[inline(never)]
    fn claim<'a>(&'a self, seat: &'a Seat) -> &'a Held<T> {
        let Some(entry) = self.entries.find(seat.index()) else {
            panic!(
                "the seat of processor {} was used with a policy that knows of {} processors: \
                 accepted are seats of those that `Policy::resize` has told it of",
                seat.index(),
                self.entries.len()
            );
        };
        let (name, relaxed) = (seat.name, Ordering::Relaxed);
        let claimed = entry.seat.compare_exchange(0, name, relaxed, relaxed);
        assert!(
            claimed.is_ok() || claimed == Err(name),
            "the seat of processor {} was used with a policy that serves another runtime: \
             accepted are the seats of one runtime",
            seat.index()
        );
        &entry.value
    }

    /// Returns an entry that there is. Any thread may call it.
    pub(crate) fn get(&self, processor: usize) -> &T {
        &self.entries.get(processor).value.0
    }

    /// Returns the entry of a processor, if there is one. Any thread may call it.
    pub(crate) fn find(&self, processor: usize) -> Option<&T> {
        self.entries.find(processor).map(|entry| &entry.value.0)
    }

    /// Returns an iterator over all entries, of processors that have left too. Any thread may call it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.value.0)
    }
}

// ==== lists of threads ====

/// A list of green threads, used by its owner only.
#[derive(Default)]
pub(crate) struct Fifo {
    ends: Option<(&'static Green, &'static Green)>,
    len: usize,
}

impl Drop for Fifo {
    #[inline]
    fn drop(&mut self) {
        if self.len != 0 {
            die("a policy has dropped a queue of ready threads")
        }
    }
}

impl Fifo {
    pub(crate) const fn new() -> Fifo {
        Fifo { ends: None, len: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, green: &'static Green) {
        green.next.set(None);
        self.ends = match self.ends {
            None => Some((green, green)),
            Some((first, last)) => {
                last.next.set(Some(green));
                Some((first, green))
            }
        };
        self.len += 1;
    }

    /// Takes out the first threads, `count` at most.
    pub(crate) fn take_first(&mut self, count: usize) -> Fifo {
        let mut first = Fifo::new();
        for green in (0..count).map_while(|_| self.pop()) {
            first.push(green);
        }
        first
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static Green> {
        let (first, last) = self.ends?;
        self.ends = first.next.take().map(|second| (second, last));
        self.len -= 1;
        Some(first)
    }

    #[inline(always)]
    pub(crate) fn first(&self) -> Option<&'static Green> {
        self.ends.map(|(first, _)| first)
    }

    /// The first two threads, in their order.
    #[inline(always)]
    pub(crate) fn first_two(&self) -> Option<(&'static Green, &'static Green)> {
        let first = self.first()?;
        Some((first, first.next.get()?))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Moves all threads of `other` to the end of this list.
    pub(crate) fn append(&mut self, mut other: Fifo) {
        self.len += core::mem::take(&mut other.len);
        self.ends = match (self.ends, other.ends) {
            (Some((first, last)), Some((other_first, other_last))) => {
                last.next.set(Some(other_first));
                Some((first, other_last))
            }
            (mine, theirs) => mine.or(theirs),
        };
    }

    /// Moves all threads of `other` into this list. Both lists are in the order of their stamps,
    /// and so is the result.
    pub(crate) fn merge(&mut self, mut other: Fifo) {
        let mut mine = core::mem::take(self);
        while let (Some(first), Some(others)) = (mine.first(), other.first()) {
            let from = match first.heap.stamp() <= others.heap.stamp() {
                true => &mut mine,
                false => &mut other,
            };
            from.pop().into_iter().for_each(|green| self.push(green));
        }
        self.append(mine);
        self.append(other);
    }
}

/// A record's place in a heap, such as `policy`'s: its first child and its rank. The next sibling is the record's link
/// in any queue.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) child: Cell<Option<&'static Green>>,
    /// The key and, behind it, the record's number in the order of arrival: equal keys keep that
    /// order.
    pub(crate) rank: Cell<(u64, u64)>,
}

impl Links {
    /// Notes the time when the record came into a queue, in [`ticks`](crate::engine::arch::ticks).
    pub(crate) fn set_stamp(&self, stamp: u64) {
        self.rank.set((0, stamp));
    }

    pub(crate) fn stamp(&self) -> u64 {
        self.rank.get().1
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::engine::policy::stand_ins::seats_of;
    use crate::engine::policy::{LeastLoaded, Priorities, RelaxedFifo, WorkStealing};

    #[test]
    fn all_others_once() {
        for random in 0..10 {
            let mut seen: Vec<_> = Victims::new(2, 5, random, false).collect();
            assert!(random % 5 == 2 || seen[0] == random as usize % 5);
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 3, 4]);
        }
    }

    #[cfg(green)]
    #[test]
    fn the_nearest_first() {
        let topology = crate::engine::sys::topology::tests::two_of_each();
        // Processors are on CPUs in some order of their own.
        let cpu = |processor: usize| processor * 13 % 32;
        let mut firsts = std::collections::BTreeSet::new();
        for random in 0..64 {
            for thief in 0..32 {
                let distance = |other| topology.ring(cpu(thief), cpu(other));
                let mut victims = Victims::new(thief, 32, random, true);
                victims.distance = Some(&distance);
                assert!(victims.is_last_pass());
                let victims: Vec<_> = victims.collect();
                let rings: Vec<_> = victims.iter().map(|&victim| distance(victim)).collect();
                assert!(rings.is_sorted(), "{rings:?}");
                let many = [0, 1, 2, 3].map(|ring| rings.iter().filter(|&&r| r == ring).count());
                assert_eq!(many, [3, 4, 8, 16]);
                if thief == 0 {
                    firsts.insert(victims[0]);
                }
            }
        }
        assert_eq!(firsts.len(), 3, "any of the nearest comes first");
    }

    /// Returns the message with which `call` panics.
    fn panic_of(call: impl FnOnce()) -> String {
        let payload = catch_unwind(AssertUnwindSafe(call)).expect_err("no panic");
        *payload.downcast::<String>().unwrap()
    }

    fn serves_one(policy: impl Policy) {
        policy.resize(2);
        let (own, others) = (seats_of(1, 3), seats_of(2, 3));
        let asked = |seat: &Seat| _ = policy.next(seat, Others::Busy);
        // The first seat owns the entry.
        asked(&own[0]);
        asked(&others[1]);
        asked(&own[0]);
        for (stranger, processor) in [(&others[0], 0), (&own[1], 1)] {
            let victims = || Victims::new(processor, 2, 0, true);
            for said in [
                panic_of(|| asked(stranger)),
                panic_of(|| _ = policy.steal(stranger, victims())),
            ] {
                let seat = format!("the seat of processor {processor} ");
                let fits = said.starts_with(&seat) && said.contains("serves another runtime");
                assert!(fits, "{said}");
            }
        }
        let said = panic_of(|| asked(&own[2]));
        assert!(said.contains("knows of 2 processors"), "{said}");
        asked(&others[1]);
        policy.resize(3);
        asked(&own[2]);
    }

    #[test]
    fn an_entry_is_of_the_runtime_that_came_first() {
        serves_one(WorkStealing::new());
        serves_one(LeastLoaded::new());
        serves_one(Priorities::new());
        // This policy steals from nobody.
        let policy = RelaxedFifo::new();
        policy.resize(1);
        assert!(policy.next(&seats_of(1, 1)[0], Others::Busy).is_none());
        let said = panic_of(|| _ = policy.next(&seats_of(2, 1)[0], Others::Busy));
        assert!(said.contains("serves another runtime"), "{said}");
    }

    #[test]
    fn two_who_come_first_at_once_are_not_both_let_in() {
        for _ in 0..1000 {
            let entries = Seats::new();
            entries.resize(1, |_| (), |(), ()| ());
            let came = |runtime| {
                let comes = || _ = entries.of(&seats_of(runtime, 1)[0]);
                catch_unwind(AssertUnwindSafe(comes)).is_ok()
            };
            let came = std::thread::scope(|scope| {
                let came = &came;
                let threads = [1, 2].map(|runtime| scope.spawn(move || came(runtime)));
                threads.map(|thread| thread.join().unwrap())
            });
            assert_eq!(came.into_iter().filter(|&came| came).count(), 1);
        }
    }
}
