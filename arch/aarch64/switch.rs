//! From one stack to another, and the first code on a fresh one.
//!
//! ```text
//!   a stack that was left          a fresh one
//!   |           |                  | argument        |
//!   | go on at  |                  | call_at_bottom  |
//!   | saved x29 |                  | 0               |
//!   | saved x19 |  <- `left`       | function        |  <- `fresh_stack`
//! ```
//!
//! A switch jumps there and back: it neither calls nor returns. The processor predicts each return by the call that
//! it was part of, the last one first. So the calls by which a thread came to its switch are paired with the
//! returns of the next thread, which most often has come there by the same calls. A switch that called would shift them
//! all.

use core::arch::{asm, naked_asm};

/// Leaves the stack, whose stack pointer goes to `left`, and goes on at `to`. Returns the `word` of the switch that
/// comes back.
///
/// # Safety
/// `to` comes from a switch that has left that stack, or from [`fresh_stack`](super::super::fresh_stack), and is used once. Nobody else uses
/// either stack.
#[inline(always)]
pub(crate) unsafe fn switch(left: *mut usize, to: usize, word: usize) -> usize {
    let came;
    // SAFETY: all registers that the code behind may rely on are saved here, or named as clobbered.
    unsafe {
        asm!(
            // The compiler keeps these for itself.
            "stp x19, x29, [sp, #-32]!",
            "adr x3, 2f",
            "str x3, [sp, #16]",
            "mov x3, sp",
            "str x3, [x1]",
            // A jump by way of x17 may land where calls land, too.
            "ldr x17, [x2, #16]",
            "mov sp, x2",
            "br x17",
            "2:",
            "hint #36", // bti j
            "ldp x19, x29, [sp], #32",
            inlateout("x0") word => came,
            in("x1") left,
            in("x2") to,
            lateout("x20") _, lateout("x21") _, lateout("x22") _, lateout("x23") _, lateout("x24") _,
            lateout("x25") _, lateout("x26") _, lateout("x27") _, lateout("x28") _,
            clobber_abi("C"),
        );
    }
    came
}

/// The uppermost words of a fresh stack, whose first code calls `function(argument)`.
pub(in crate::engine::arch) fn at_bottom(function: usize, argument: usize) -> [usize; 4] {
    [function, 0, call_at_bottom as *const () as usize, argument]
}

/// The first code on a stack: calls the function that lies there. Every unwinder stops at this frame.
#[unsafe(naked)]
unsafe extern "C" fn call_at_bottom() -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        ".cfi_undefined x29",
        "hint #34", // bti c
        "ldr x2, [sp]",
        "ldr x0, [sp, #24]",
        "mov x29, xzr",
        "mov x30, xzr",
        "blr x2",
        "brk #1",
        ".cfi_endproc",
    )
}
