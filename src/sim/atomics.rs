//! Schedule points at the atomic operations of all code that is compiled with LLVM's pass `tsan`.
//!
//! The pass, which needs no runtime of the sanitizer's and no nightly compiler, replaces each atomic operation by a call of one
//! of these functions: in every crate, and in what of std is generic or inlined. (`docs/sim.md` has the flags.) So the functions
//! are here only in a build with `--cfg greenthread_points`. Each comes to a point, and then does the operation.
//!
//! Other kernel threads may run the functions too, outside of simulated processes: so the operations are real ones, sequentially
//! consistent, whatever order they are called with. They are in assembly (`arch`): the pass would replace one in Rust
//! by a call of the function that it is in.

use core::ffi::c_int;

use super::schedule;
use crate::arch::points;
use crate::sys::simulated::{self, Step};

/// Which word it is, and its value.
#[inline(always)]
fn number<T: Into<u64>>(word: *const T, value: T) -> usize {
    word.addr() ^ value.into().wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize
}

/// Before an operation that changes the word from `before` to `after`.
#[inline(always)]
fn at_change<T: Copy + PartialEq + Into<u64>>(word: *const T, before: T, after: T) {
    match before == after {
        true => schedule::at(Step::Load(number(word, before))),
        false => schedule::at(Step::Change),
    }
}

/// Changes the word to `new` if it is as `expected`, and returns what it was.
///
/// # Safety
/// The word is valid and aligned. `locked` does the same where there are other kernel threads.
#[inline(always)]
unsafe fn compare_exchange<T: Copy + PartialEq>(
    word: *mut T,
    expected: T,
    new: T,
    locked: unsafe fn(*mut T, T, T) -> T,
) -> T {
    // SAFETY: the caller's promise. Where there is one kernel thread, a plain store will do.
    unsafe {
        if !simulated::is_alone() {
            return locked(word, expected, new);
        }
        let found = word.read_volatile();
        if found == expected {
            word.write_volatile(new);
        }
        found
    }
}

macro_rules! operations {
    ($(
        $T:ident: $load:ident $store:ident $exchange:ident $add:ident $sub:ident $and:ident $or:ident $xor:ident
        $nand:ident $compare_exchange:ident
    )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $load(word: *const $T, _: c_int) -> $T {
            // SAFETY: the word of an atomic operation: valid and aligned. So it is below.
            unsafe {
                let value = points::$T::load(word);
                if simulated::is_early() {
                    schedule::at(Step::Loaded(number(word, value)));
                    return value;
                }
                schedule::at(Step::Load(number(word, value)));
                points::$T::load(word)
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $store(word: *mut $T, value: $T, _: c_int) {
            schedule::at(Step::Store);
            // SAFETY: as above. In a simulated process there is one kernel thread.
            unsafe {
                match simulated::is_alone() {
                    true => word.write_volatile(value),
                    false => points::$T::store(word, value),
                }
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $compare_exchange(
            word: *mut $T, expected: $T, new: $T, _: c_int, _: c_int,
        ) -> $T {
            // SAFETY: as above.
            unsafe {
                let before = points::$T::load(word);
                at_change(word, before, if before == expected { new } else { before });
                compare_exchange(word, expected, new, points::$T::compare_exchange)
            }
        }

        operations! { $T, $exchange, |_, value| value }
        operations! { $T, $add, |before: $T, value| before.wrapping_add(value) }
        operations! { $T, $sub, |before: $T, value| before.wrapping_sub(value) }
        operations! { $T, $and, |before, value| before & value }
        operations! { $T, $or, |before, value| before | value }
        operations! { $T, $xor, |before, value| before ^ value }
        operations! { $T, $nand, |before: $T, value| !(before & value) }
    )*};
    ($T:ident, $name:ident, $change:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(word: *mut $T, value: $T, _: c_int) -> $T {
            let change: fn($T, $T) -> $T = $change;
            // SAFETY: as above.
            unsafe {
                let mut before = points::$T::load(word);
                at_change(word, before, change(before, value));
                loop {
                    before = points::$T::load(word);
                    let new = change(before, value);
                    let found = compare_exchange(word, before, new, points::$T::compare_exchange);
                    if found == before {
                        return before;
                    }
                }
            }
        }
    };
}

operations! {
    u8: __tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_exchange __tsan_atomic8_fetch_add
        __tsan_atomic8_fetch_sub __tsan_atomic8_fetch_and __tsan_atomic8_fetch_or __tsan_atomic8_fetch_xor
        __tsan_atomic8_fetch_nand __tsan_atomic8_compare_exchange_val
    u16: __tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_exchange __tsan_atomic16_fetch_add
        __tsan_atomic16_fetch_sub __tsan_atomic16_fetch_and __tsan_atomic16_fetch_or __tsan_atomic16_fetch_xor
        __tsan_atomic16_fetch_nand __tsan_atomic16_compare_exchange_val
    u32: __tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_exchange __tsan_atomic32_fetch_add
        __tsan_atomic32_fetch_sub __tsan_atomic32_fetch_and __tsan_atomic32_fetch_or __tsan_atomic32_fetch_xor
        __tsan_atomic32_fetch_nand __tsan_atomic32_compare_exchange_val
    u64: __tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_exchange __tsan_atomic64_fetch_add
        __tsan_atomic64_fetch_sub __tsan_atomic64_fetch_and __tsan_atomic64_fetch_or __tsan_atomic64_fetch_xor
        __tsan_atomic64_fetch_nand __tsan_atomic64_compare_exchange_val
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_thread_fence(_: c_int) {
    schedule::at(Step::Fence);
    points::fence();
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_signal_fence(_: c_int) {}
