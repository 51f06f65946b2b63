//! Stands in for the library's `atomic`: the checker's atomics, each with a shadow, and its cells.
//!
//! The checker skips interleavings that it believes equal, and remembers only the last access to
//! each atomic for it. When a thread loads and then stores, it therefore misses that the store
//! could come before another thread's load. Here each access first touches the shadow with a
//! Relaxed read-modify-write, which is never skipped. It orders nothing else, and loads still
//! return every value that the memory model allows.
//!
//! The checker takes a SeqCst load or store for an Acquire or a Release. So a SeqCst store releases the
//! shadow behind it, and a SeqCst load acquires it: the load sees the last SeqCst store to this atomic, or
//! a later one. It needs both of the two, as in the memory model.

use std::cell::Cell as StdCell;

use Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{self, AtomicUsize as Shadow};
pub(crate) use loom::sync::atomic::{Ordering, fence};

macro_rules! const_fn {
    ($(#[$attribute:meta])* $visibility:vis const fn $($rest:tt)*) => {
        $(#[$attribute])* $visibility fn $($rest)*
    };
}
pub(crate) use const_fn;

/// Both halves of the asymmetric fence are real fences here. Without the barrier this one is nothing.
pub(crate) fn compiler_fence(order: Ordering) {
    if super::sys::kernel_thread::register_barrier() {
        fence(order);
    }
}

// One model runs on one kernel thread, all its threads included.
std::thread_local! {
    /// Loads see the newest value only.
    pub(crate) static NEWEST: StdCell<bool> = const { StdCell::new(false) };
    /// Stores come in the order of the execution.
    static IN_ORDER: StdCell<bool> = const { StdCell::new(false) };
}

/// For the beginning of an execution. Of a plain store and a read-modify-write, neither of which happens before the
/// other, the checker believes that either may be the last, and changes its mind: a later read-modify-write may
/// lose one of them. With this, stores are swaps, of which each comes behind the last. A swap also passes on what
/// an earlier store released: so this is for models whose atomics of that kind release nothing.
pub(crate) fn stores_come_in_order(they_do: bool) {
    IN_ORDER.set(they_do);
}

pub(crate) fn do_stores_come_in_order() -> bool {
    IN_ORDER.get()
}

macro_rules! shadowed {
    ($($name:ident$(<$t:ident>)? of $value:ty = $any:expr, { $($extra:tt)* })*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name$(<$t>)? {
            value: atomic::$name$(<$t>)?,
            shadow: Shadow,
            /// Written by a plain store, after which a read-modify-write may have a choice.
            stored: StdCell<bool>,
        }

        impl$(<$t>)? Default for $name$(<$t>)? {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }

        impl$(<$t>)? $name$(<$t>)? {
            pub(crate) fn new(value: $value) -> Self {
                Self {
                    value: atomic::$name::new(value),
                    shadow: Shadow::new(0),
                    stored: StdCell::new(false),
                }
            }

            fn touched(&self) -> &atomic::$name$(<$t>)? {
                self.shadow.fetch_add(1, Relaxed);
                &self.value
            }

            /// An access without a choice: nobody comes between it and the shadow's.
            fn at_once<R>(&self, access: impl FnOnce(&atomic::$name$(<$t>)?) -> R) -> R {
                self.shadow.fetch_add(1, Relaxed);
                loom::stop_exploring();
                let result = access(&self.value);
                loom::explore();
                result
            }

            fn modify<R>(&self, access: impl FnOnce(&atomic::$name$(<$t>)?) -> R) -> R {
                if self.stored.get() {
                    access(self.touched())
                } else {
                    self.at_once(access)
                }
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                if NEWEST.get() {
                    // Fails, or changes nothing; and a read-modify-write sees the newest.
                    let seen = self.compare_exchange($any, $any, order, order);
                    return seen.unwrap_or_else(|newest| newest);
                }
                if order == SeqCst {
                    self.shadow.fetch_add(1, Acquire);
                    return self.value.load(order);
                }
                self.touched().load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                if IN_ORDER.get() {
                    self.swap(value, order);
                    return;
                }
                self.stored.set(true);
                self.at_once(|atomic| {
                    atomic.store(value, order);
                    if order == SeqCst {
                        self.shadow.fetch_add(1, Release);
                    }
                });
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.modify(|atomic| atomic.swap(value, order))
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.modify(|atomic| atomic.compare_exchange(current, new, success, failure))
            }

            /// Never fails without reason here: in a loop that would be one round more.
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut next: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut seen = self.load(failure);
                while let Some(new) = next(seen) {
                    match self.compare_exchange(seen, new, success, failure) {
                        Ok(_) => return Ok(seen),
                        Err(now) => seen = now,
                    }
                }
                Err(seen)
            }

            $($extra)*
        }
    )*};
}

macro_rules! fetches {
    ($value:ty: $($name:ident)*) => {$(
        pub(crate) fn $name(&self, value: $value, order: Ordering) -> $value {
            self.modify(|atomic| atomic.$name(value, order))
        }
    )*};
}

shadowed! {
    AtomicU32 of u32 = 0, { fetches! { u32: fetch_add fetch_sub fetch_or fetch_and } }
    AtomicI32 of i32 = 0, {}
    AtomicBool of bool = false, {}
    AtomicUsize of usize = 0, { fetches! { usize: fetch_add fetch_sub fetch_or fetch_and } }
    AtomicU64 of u64 = 0, { fetches! { u64: fetch_add fetch_sub fetch_and fetch_min } }
    AtomicPtr<P> of *mut P = std::ptr::null_mut(), {}
}

/// A cell that one thread at a time may use: what else happens is a race, and found.
pub(crate) struct Cell<T>(UnsafeCell<T>);

impl<T: Default> Default for Cell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Cell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn replace(&self, value: T) -> T {
        interrupts::point();
        // SAFETY: what the model checks.
        self.0
            .with_mut(|cell| unsafe { std::mem::replace(&mut *cell, value) })
    }

    pub(crate) fn set(&self, value: T) {
        self.replace(value);
    }
}

impl<T: Default> Cell<T> {
    pub(crate) fn take(&self) -> T {
        self.replace(T::default())
    }
}

impl<T: Copy> Cell<T> {
    pub(crate) fn get(&self) -> T {
        interrupts::point();
        // SAFETY: what the model checks.
        self.0.with(|cell| unsafe { *cell })
    }
}

/// Signals that come before an access to a [`Cell`], in a model of one thread and its handlers.
pub(crate) mod interrupts {
    use std::cell::{Cell, RefCell};

    std::thread_local! {
        /// How many accesses come before the next signal, from the last one on; the next ones' below it.
        static PLAN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
        static HANDLER: Cell<fn()> = const { Cell::new(|| ()) };
    }

    /// So many accesses, each counted from the signal before, come before the signals for `handler`.
    pub(crate) fn plan(accesses: &[usize], handler: fn()) {
        HANDLER.set(handler);
        PLAN.replace(accesses.iter().rev().copied().collect());
    }

    /// Whether there were fewer accesses than that.
    pub(crate) fn are_left() -> bool {
        PLAN.with_borrow(|plan| !plan.is_empty())
    }

    pub(crate) fn point() {
        let is_now = PLAN.with_borrow_mut(|plan| match plan.last_mut() {
            Some(0) => plan.pop().is_some(),
            Some(more) => {
                *more -= 1;
                false
            }
            None => false,
        });
        if is_now {
            HANDLER.get()();
        }
    }
}
