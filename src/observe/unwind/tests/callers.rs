//! Callers of kinds that compilers write seldom: each calls the next, and the last one [`inner_in_c`].

use super::parked::inner_in_c;
use super::*;

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::is_untold;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::is_untold;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::*;

    /// A caller that keeps its stack pointer in rbx, as functions do that align their stack.
    #[unsafe(naked)]
    unsafe extern "C" fn keeps_in_register(argument: &Yield) {
        naked_asm!(
            ".cfi_startproc",
            "push rbx",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_offset rbx, -16",
            "mov rbx, rsp",
            ".cfi_def_cfa_register rbx",
            "and rsp, -64",
            "call {inner}",
            "mov rsp, rbx",
            ".cfi_def_cfa_register rsp",
            "pop rbx",
            ".cfi_adjust_cfa_offset -8",
            ".cfi_restore rbx",
            "ret",
            ".cfi_endproc",
            inner = sym inner_in_c,
        )
    }

    /// One that keeps it in memory: the rule is an expression.
    #[unsafe(naked)]
    unsafe extern "C" fn keeps_in_memory(argument: &Yield) {
        naked_asm!(
            ".cfi_startproc",
            "push rbp",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_offset rbp, -16",
            "lea r10, [rsp + 16]",
            "mov rbp, rsp",
            "push r10",
            // The word at rbp - 8.
            ".cfi_escape 0x0f, 3, 0x76, 0x78, 0x06",
            "and rsp, -64",
            "call {inner}",
            "mov rsp, rbp",
            ".cfi_def_cfa rsp, 16",
            "pop rbp",
            ".cfi_adjust_cfa_offset -8",
            ".cfi_restore rbp",
            "ret",
            ".cfi_endproc",
            inner = sym keeps_in_register,
        )
    }

    /// One that the tables do not know, with a frame pointer.
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn is_untold(argument: &Yield) {
        naked_asm!(
            "push rbp",
            "mov rbp, rsp",
            "call {inner}",
            "pop rbp",
            "ret",
            inner = sym keeps_in_memory,
        )
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use super::*;

    /// A caller that keeps its stack pointer in x19, as functions do that align their stack.
    #[unsafe(naked)]
    unsafe extern "C" fn keeps_in_register(argument: &Yield) {
        naked_asm!(
            ".cfi_startproc",
            "stp x19, x30, [sp, #-16]!",
            ".cfi_adjust_cfa_offset 16",
            ".cfi_offset x19, -16",
            ".cfi_offset x30, -8",
            "mov x19, sp",
            ".cfi_def_cfa_register x19",
            "sub x1, sp, #64",
            "and sp, x1, #-64",
            "bl {inner}",
            "mov sp, x19",
            ".cfi_def_cfa_register sp",
            "ldp x19, x30, [sp], #16",
            ".cfi_adjust_cfa_offset -16",
            ".cfi_restore x19",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            inner = sym inner_in_c,
        )
    }

    /// One that keeps it in memory: the rule is an expression. Its return address is signed.
    #[unsafe(naked)]
    unsafe extern "C" fn keeps_in_memory(argument: &Yield) {
        naked_asm!(
            ".cfi_startproc",
            "hint #25", // paciasp
            ".cfi_negate_ra_state",
            "mov x2, sp",
            "stp x29, x30, [sp, #-32]!",
            ".cfi_adjust_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "mov x29, sp",
            "str x2, [sp, #16]",
            // The word at x29 + 16.
            ".cfi_escape 0x0f, 3, 0x8d, 0x10, 0x06",
            "sub x1, sp, #64",
            "and sp, x1, #-64",
            "bl {inner}",
            "mov sp, x29",
            ".cfi_def_cfa sp, 32",
            "ldp x29, x30, [sp], #32",
            ".cfi_adjust_cfa_offset -32",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "hint #29", // autiasp
            ".cfi_negate_ra_state",
            "ret",
            ".cfi_endproc",
            inner = sym keeps_in_register,
        )
    }

    /// One that the tables do not know, with a frame pointer.
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn is_untold(argument: &Yield) {
        naked_asm!(
            "stp x29, x30, [sp, #-16]!",
            "mov x29, sp",
            "bl {inner}",
            "ldp x29, x30, [sp], #16",
            "ret",
            inner = sym keeps_in_memory,
        )
    }
}
