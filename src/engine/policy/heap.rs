//! A queue by key, made of the threads' own records: a pairing heap.
//!
//! The heap is a tree in which no record comes before its parent. A record holds a link to its
//! first child and a link to its next sibling. When the root is removed, its children remain as a
//! list of heaps: they are melded in pairs from the left, and then the pairs from the right.
//! (Fredman, Sedgewick, Sleator and Tarjan, "The pairing heap", 1986: pushing takes constant time;
//! popping takes logarithmic time, averaged over a sequence.) Both passes are loops: a heap of a
//! million threads must not need a deep stack.

use core::fmt;

use super::Ready;
use crate::engine::sched::Green;

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
        self.root = Some(match self.root {
            Some(root) => meld(root, green),
            None => green,
        });
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
        // Left to right: pairs, stacked in reverse.
        let mut rest = root.heap.child.take();
        let mut pairs: Option<&'static Green> = None;
        while let Some(first) = rest {
            let pair = match first.next.take() {
                Some(second) => {
                    rest = second.next.take();
                    meld(first, second)
                }
                None => {
                    rest = None;
                    first
                }
            };
            pair.next.set(pairs);
            pairs = Some(pair);
        }
        // Right to left: all into one.
        self.root = None;
        while let Some(pair) = pairs {
            pairs = pair.next.take();
            self.root = Some(match self.root {
                Some(root) => meld(root, pair),
                None => pair,
            });
        }
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

/// Makes the root that comes later the first child of the other one, which is returned. Neither has
/// a sibling.
fn meld(a: &'static Green, b: &'static Green) -> &'static Green {
    let (parent, child) = match a.heap.rank.get() <= b.heap.rank.get() {
        true => (a, b),
        false => (b, a),
    };
    child.next.set(parent.heap.child.replace(Some(child)));
    parent
}

impl Drop for Heap {
    fn drop(&mut self) {
        if !self.is_empty() {
            crate::engine::sys::die("a policy has dropped a heap of ready threads");
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
