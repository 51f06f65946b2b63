//! Schedule points at the atomic operations of all code that is compiled with LLVM's pass `tsan`.
//!
//! The pass, which needs no runtime of the sanitizer's and no nightly compiler, replaces each atomic operation by a call of one
//! of these functions: in every crate, and in what of std is generic or inlined. (`docs/sim.md` has the flags.) So the functions
//! are here only in a build with `--cfg greenthread_points`. Each does the operation, and comes to a
//! point before or behind it.
//!
//! Other kernel threads may run the functions too, outside of simulated processes: there the operations are real ones,
//! sequentially consistent, whatever order they are called with. They are in assembly (`arch`): the pass would replace one in
//! Rust by a call of the function that it is in.

use core::ffi::c_int;

use super::schedule;
use crate::arch::points;
use crate::sys::simulated::{Step, is_alone, is_behind};

/// Does an operation, and comes to a point: before it, or behind it, since what is compiled without points may come next, or
/// plain memory. `what` tells the kind by what the word was; `look` tells what it is.
#[inline(always)]
fn operate<T: Copy>(look: impl Fn() -> T, does: impl Fn() -> T, what: impl Fn(T) -> Step) -> T {
    if !schedule::has_points() {
        return does();
    }
    if is_behind() {
        let found = does();
        schedule::behind(what(found));
        return found;
    }
    schedule::at(what(look()));
    does()
}

/// To change a word from `before` to `after`, or to look at it: then its address and its value count.
#[inline(always)]
fn step<T: Copy + PartialEq + Into<u64>>(word: *const T, before: T, after: T) -> Step {
    let number = before.into().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match before == after {
        true => Step::Load(word.addr() ^ number as usize),
        false => Step::Change,
    }
}

macro_rules! operations {
    ($($T:ident $bits:literal)*) => {$(
        mod $T {
            use super::*;

            #[unsafe(export_name = concat!("__tsan_atomic", $bits, "_load"))]
            unsafe extern "C" fn load(word: *const $T, _: c_int) -> $T {
                // SAFETY: the word of an atomic operation: valid and aligned. So it is below.
                let load = || unsafe { points::$T::load(word) };
                operate(load, load, |value| step(word, value, value))
            }

            #[unsafe(export_name = concat!("__tsan_atomic", $bits, "_store"))]
            unsafe extern "C" fn store(word: *mut $T, value: $T, _: c_int) {
                // SAFETY: as above.
                let store = || unsafe { points::$T::store(word, value, is_alone()) };
                operate(|| (), store, |()| Step::Store)
            }

            #[unsafe(export_name = concat!("__tsan_atomic", $bits, "_compare_exchange_val"))]
            unsafe extern "C" fn compare_exchange(
                word: *mut $T, expected: $T, new: $T, _: c_int, _: c_int,
            ) -> $T {
                let changed = |before| if before == expected { new } else { before };
                // SAFETY: as above.
                let load = || unsafe { points::$T::load(word) };
                // SAFETY: as above.
                let change = || unsafe { points::$T::compare_exchange(word, expected, new, is_alone()) };
                operate(load, change, |before| step(word, before, changed(before)))
            }

            operations! { $T $bits exchange "_exchange" |_, value| value }
            operations! { $T $bits add "_fetch_add" |before: $T, value| before.wrapping_add(value) }
            operations! { $T $bits sub "_fetch_sub" |before: $T, value| before.wrapping_sub(value) }
            operations! { $T $bits and "_fetch_and" |before, value| before & value }
            operations! { $T $bits or "_fetch_or" |before, value| before | value }
            operations! { $T $bits xor "_fetch_xor" |before, value| before ^ value }
            operations! { $T $bits nand "_fetch_nand" |before: $T, value| !(before & value) }
        }
    )*};
    ($T:ident $bits:literal $name:ident $end:literal $change:expr) => {
        #[unsafe(export_name = concat!("__tsan_atomic", $bits, $end))]
        unsafe extern "C" fn $name(word: *mut $T, value: $T, _: c_int) -> $T {
            let changed: fn($T, $T) -> $T = $change;
            // SAFETY: as above.
            let load = || unsafe { points::$T::load(word) };
            let change = || loop {
                let before = load();
                let new = changed(before, value);
                // SAFETY: as above.
                let found = unsafe { points::$T::compare_exchange(word, before, new, is_alone()) };
                if found == before {
                    return before;
                }
            };
            operate(load, change, |before| step(word, before, changed(before, value)))
        }
    };
}

operations! { u8 "8" u16 "16" u32 "32" u64 "64" }

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_thread_fence(_: c_int) {
    schedule::at(Step::Fence);
    points::fence(is_alone());
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_signal_fence(_: c_int) {}
