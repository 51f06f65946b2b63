//! `vfork`: the child runs on the parent's stack, and the parent goes on when the child has called `exec` or ended.
//!
//! What lies on the stack at the call, the return address above all, may be something else when the parent goes on.
//! So nothing is kept there: a system call leaves the registers in which it lies as they are.

/// The body of a naked `vfork`. `$before` is called first, and returns a `bool`; the parent calls `$after` with the
/// system call's result and that, and returns what it returns.
macro_rules! vfork {
    ($before:path, $after:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call {before}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "movzx esi, al",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            ".cfi_register rip, rdx",
            "mov eax, {number}",
            "syscall",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_rel_offset rip, 0",
            "test eax, eax",
            "jz 2f",
            "mov edi, eax",
            "jmp {after}",
            "2:",
            "ret",
            ".cfi_endproc",
            number = const libc::SYS_vfork,
            before = sym $before,
            after = sym $after,
        )
    };
}
pub(crate) use vfork;
