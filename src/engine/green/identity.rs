//! The name and the number of a thread. The public handle to a thread begins with them.

use core::num::NonZeroU64;

use crate::engine::atomic::{AtomicU64, Ordering};

/// The name and the number of one thread, green or kernel.
pub(crate) struct Identity {
    /// The identifier; 0 until a caller first asks for it, which rarely happens.
    id: AtomicU64,
    name: Option<Box<Name>>,
}

/// A name. Boxed, it takes one word in its owner: most threads have none.
struct Name(Box<str>);

impl Identity {
    pub(crate) fn new(name: Option<Box<str>>) -> Identity {
        Identity {
            id: AtomicU64::new(0),
            name: name.map(|name| Box::new(Name(name))),
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_ref().map(|name| &*name.0)
    }

    pub(crate) fn id(&self) -> NonZeroU64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let known = NonZeroU64::new(self.id.load(Ordering::Relaxed));
        known.unwrap_or_else(|| {
            let new = NEXT.fetch_add(1, Ordering::Relaxed);
            // Two callers may ask at once: the first number stays.
            let found = self
                .id
                .compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
            match NonZeroU64::new(found.map_or_else(|first| first, |_| new)) {
                Some(id) => id,
                None => crate::engine::sys::die("2^64 threads were asked for their number"),
            }
        })
    }
}
