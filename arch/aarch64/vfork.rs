//! `vfork`: the child runs on the parent's stack, and the parent goes on when the child has called `exec` or ended.
//!
//! What lies on the stack at the call may be something else when the parent goes on. So nothing is kept there: a system
//! call leaves the registers in which it lies as they are. The kernel has no `vfork` here: it is a `clone`.

/// The body of a naked `vfork`. `$before` is called first, and returns a `bool`; the parent calls `$after` with the
/// system call's result and that, and returns what it returns.
macro_rules! vfork {
    ($before:path, $after:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34", // bti c
            "stp x29, x30, [sp, #-16]!",
            ".cfi_adjust_cfa_offset 16",
            ".cfi_rel_offset x29, 0",
            ".cfi_rel_offset x30, 8",
            "bl {before}",
            "ldp x29, x30, [sp], #16",
            ".cfi_adjust_cfa_offset -16",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "and w9, w0, #1",
            "mov w0, #{flags}",
            "mov x1, xzr",
            "mov x2, xzr",
            "mov x3, xzr",
            "mov x4, xzr",
            "mov x8, #{number}",
            "svc #0",
            "cbz x0, 2f",
            "mov w1, w9",
            "b {after}",
            "2:",
            "ret",
            ".cfi_endproc",
            flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            number = const libc::SYS_clone,
            before = sym $before,
            after = sym $after,
        )
    };
}
pub(crate) use vfork;
