//! Atomic operations in assembly, sequentially consistent: for functions that the compiler calls in place of atomic operations.
//! `is_alone`: no other kernel thread has the word, so nothing needs to be locked, which takes most of an operation's time.

use core::arch::asm;

macro_rules! words {
    ($($T:ident: $register:tt $accumulator:tt $modifier:tt;)*) => {$(
        pub(crate) mod $T {
            use super::*;

            /// # Safety
            /// The word is valid and aligned. So it is below.
            #[inline(always)]
            pub(crate) unsafe fn load(word: *const $T) -> $T {
                // SAFETY: the caller's promise. An aligned load is atomic here, and is not moved before an earlier one.
                unsafe { word.read_volatile() }
            }

            /// # Safety
            /// As above.
            #[inline(always)]
            pub(crate) unsafe fn store(word: *mut $T, value: $T, is_alone: bool) {
                // SAFETY: the caller's promise. An exchange is locked.
                unsafe {
                    if is_alone {
                        return word.write_volatile(value);
                    }
                    asm!(concat!("xchg [{}], {", $modifier, "}"), in(reg) word, inout($register) value => _,
                        options(nostack, preserves_flags));
                }
            }

            /// # Safety
            /// As above.
            #[inline(always)]
            pub(crate) unsafe fn compare_exchange(
                word: *mut $T, expected: $T, new: $T, is_alone: bool,
            ) -> $T {
                let found: $T;
                // SAFETY: the caller's promise. The byte is the prefix `lock`.
                unsafe {
                    asm!("test {is_alone}, {is_alone}", "jne 2f", ".byte 0xf0", "2:",
                        concat!("cmpxchg [{word}], {new", $modifier, "}"),
                        is_alone = in(reg_byte) is_alone as u8, word = in(reg) word, new = in($register) new,
                        inout($accumulator) expected => found, options(nostack));
                }
                found
            }
        }
    )*};
}

words! {
    u8: reg_byte "al" "";
    u16: reg "ax" ":x";
    u32: reg "eax" ":e";
    u64: reg "rax" ":r";
}

#[inline(always)]
pub(crate) fn fence(is_alone: bool) {
    if !is_alone {
        // SAFETY: a fence.
        unsafe { asm!("mfence", options(nostack, preserves_flags)) };
    }
}
