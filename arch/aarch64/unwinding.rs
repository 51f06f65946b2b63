//! The bodies of functions that leave no frame of Rust's (`sys::unwinding`).

/// The body of a naked function that goes on at the address that `$way` returns, with its arguments.
macro_rules! jump_where {
    ($way:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34", // bti c
            "stp x29, x30, [sp, #-80]!",
            ".cfi_adjust_cfa_offset 80",
            ".cfi_offset x29, -80",
            ".cfi_offset x30, -72",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "bl {way}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldp x29, x30, [sp], #80",
            ".cfi_adjust_cfa_offset -80",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "br x16",
            ".cfi_endproc",
            way = sym $way,
        )
    };
}
pub(crate) use jump_where;

/// The body of a naked function of at most four arguments: `$before`, the call that this asks for, and `$after`, or
/// `$unwound`.
macro_rules! call_around {
    ($before:path, $after:path, $unwound:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            ".cfi_personality 0x1b, {personality}", // its address is relative, 32 bits
            "hint #34", // bti c
            "sub sp, sp, #48",
            ".cfi_adjust_cfa_offset 48",
            "stp x29, x30, [sp, #32]",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "add x29, sp, #32",
            "stp x0, x1, [sp]",
            "stp x2, x3, [sp, #16]",
            "bl {before}",
            "cbz x0, 2f",
            "mov x16, x0",
            "mov x17, x1",
            "adrp x9, {unwound}",
            "add x9, x9, :lo12:{unwound}",
            "ldp x0, x1, [sp]",
            "ldp x2, x3, [sp, #16]",
            "stp x9, x17, [sp, #16]",
            "blr x16",
            "mov x1, x0",
            "ldr x0, [sp, #24]",
            ".cfi_remember_state",
            "ldp x29, x30, [sp, #32]",
            "add sp, sp, #48",
            ".cfi_adjust_cfa_offset -48",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "b {after}",
            ".cfi_restore_state",
            "2:",
            "mov x0, x1",
            "ldp x29, x30, [sp, #32]",
            "add sp, sp, #48",
            ".cfi_adjust_cfa_offset -48",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            personality = sym $crate::sys::unwinding::personality,
            before = sym $before,
            after = sym $after,
            unwound = sym $unwound,
        )
    };
}
pub(crate) use call_around;
