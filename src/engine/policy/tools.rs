//! Tools for policies: the lock that they use ([`Lock`]), and a queue by key ([`Heap`]).
//!
//! The heap is made of the threads' own records. It is a skew heap (Sleator and Tarjan, "Self-adjusting heaps", 1986): a
//! binary tree in which no record comes before its parent. Two heaps are melded along their right edges, and the two
//! children of each record on the way change sides. So pushing and popping take logarithmic time, averaged over a
//! sequence. Melding is a loop: a heap of a million threads must not need a deep stack.
//!
//! A record holds a link to its left child (`next`) and one to its right child (`heap.child`).

use core::fmt;
use core::ops::{Deref, DerefMut};

use super::Ready;
use crate::engine::sched::Green;
use crate::engine::sched::current::{self, PreemptionOff};
use crate::engine::sys::{die, shared};

// ==== the lock ====

/// A mutual exclusion lock for data that the processors of a policy share.
///
/// The holder is not preempted, so others wait only as long as it takes to use the data. Hold the
/// lock for moments only, and neither allocate nor free memory meanwhile. A panic does not poison
/// the lock.
///
/// # Examples
///
/// ```
/// use greenthread::policy::Lock;
///
/// let count = Lock::new(41);
/// *count.lock() += 1;
/// assert_eq!(*count.lock(), 42);
/// ```
#[derive(Default)]
pub struct Lock<T>(shared::Lock<T>);

/// A guard that gives access to the data of a [`Lock`] and unlocks it when it is dropped.
///
/// The guard stays on the thread that has locked. If the guard is forgotten, the lock is held for
/// ever. The thread is then not preempted until it ends, and keeps its processor even while it is
/// blocked in the kernel.
///
/// # Examples
///
/// ```
/// use greenthread::policy::Lock;
///
/// let lock = Lock::new(vec![1]);
/// let mut guard = lock.lock();
/// guard[0] += 1;
/// drop(guard); // unlocks
/// assert_eq!(lock.lock()[0], 2);
/// ```
#[must_use = "unlocked at once if it is not kept"]
pub struct Guard<'a, T>(shared::Guard<'a, T, PreemptionOff>);

impl<T> Lock<T> {
    /// Creates an unlocked lock around `value`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Lock;
    ///
    /// static TURNS: Lock<u64> = Lock::new(0);
    /// *TURNS.lock() += 1;
    /// ```
    pub const fn new(value: T) -> Lock<T> {
        Lock(shared::Lock::new(value))
    }

    /// Acquires the lock, waiting while another caller holds it.
    ///
    /// A caller that already holds the lock waits for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Lock;
    ///
    /// let most = Lock::new(0);
    /// greenthread::scope(|scope| {
    ///     for number in [3, 9, 6] {
    ///         let most = &most;
    ///         scope.spawn(move || {
    ///             let mut most = most.lock();
    ///             *most = number.max(*most);
    ///         });
    ///     }
    /// });
    /// assert_eq!(*most.lock(), 9);
    /// ```
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        Guard(self.0.lock_with(current::preemption_off_by_user()))
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

// ==== the heap ====

/// A queue of ready threads by key: the thread with the smallest key comes first, and among equal
/// keys the one that was pushed first.
///
/// It never allocates: the threads' own records hold the links. Dropping a heap that is not empty
/// aborts the process.
///
/// # Examples
///
/// A policy that uses priorities as deadlines, and runs the thread with the earliest one:
///
/// ```
/// use greenthread::policy::{ForOthers, Heap, Lock, Next, Others, Policy, Priority, Readied, Ready, Seat};
/// use greenthread::runtime::Runtime;
///
/// #[derive(Default)]
/// struct EarliestDeadline(Lock<Heap>);
///
/// impl Policy for EarliestDeadline {
///     fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
///         let deadline = thread.priority().get();
///         self.0.lock().push(deadline, thread);
///         ForOthers::Work
///     }
///
///     fn next(&self, _: &Seat, _: Others) -> Option<Next> {
///         self.0.lock().pop().map(Next::from)
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
/// let runtime = Runtime::builder().policy(EarliestDeadline::default()).build()?;
/// let urgent = greenthread::Builder::new().priority(Priority::new(1_700_000_000));
/// let thread = runtime.spawn(|| urgent.spawn(|| "in time").unwrap().join().unwrap());
/// assert_eq!(thread.join().unwrap(), "in time");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Default)]
pub struct Heap {
    root: Option<&'static Green>,
    len: usize,
    pushed: u64,
}

impl Heap {
    /// Creates an empty heap.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Heap, Lock};
    ///
    /// static WAITING: Lock<Heap> = Lock::new(Heap::new());
    /// assert!(WAITING.lock().is_empty());
    /// ```
    pub const fn new() -> Heap {
        Heap {
            root: None,
            len: 0,
            pushed: 0,
        }
    }

    /// Adds a thread behind all threads whose keys are not greater than `key`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Heap, Lock, Next, Others, Policy, Readied, Ready, Seat};
    /// # #[derive(Default)]
    /// # struct Earliest(Lock<Heap>);
    /// # impl Policy for Earliest {
    /// fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
    ///     let key = thread.priority().get();
    ///     self.0.lock().push(key, thread);
    ///     ForOthers::Work
    /// }
    /// #     fn next(&self, _: &Seat, _: Others) -> Option<Next> { self.0.lock().pop().map(Next::from) }
    /// #     fn len(&self, at: Option<usize>) -> usize { at.map_or(self.0.lock().len(), |_| 0) }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder().policy(Earliest::default()).build()?;
    /// # assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn push(&mut self, key: u64, thread: Ready) {
        let green = thread.into_green();
        green.heap.child.set(None);
        green.heap.rank.set((key, self.pushed));
        green.next.set(None);
        self.pushed += 1;
        self.len += 1;
        self.root = meld(self.root, Some(green));
    }

    /// Removes the thread with the smallest key and returns it, or `None` if the heap is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Heap, Lock, Next, Others, Policy, Readied, Ready, Seat};
    /// # #[derive(Default)]
    /// # struct Earliest(Lock<Heap>);
    /// # impl Policy for Earliest {
    /// #     fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
    /// #         self.0.lock().push(thread.priority().get(), thread);
    /// #         ForOthers::Work
    /// #     }
    /// fn next(&self, _: &Seat, _: Others) -> Option<Next> {
    ///     let thread = self.0.lock().pop()?;
    ///     Some(Next::from(thread))
    /// }
    /// #     fn len(&self, at: Option<usize>) -> usize { at.map_or(self.0.lock().len(), |_| 0) }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder().policy(Earliest::default()).build()?;
    /// # assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pop(&mut self) -> Option<Ready> {
        let root = self.root?;
        self.root = meld(root.next.take(), root.heap.child.take());
        self.len -= 1;
        Some(Ready::new(root))
    }

    /// Returns the smallest key, or `None` if the heap is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Heap, Ready};
    ///
    /// /// Takes the first thread, if its time has come.
    /// fn take_due(heap: &mut Heap, now: u64) -> Option<Ready> {
    ///     match heap.first_key() {
    ///         Some(time) if time <= now => heap.pop(),
    ///         _ => None,
    ///     }
    /// }
    ///
    /// assert!(take_due(&mut Heap::new(), 1_700_000_000).is_none());
    /// ```
    pub fn first_key(&self) -> Option<u64> {
        self.root.map(|green| green.heap.rank.get().0)
    }

    /// Returns the number of threads in the heap.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Heap;
    ///
    /// assert_eq!(Heap::new().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no thread is in the heap.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Heap;
    ///
    /// assert!(Heap::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Makes one heap of two, and returns its root.
fn meld(
    mut one: Option<&'static Green>,
    mut other: Option<&'static Green>,
) -> Option<&'static Green> {
    let (mut root, mut last) = (None, None::<&'static Green>);
    let mut append = |heap| {
        match last {
            Some(last) => last.next.set(heap),
            None => root = heap,
        }
        last = heap;
    };
    while let (Some(a), Some(b)) = (one, other) {
        let (first, rest) = match a.heap.rank.get() <= b.heap.rank.get() {
            true => (a, b),
            false => (b, a),
        };
        // The children change places: the left child becomes the right one, and the right child, melded with the rest,
        // becomes the left one.
        one = first.heap.child.replace(first.next.get());
        other = Some(rest);
        append(Some(first));
    }
    append(one.or(other));
    root
}

impl Drop for Heap {
    fn drop(&mut self) {
        if !self.is_empty() {
            die("a policy has dropped a heap of ready threads");
        }
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Heap({} threads)", self.len)
    }
}

// SAFETY: a heap owns the records in it, as a `Ready` owns its one; both may go where they like.
unsafe impl Send for Heap {}
