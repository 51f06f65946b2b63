//! [`Ready`], a ready thread in a policy's hands, and [`Queue`], which holds any number of them.

use core::fmt;

use crate::engine::atomic::Ordering;
use crate::engine::sched::Green;
use crate::engine::sched::list::Fifo;

/// A thread that is ready to run, in a policy's hands.
///
/// Each ready thread has one `Ready`, and the thread runs only when a policy returns it from
/// [`next`](super::Policy::next) or [`steal`](super::Policy::steal). It must not be dropped: that
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
        crate::engine::sys::die("a policy has dropped a ready thread")
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
    if let Some(green) = crate::engine::sched::current::green() {
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

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.is_empty() {
            crate::engine::sys::die("a policy has dropped a queue of ready threads");
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({} threads)", self.len())
    }
}

// SAFETY: a queue owns the records in it, as a `Ready` owns its one; both may go where they like.
unsafe impl Send for Queue {}
