//! From one stack to another, and the first code on a fresh one.
//!
//! ```text
//!   a stack that was left          a fresh one
//!   | saved rbp |                  | argument        |
//!   | saved rbx |                  | function        |
//!   | go on at  |  <- `left`       | call_at_bottom  |  <- `fresh_stack`
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
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rsi], rsp",
            "mov rsp, rdx",
            "pop rcx",
            "jmp rcx",
            "2:",
            "pop rbx",
            "pop rbp",
            inlateout("rdi") word => came,
            in("rsi") left,
            in("rdx") to,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    came
}

/// The uppermost words of a fresh stack, whose first code calls `function(argument)`.
pub(in crate::engine::arch) fn at_bottom(function: usize, argument: usize) -> [usize; 4] {
    [call_at_bottom as *const () as usize, function, argument, 0]
}

/// The first code on a stack: calls the function that lies there. Every unwinder stops at this frame.
#[unsafe(naked)]
unsafe extern "C" fn call_at_bottom() -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        "pop rax",
        "mov rdi, [rsp]",
        "xor ebp, ebp",
        "call rax",
        "ud2",
        ".cfi_endproc",
    )
}
