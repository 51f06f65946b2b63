//! A queue by key, of threads' own records: a pairing heap.
//!
//! The heap is a tree in which nobody comes before its parent. A record has its first child, and
//! its next sibling. Taking the root off leaves its children, a list of heaps: they are melded in
//! pairs from the left, and the pairs from the right. (Fredman, Sedgewick, Sleator and Tarjan, "The
//! pairing heap", 1986: pushing takes constant time, popping logarithmic time on average over a
//! sequence.) Both passes are loops: a heap of a million must not need a deep stack.

use core::fmt;

use super::Ready;
use crate::engine::green::Green;

/// A queue of ready threads by key: the smallest first, and among equals the one that came first.
/// It never allocates: the threads' own records are its links.
///
/// If it is dropped while threads are in it, the process is aborted.
#[derive(Default)]
pub struct Heap {
    root: Option<&'static Green>,
    len: usize,
    pushed: u64,
}

impl Heap {
    /// An empty heap.
    pub const fn new() -> Heap {
        Heap {
            root: None,
            len: 0,
            pushed: 0,
        }
    }

    /// Puts `thread` behind all whose keys are not greater than `key`.
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

    /// Takes the first one.
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

    /// The key of the first one.
    pub fn first_key(&self) -> Option<u64> {
        self.root.map(|green| green.heap.rank.get().0)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Makes the one that comes later the first child of the other. Neither has a sibling.
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
