//! Stands in for the library's `atomic`: each operation is an event of the simulation, and costs
//! what the state of its cache line says. Orderings do not matter: all happens in one order.

use core::sync::atomic as real;
pub(crate) use core::sync::atomic::{Ordering, compiler_fence};

pub(crate) use core::cell::Cell;

use crate::virtual_time::{self, Access};

macro_rules! const_fn {
    ($($function:tt)*) => { $($function)* };
}
pub(crate) use const_fn;

pub(crate) fn fence(_: Ordering) {
    virtual_time::fence();
}

macro_rules! charged {
    ($($name:ident$(<$t:ident>)? of $value:ty, { $($extra:tt)* })*) => {$(
        #[derive(Debug, Default)]
        pub(crate) struct $name$(<$t>)?(real::$name$(<$t>)?);

        impl$(<$t>)? $name$(<$t>)? {
            pub(crate) const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            fn after(&self, access: Access) -> &real::$name$(<$t>)? {
                virtual_time::access(core::ptr::from_ref(self).addr(), access);
                &self.0
            }

            pub(crate) fn load(&self, _: Ordering) -> $value {
                self.after(Access::Load).load(Ordering::Relaxed)
            }

            pub(crate) fn store(&self, value: $value, _: Ordering) {
                self.after(Access::Store).store(value, Ordering::Relaxed);
            }

            pub(crate) fn swap(&self, value: $value, _: Ordering) -> $value {
                self.after(Access::Modify).swap(value, Ordering::Relaxed)
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                let atomic = self.after(Access::Modify);
                atomic.compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed)
            }

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
        pub(crate) fn $name(&self, value: $value, _: Ordering) -> $value {
            self.after(Access::Modify).$name(value, Ordering::Relaxed)
        }
    )*};
}

charged! {
    AtomicBool of bool, { fetches! { bool: fetch_or fetch_and } }
    AtomicU32 of u32, { fetches! { u32: fetch_add fetch_sub fetch_or fetch_and fetch_max fetch_min } }
    AtomicU64 of u64, { fetches! { u64: fetch_add fetch_sub fetch_or fetch_and fetch_max fetch_min } }
    AtomicUsize of usize, {
        fetches! { usize: fetch_add fetch_sub fetch_or fetch_and fetch_max fetch_min }
    }
    AtomicIsize of isize, { fetches! { isize: fetch_add fetch_sub } }
    AtomicPtr<T> of *mut T, {}
}
