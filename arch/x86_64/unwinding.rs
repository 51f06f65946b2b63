//! The bodies of functions that leave no frame of Rust's (`sys::unwinding`).

/// The body of a naked function that goes on at the address that `$way` returns, with its arguments.
macro_rules! jump_where {
    ($way:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 56",
            ".cfi_adjust_cfa_offset 56",
            "mov [rsp], rdi",
            "mov [rsp + 8], rsi",
            "mov [rsp + 16], rdx",
            "mov [rsp + 24], rcx",
            "mov [rsp + 32], r8",
            "mov [rsp + 40], r9",
            "call {way}",
            "mov rdi, [rsp]",
            "mov rsi, [rsp + 8]",
            "mov rdx, [rsp + 16]",
            "mov rcx, [rsp + 24]",
            "mov r8, [rsp + 32]",
            "mov r9, [rsp + 40]",
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
            "jmp rax",
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
            "sub rsp, 40",
            ".cfi_adjust_cfa_offset 40",
            "mov [rsp], rdi",
            "mov [rsp + 8], rsi",
            "mov [rsp + 16], rdx",
            "mov [rsp + 24], rcx",
            "call {before}",
            "test rax, rax",
            "jz 2f",
            "mov r8, rdx",
            "mov rdi, [rsp]",
            "mov rsi, [rsp + 8]",
            "mov rdx, [rsp + 16]",
            "mov rcx, [rsp + 24]",
            "lea r9, [rip + {unwound}]",
            "mov [rsp + 16], r9",
            "mov [rsp + 24], r8",
            "call rax",
            "mov rdi, [rsp + 24]",
            "mov rsi, rax",
            ".cfi_remember_state",
            "add rsp, 40",
            ".cfi_adjust_cfa_offset -40",
            "jmp {after}",
            ".cfi_restore_state",
            "2:",
            "mov rax, rdx",
            "add rsp, 40",
            ".cfi_adjust_cfa_offset -40",
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
