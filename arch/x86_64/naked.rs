//! The bodies of functions with libc's names that leave no frame of Rust's (`sys::libraries`), and of `vfork`.
//!
//! `vfork`: the child runs on the parent's stack, and the parent goes on when the child has called `exec` or ended.
//!
//! What lies on the stack at the call, the return address above all, may be something else when the parent goes on.
//! So nothing is kept there: a system call leaves the registers in which it lies as they are.

/// The body of a naked function that goes on at the address that `$way` returns, with its arguments.
macro_rules! jump_where {
    ($way:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            ".irp name, r9, r8, rcx, rdx, rsi, rdi, rax", // rax: for the alignment
            "push \\name",
            ".cfi_adjust_cfa_offset 8",
            ".endr",
            "call {way}",
            ".irp name, r10, rdi, rsi, rdx, rcx, r8, r9",
            "pop \\name",
            ".cfi_adjust_cfa_offset -8",
            ".endr",
            "jmp rax",
            ".cfi_endproc",
            way = sym $way,
        )
    };
}

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
            personality = sym $crate::sys::libraries::personality,
            before = sym $before,
            after = sym $after,
            unwound = sym $unwound,
        )
    };
}

/// The body of a naked function of three arguments, a function, its argument, and a `CancelBuffer`: calls the function as libc
/// calls that of a pthread, so that `pthread_exit` and cancellation end here. Returns what it has returned, and 0; or 0 and 1. Every
/// backtrace ends here, so an exception that nobody catches ends the process.
macro_rules! call_as_pthread {
    () => {
        core::arch::naked_asm!(
            ".cfi_startproc; .cfi_undefined rip; push rbx; push r12; push r13",
            "mov rbx, rdi; mov r12, rsi; mov r13, rdx",
            "mov rdi, r13; xor esi, esi; call __sigsetjmp@PLT; test eax, eax; jnz 2f",
            "mov rdi, r13; call __pthread_register_cancel@PLT",
            "mov rdi, r12; call rbx; mov r12, rax",
            "mov rdi, r13; call __pthread_unregister_cancel@PLT",
            "mov rax, r12; xor edx, edx; jmp 3f",
            "2: xor eax, eax; mov edx, 1",
            "3: pop r13; pop r12; pop rbx; ret; .cfi_endproc",
        )
    };
}

/// The body of `greenthread_pthread_create`, which is also `pthread_create`, unless the program has one of its own (an allocator,
/// say): goes on in `$function`, which gets the address to which the call returns as the fifth argument.
macro_rules! with_caller {
    ($function:path) => {
        core::arch::naked_asm!(
            ".weak pthread_create; .type pthread_create, %function",
            ".set pthread_create, greenthread_pthread_create",
            "mov r8, [rsp]; jmp {function}",
            function = sym $function,
        )
    };
}

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

pub(crate) use {call_around, call_as_pthread, jump_where, vfork, with_caller};
