//! A ready thread in a policy's hands, and the queue that any number of them fit in.

use core::fmt;

use crate::engine::atomic::Ordering;
use crate::engine::green::Green;
use crate::engine::green::fifo::Fifo;

/// A thread that is ready to run, in a policy's hands.
///
/// There is one for each such thread, and it is the thread's only way to run: it must not be
/// dropped. If it is, the process is aborted.
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

    /// The thread's priority: see [`Builder::priority`](crate::Builder::priority).
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

/// How a thread is ranked against others: those with smaller values first.
///
/// What that means is the policy's: most do not look at it.
/// A policy of one's own may take it for anything, a deadline
/// for example.
///
/// ```
/// use greenthread::policy::Priority;
/// assert!(Priority::HIGH < Priority::NORMAL && Priority::NORMAL < Priority::LOW);
/// assert_eq!(Priority::default(), Priority::NORMAL);
/// assert!(Priority::new(1_700_000_000) > Priority::LOW);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u64);

impl Priority {
    /// Before all others.
    pub const HIGHEST: Priority = Priority(0);
    /// Before most others.
    pub const HIGH: Priority = Priority(1);
    /// What threads have that were given none.
    pub const NORMAL: Priority = Priority(2);
    /// After most others.
    pub const LOW: Priority = Priority(3);

    /// The priority with this value.
    pub const fn new(value: u64) -> Priority {
        Priority(value)
    }

    /// Its value: 0 is the highest.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Default for Priority {
    /// [`Priority::NORMAL`].
    fn default() -> Priority {
        Priority::NORMAL
    }
}

/// Changes the priority of the thread that asks, from the next time it is ready. Nothing happens on
/// a kernel thread, which the system schedules.
///
/// ```
/// use greenthread::policy::{self, Priority};
/// greenthread::spawn(|| policy::set_priority(Priority::LOW)).join().unwrap();
/// ```
pub fn set_priority(priority: Priority) {
    if let Some(green) = crate::engine::green::current::green() {
        green.priority.store(priority.get(), Ordering::Relaxed);
    }
}

/// A first-in-first-out queue of ready threads. It never allocates: the threads' own records are
/// its links.
///
/// If it is dropped while threads are in it, the process is aborted.
#[derive(Default)]
pub struct Queue(Fifo);

impl Queue {
    /// An empty queue.
    pub const fn new() -> Queue {
        Queue(Fifo::new())
    }

    /// Puts `thread` at the end.
    #[inline]
    pub fn push(&mut self, thread: Ready) {
        self.0.push(thread.into_green());
    }

    /// Takes the first one.
    #[inline]
    pub fn pop(&mut self) -> Option<Ready> {
        self.0.pop().map(Ready::new)
    }

    /// Moves all of `other` behind this queue's.
    pub fn append(&mut self, other: &mut Queue) {
        self.0.append(core::mem::take(&mut other.0));
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
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
