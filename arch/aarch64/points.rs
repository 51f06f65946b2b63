//! Atomic operations in assembly, sequentially consistent: for functions that the compiler calls in place of atomic operations.

use core::arch::asm;

macro_rules! words {
    ($($T:ident: $suffix:tt $modifier:tt $extend:tt;)*) => {$(
        pub(crate) mod $T {
            use super::*;

            /// # Safety
            /// The word is valid and aligned. So it is below.
            #[inline(always)]
            pub(crate) unsafe fn load(word: *const $T) -> $T {
                let found;
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("ldar", $suffix, " {0:", $modifier, "}, [{1}]"), out(reg) found, in(reg) word,
                        options(nostack, preserves_flags));
                }
                found
            }

            /// # Safety
            /// As above.
            #[inline(always)]
            pub(crate) unsafe fn store(word: *mut $T, value: $T, _is_alone: bool) {
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("stlr", $suffix, " {0:", $modifier, "}, [{1}]"), in(reg) value, in(reg) word,
                        options(nostack, preserves_flags));
                }
            }

            /// # Safety
            /// As above.
            #[inline(always)]
            pub(crate) unsafe fn compare_exchange(
                word: *mut $T, expected: $T, new: $T, _is_alone: bool,
            ) -> $T {
                let found: $T;
                // SAFETY: the caller's promise. A load that is exclusive fills a whole register.
                unsafe {
                    asm!(
                        "2:",
                        concat!("ldaxr", $suffix, " {found:", $modifier, "}, [{word}]"),
                        concat!("cmp {found:", $modifier, "}, {expected:", $modifier, "}", $extend),
                        "b.ne 3f",
                        concat!("stlxr", $suffix, " {failed:w}, {new:", $modifier, "}, [{word}]"),
                        "cbnz {failed:w}, 2b",
                        "3:",
                        word = in(reg) word, expected = in(reg) expected, new = in(reg) new,
                        found = out(reg) found, failed = out(reg) _, options(nostack));
                }
                found
            }
        }
    )*};
}

words! {
    u8: "b" "w" ", uxtb";
    u16: "h" "w" ", uxth";
    u32: "" "w" "";
    u64: "" "x" "";
}

#[inline(always)]
pub(crate) fn fence(_is_alone: bool) {
    // SAFETY: a fence.
    unsafe { asm!("dmb ish", options(nostack, preserves_flags)) };
}
