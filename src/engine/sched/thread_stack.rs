//! A thread's stack: the stack and the thread-local block of a thread, from its first instruction to its
//! last.
//!
//! ```text
//!   slot:  | guard | stack ... | thread-local block | ThreadStack | Slot header |
//! ```
//!
//! Slots are never unmapped, so a stack is `&'static`; it is let to one thread after another. A
//! thread moves in when it runs for the first time (`sched::start`), and its stack is free again
//! when it has ended. A stack that nobody needs is dismantled (`stack::reclaim`): then its memory is
//! zero, until another stack is furnished in the slot. Who reads a stack whose thread may have ended
//! meanwhile finds that, and throws away what it has read (`inspect::threads`); or it keeps stacks from
//! being dismantled (`inspect::epoch`).

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;

use super::{Green, Identity};
use crate::engine::inspect::epoch;
use crate::engine::sched::switch::Bounds;
use crate::engine::stack::{self, Slot, reclaim::Stays};
use crate::engine::sys::statics::AtomicStatic;
use crate::engine::sys::{perturb, sanitizer};
use crate::engine::tls;

#[repr(align(64))]
pub(crate) struct ThreadStack {
    pub(crate) thread_pointer: *mut u8,
    /// The address of malloc's word for its per-thread cache, in this block; null if it was not
    /// found.
    pub(crate) tcache: *mut usize,
    pub(crate) bounds: Bounds,
    slot: &'static Slot,
    /// The thread that lives here; for the fault handler.
    tenant: AtomicStatic<Green>,
    /// The tenant's.
    pub(crate) cpu_time: AtomicU64,
    /// The tenant's.
    pub(crate) fiber: sanitizer::Fiber,
    /// The name that the thread has given itself by a call of C's, if it has ([`ThreadStack::own_name`]).
    name: [AtomicU64; 2],
}

/// A name as the system keeps it: 15 bytes at most, and a NUL.
pub(crate) type SystemName = [u8; 16];

/// In the place of the last NUL: there is a name.
const NAMED: u8 = 1;

// SAFETY: all fields but the tenant and the name, which are atomic, are written once. The holder of the stack may touch the memory
// behind the pointers.
unsafe impl Sync for ThreadStack {}
// SAFETY: as above.
unsafe impl Send for ThreadStack {}

/// The number of different distances, a cache line apart, at which stacks, and the blocks below
/// them, lie from the tops of their slots. All slots begin at the same place of a page, so
/// otherwise the blocks of a thousand threads would share the few sets of the caches to which such
/// addresses map.
const COLOURS: usize = 16;
const LINE: usize = 64;

/// The number of bytes at the top of a slot that do not belong to the stack.
pub(crate) fn reserve() -> usize {
    const TOP: usize = 1 << 40;
    TOP - tls::place(TOP - size_of::<ThreadStack>() - (COLOURS - 1) * LINE).stack_top
}

/// The address of the stack's record on `slot`.
fn address_on(slot: &Slot) -> usize {
    const SPREAD: usize = 0x9e37_79b9_7f4a_7c15;
    let colour = (slot.top() / 4096).wrapping_mul(SPREAD) >> (usize::BITS - COLOURS.ilog2());
    (slot.top() - size_of::<ThreadStack>() - colour * LINE) & !(align_of::<ThreadStack>() - 1)
}

impl ThreadStack {
    /// Returns a free stack with at least `size` bytes of stack. Allocates if the stack is new: call
    /// it preemptible.
    pub(crate) fn find(size: usize) -> io::Result<&'static ThreadStack> {
        let _unseen = sanitizer::unseen();
        let slot = {
            // The list's lock is taken with preemption off.
            let _off = super::current::preemption_off();
            stack::acquire(size)?
        };
        // Relaxed: the slot came through a lock.
        if slot.extra.load(Ordering::Relaxed) != 0 {
            return Ok(ThreadStack::on(slot));
        }
        ThreadStack::furnish(slot).inspect_err(|_| {
            let _off = super::current::preemption_off();
            stack::release(slot);
        })
    }

    /// Returns the stack on a slot that [`stack::Cache`] gave out: such slots are furnished.
    #[inline(always)]
    pub(crate) fn on(slot: &'static Slot) -> &'static ThreadStack {
        // Relaxed: the slot is the caller's.
        ThreadStack::at(slot.extra.load(Ordering::Relaxed))
    }

    /// Returns the stack to which the word of a furnished slot leads.
    #[inline(always)]
    pub(crate) fn at(extra: usize) -> &'static ThreadStack {
        // SAFETY: `extra` is the stack that `furnish` put there.
        unsafe { &*(extra as *const ThreadStack) }
    }

    /// Gives the memory of a free stack back. An error: it cannot be had now, and the slot, which the
    /// caller has taken out of its list, is the caller's as before. `spare` takes malloc's cache; false:
    /// it has no place for it.
    ///
    /// Takes malloc's locks: call it on a kernel thread that runs no green thread.
    pub(crate) fn dismantle(slot: &'static Slot, spare: fn(usize) -> bool) -> Result<(), Stays> {
        let stack = ThreadStack::on(slot);
        // Memory that is locked cannot be given back. And without malloc's word, its cache cannot be found.
        if stack.tcache.is_null() || stack::trim(slot).is_err() {
            return Err(Stays::ForEver);
        }
        let extra = slot.extra.swap(0, Ordering::Relaxed);
        if !(epoch::none_is_open() && stack.is_rid_of_cache(spare)) {
            // Release: as in `furnish`.
            slot.extra.store(extra, Ordering::Release);
            return Err(Stays::ForNow);
        }
        perturb::point("stack: dismantled");
        sanitizer::holds_no_pointers(slot.bottom(), slot.top());
        // SAFETY: its thread has ended, nobody sees the stack or can get it, and it has no cache.
        unsafe { tls::destroy(stack.thread_pointer) };
        // SAFETY: as above, and the block was all that was of use.
        unsafe { stack::decommit(slot) };
        Ok(())
    }

    fn furnish(slot: &'static Slot) -> io::Result<&'static ThreadStack> {
        let at = address_on(slot);
        let place = tls::place(at);
        // SAFETY: the slot is fresh, hence zeroed and ours alone, and large enough: see `reserve`.
        unsafe {
            tls::create(&place, slot.bottom(), place.stack_top - slot.bottom())?;
            let tcache = tls::tcache_offset().map_or(core::ptr::null_mut(), |offset| {
                place.thread_pointer.offset(offset).cast()
            });
            let stack = at as *mut ThreadStack;
            stack.write(ThreadStack {
                thread_pointer: place.thread_pointer,
                tcache,
                bounds: Bounds {
                    bottom: slot.bottom(),
                    top: place.stack_top,
                },
                slot,
                tenant: AtomicStatic::none(),
                cpu_time: AtomicU64::new(0),
                fiber: sanitizer::Fiber::new(),
                name: [const { AtomicU64::new(0) }; 2],
            });
            // Release: pairs with the Acquire in `name_of`, which a fault handler calls.
            slot.extra.store(at, Ordering::Release);
            sanitizer::holds_pointers(slot.bottom(), slot.top());
            Ok(&*stack)
        }
    }

    /// Lets `green` live here from now on.
    #[inline(always)]
    pub(super) fn let_to(&self, green: &'static Green) {
        // Relaxed: the handler that asks runs on this stack.
        self.tenant.store(Some(green), Ordering::Relaxed);
        self.cpu_time.store(0, Ordering::Relaxed);
        self.fiber.begin(self.thread_pointer);
        self.name[1].store(0, Ordering::Relaxed);
    }

    /// The thread that lives here, the caller, gives itself a name.
    pub(crate) fn set_own_name(&self, mut name: SystemName) {
        name[15] = NAMED;
        let (words, _) = name.as_chunks();
        for (word, bytes) in self.name.iter().zip(words) {
            // Relaxed: a report that reads it meanwhile may see parts of two names.
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// The name that the thread has given itself.
    pub(crate) fn own_name(&self) -> Option<SystemName> {
        let words = self
            .name
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        let mut name = [0; 16];
        for (place, word) in name.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        (core::mem::take(&mut name[15]) == NAMED).then_some(name)
    }

    /// Whether the last tenant has left malloc's cache behind, because there was no place for it
    /// elsewhere (`sched::switch`).
    #[inline(always)]
    pub(super) fn has_cache(&self) -> bool {
        // SAFETY: the word is in the block, which is the caller's while no thread lives here.
        !self.tcache.is_null() && unsafe { self.tcache.read() != tls::no_cache() }
    }

    /// Gives `spare` the cache that the last tenant has left behind, if there is one. False: it is
    /// still here.
    fn is_rid_of_cache(&self, spare: fn(usize) -> bool) -> bool {
        // SAFETY: as in `has_cache`.
        let cache = || unsafe { self.tcache.read() };
        let is_rid = !self.has_cache() || spare(cache());
        if is_rid {
            // SAFETY: as above.
            unsafe { self.tcache.write(tls::no_cache()) };
        }
        is_rid
    }

    pub(crate) fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// The stack on `slot` and the thread that lives there, if one does at this moment. Takes no lock.
    pub(crate) fn tenant_of(slot: &Slot) -> Option<(&'static ThreadStack, &'static Green)> {
        // Acquire: pairs with the Release in `furnish`.
        let extra = slot.extra.load(Ordering::Acquire);
        let stack = (extra != 0).then(|| ThreadStack::at(extra))?;
        // A stack that is dismantled meanwhile reads as zero, and nobody lives in it.
        let green = stack.tenant.load(Ordering::Relaxed);
        green
            .filter(|green| green.lives_in(stack))
            .map(|green| (stack, green))
    }

    /// The name that libc has for the thread in this stack.
    pub(crate) fn pthread(&self) -> usize {
        tls::control_block(self.thread_pointer)
    }
}

/// Gives the name of the thread on `slot` to `print`; for the fault handler, so it takes no lock.
pub(crate) fn name_of(slot: &Slot, print: &mut dyn FnMut(&[u8])) {
    // SAFETY: the handler runs on behalf of the thread that faulted: its record and its identity
    // are alive. (If a stray pointer led another thread here, the last tenant may have gone.)
    let identity = ThreadStack::tenant_of(slot)
        .and_then(|(_, green)| unsafe { green.identity.load(Ordering::Relaxed).as_ref() });
    let name = identity.and_then(Identity::name).unwrap_or("<unnamed>");
    print(name.as_bytes());
}
