//! What the protocol files and the models call `crate::atomic`: the checker's atomics, each with a
//! shadow.
//!
//! The checker skips interleavings that it believes equal, and remembers only the last access to
//! each atomic for it. When a thread loads and then stores, it therefore misses that the store
//! could come before another thread's load. Here each access first touches the shadow with a
//! Relaxed read-modify-write, which is never skipped. It orders nothing else, and loads still
//! return every value that the memory model allows.

use Ordering::Relaxed;
use loom::sync::atomic::{self, AtomicUsize as Shadow};
pub(crate) use loom::sync::atomic::{Ordering, fence};

/// Both halves of the asymmetric fence are real fences here.
pub(crate) fn compiler_fence(order: Ordering) {
    fence(order);
}

macro_rules! shadowed {
    ($($name:ident$(<$t:ident>)? of $value:ty { $($extra:tt)* })*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name$(<$t>)? {
            value: atomic::$name$(<$t>)?,
            shadow: Shadow,
        }

        impl$(<$t>)? $name$(<$t>)? {
            pub(crate) fn new(value: $value) -> Self {
                Self { value: atomic::$name::new(value), shadow: Shadow::new(0) }
            }

            fn touched(&self) -> &atomic::$name$(<$t>)? {
                self.shadow.fetch_add(1, Relaxed);
                &self.value
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.touched().load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.touched().store(value, order)
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.touched().swap(value, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.touched().compare_exchange(current, new, success, failure)
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

shadowed! {
    AtomicU32 of u32 {}
    AtomicUsize of usize {}
    AtomicU64 of u64 {
        pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.touched().fetch_add(value, order)
        }

        pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            self.touched().fetch_sub(value, order)
        }
    }
    AtomicPtr<P> of *mut P {}
}
