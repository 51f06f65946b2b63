//! malloc's cache travels with the kernel thread: the switch puts it into a green thread's block on
//! the way in and takes it out on the way back. A thread that was preempted, perhaps in the middle
//! of malloc's fast path, keeps the cache that it has. Caches that are thus left over, and kernel
//! threads that thus lack one, meet in [`SPARE_CACHES`]. A thread without a cache has in malloc's
//! word the value that a fresh thread has there, which need not be null (`tls::no_cache`). Where
//! the word was not recognised, or taking a cache away was tried and failed (`tls::probe`), caches
//! stay in the rooms: they cost memory then, as much as the rooms' number at its peak times a
//! cache.

use crate::engine::atomic::{AtomicUsize, Ordering};
use crate::engine::green::{Green, Oddities};
use crate::engine::sched::Machine;
use crate::engine::sched::tuning::POOL;
use crate::engine::sys::lock::Lock;
use crate::engine::tls;

#[inline(always)]
pub(super) fn lend(machine: &Machine, green: &Green) {
    let word = green.tcache();
    if word.is_null() {
        return;
    }
    if machine.tcache.get() == tls::no_cache() && CACHES.load(Ordering::Relaxed) != 0 {
        machine.tcache.set(spare_cache());
    }
    // SAFETY: a word of the green thread's block, which is ours while it does not run.
    unsafe { word.write(machine.tcache.replace(tls::no_cache())) };
}

#[inline(always)]
pub(super) fn take(machine: &Machine, green: &Green) {
    let word = green.tcache();
    if word.is_null() {
        return;
    }
    // SAFETY: as in `lend`.
    let cache = unsafe { word.replace(tls::no_cache()) };
    if machine.tcache.get() == tls::no_cache() {
        machine.tcache.set(cache);
    } else if cache != tls::no_cache() && !spare(cache) {
        // SAFETY: as above. The pool is full: the thread keeps what it has.
        unsafe { word.write(cache) };
        green.oddities.add(Oddities::CACHE);
    }
}

static SPARE_CACHES: Lock<[usize; POOL]> = Lock::new([0; POOL]);
/// How many caches there are; changed under the lock.
static CACHES: AtomicUsize = AtomicUsize::new(0);

#[cold]
#[inline(never)]
fn spare_cache() -> usize {
    let pool = SPARE_CACHES.lock();
    let count = CACHES.load(Ordering::Relaxed);
    if count == 0 {
        return tls::no_cache();
    }
    CACHES.store(count - 1, Ordering::Relaxed);
    pool[count - 1]
}

#[cold]
#[inline(never)]
pub(super) fn spare(cache: usize) -> bool {
    let mut pool = SPARE_CACHES.lock();
    let count = CACHES.load(Ordering::Relaxed);
    if count == POOL {
        return false;
    }
    pool[count] = cache;
    CACHES.store(count + 1, Ordering::Relaxed);
    true
}

/// A machine ends: its cache goes to another machine.
pub(crate) fn leave(machine: &Machine) {
    let cache = machine.tcache.replace(tls::no_cache());
    if cache != tls::no_cache() {
        // The pool holds thousands: one more is not worth keeping, and only malloc knows how to
        // free it.
        let _is_kept = spare(cache);
    }
}
