//! The name and the number of a thread, and where it was spawned. The public handle to a thread begins with them.

use core::cell::Cell;
use core::mem::offset_of;
use core::num::NonZeroU64;
use core::panic::Location;

use crate::engine::atomic::{AtomicU64, Ordering};

/// The name and the number of one thread, green or kernel.
#[repr(C)]
pub(crate) struct Identity {
    /// The identifier; 0 until a caller first asks for it, which rarely happens.
    id: AtomicU64,
    /// Boxed twice, a name takes one word: most threads have none.
    name: Option<Box<Box<str>>>,
    /// The place in the program that spawned the thread; none if that was not this crate's doing.
    spawned_at: Option<&'static Location<'static>>,
}

thread_local! {
    /// Of a kernel thread: see [`Identity::own`]. It has no destructor: the destructors of other thread-locals may ask.
    static OWN: Cell<*const Identity> = const { Cell::new(core::ptr::null()) };
}

impl Identity {
    /// The identity of the calling kernel thread, which owns a share of what begins with it
    /// (`runtime::handle`); null until a caller first asks for the thread's handle.
    pub(crate) fn own() -> *const Identity {
        OWN.get()
    }

    /// Async-signal-safe.
    pub(crate) fn set_own(identity: *const Identity) {
        OWN.set(identity);
    }

    /// For debuggers: where the parts lie.
    pub(crate) const ID: usize = offset_of!(Identity, id);
    pub(crate) const NAME: usize = offset_of!(Identity, name);
    pub(crate) const PLACE: usize = offset_of!(Identity, spawned_at);

    #[inline]
    pub(crate) fn new(
        name: Option<Box<str>>,
        spawned_at: Option<&'static Location<'static>>,
    ) -> Identity {
        // It is made a reference again from its address (`sched::monitor`).
        spawned_at.map(|at| core::ptr::from_ref(at).expose_provenance());
        Identity {
            id: AtomicU64::new(0),
            name: name.map(Box::new),
            spawned_at,
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_ref().map(|name| &***name)
    }

    pub(crate) fn spawned_at(&self) -> Option<&'static Location<'static>> {
        self.spawned_at
    }

    /// The identifier, if a caller has asked for it.
    pub(crate) fn known_id(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.id.load(Ordering::Relaxed))
    }

    pub(crate) fn id(&self) -> NonZeroU64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.known_id().unwrap_or_else(|| {
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
