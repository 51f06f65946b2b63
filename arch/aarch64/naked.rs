//! The bodies of functions with libc's names that leave no frame of Rust's (`sys::libraries`), and of `vfork`.
//!
//! `vfork`: the child runs on the parent's stack, and the parent goes on when the child has called `exec` or ended.
//!
//! What lies on the stack at the call may be something else when the parent goes on. So nothing is kept there: a system
//! call leaves the registers in which it lies as they are. The kernel has no `vfork` here: it is a `clone`.

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
            ".cfi_startproc; .cfi_undefined x30; hint #34", // bti c
            "stp x29, x30, [sp, #-48]!; mov x29, sp; stp x19, x20, [sp, #16]; str x21, [sp, #32]",
            "mov x19, x0; mov x20, x1; mov x21, x2",
            "mov x0, x21; mov w1, wzr; bl __sigsetjmp",
            "hint #36; cbnz w0, 2f", // bti j
            "mov x0, x21; bl __pthread_register_cancel",
            "mov x0, x20; blr x19; mov x20, x0",
            "mov x0, x21; bl __pthread_unregister_cancel",
            "mov x0, x20; mov x1, xzr; b 3f",
            "2: mov x0, xzr; mov x1, #1",
            "3: ldp x19, x20, [sp, #16]; ldr x21, [sp, #32]; ldp x29, x30, [sp], #48; ret; .cfi_endproc",
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
            "hint #34; mov x4, x30; b {function}",
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

pub(crate) use {call_around, call_as_pthread, jump_where, vfork, with_caller};
