//! The trampoline: code that an interrupted thread is sent through.
//!
//! The stack pointer is at a copy of the kernel's record of the thread (the picture is in `frame`), and
//! stays there. The trampoline calls `sched::current::suspend_preempted`, and then goes the *way back*:
//! `rt_sigreturn`, which restores every register from the copy.
//!
//! Why the kernel: nothing else can. A branch to any address takes that address from a register, and the
//! interrupted code may have something in each of them.
//!
//! `rt_sigreturn` also sets the signal mask and the alternate stack of the kernel thread, which by now may
//! be another one. So the way back first reads both into the record. Between that and the end of the way
//! the thread must not change kernel threads: it is not preempted there ([`is_way_back`]). Handlers of
//! signals that come there leave mask and alternate stack as they found them.
//!
//! Unwinders find every register in the record: CFI rules that begin at the stack pointer.

use core::arch::{asm, global_asm};
use core::mem::offset_of;

use super::frame::SavedRegisters;

unsafe extern "C" {
    pub(super) fn preempt_trampoline();
    fn greenthread_way_back();
    fn greenthread_way_back_end();
}

/// Where the record has what is written and read here.
const STACK: usize = offset_of!(SavedRegisters, context.stack);
const MASK: usize = offset_of!(SavedRegisters, context.mask);
const REGISTERS: usize = offset_of!(SavedRegisters, context.machine.registers);
const SP: usize = offset_of!(SavedRegisters, context.machine.sp);
const PC: usize = offset_of!(SavedRegisters, context.machine.pc);

// What the rules are written in: two bytes of a signed LEB128 number.
const _: () = assert!(REGISTERS >= 64 && PC < 1 << 13);

/// Whether the instruction at `pc` is on a way back.
pub(super) fn is_way_back(pc: usize) -> bool {
    let (start, end): (usize, usize);
    // SAFETY: computes two addresses.
    unsafe {
        asm!(
            "adrp {0}, {from}", "add {0}, {0}, :lo12:{from}",
            "adrp {1}, {to}", "add {1}, {1}, :lo12:{to}",
            out(reg) start, out(reg) end,
            from = sym greenthread_way_back, to = sym greenthread_way_back_end,
            options(nostack, nomem, preserves_flags),
        );
    }
    (start..end).contains(&pc)
}

/// The rules by which an unwinder gets from the trampoline, and from the way back, to the interrupted thread.
macro_rules! rules {
    () => {
        concat!(
            // For unwinders: as behind a signal's frame, the address below is of the next instruction.
            ".cfi_startproc\n",
            ".cfi_signal_frame\n",
            // The program counter has a column of its own: x30 is a register like any other here.
            ".cfi_return_column 32\n",
            // DW_CFA_def_cfa_expression: the word at sp + SP
            ".cfi_escape 0x0f, 4, 0x8f, ({sp} & 0x7f) | 0x80, {sp} >> 7, 0x06\n",
            // DW_CFA_expression: each register at sp + its place
            ".cfi_escape 0x10, 32, 3, 0x8f, ({pc} & 0x7f) | 0x80, {pc} >> 7\n",
            ".irp register, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ",
            "16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30\n",
            ".cfi_escape 0x10, \\register, 3, 0x8f, ",
            "(({registers} + 8 * \\register) & 0x7f) | 0x80, ({registers} + 8 * \\register) >> 7\n",
            ".endr\n",
        )
    };
}

global_asm!(
    ".text",
    ".p2align 4",
    ".hidden preempt_trampoline",
    ".globl preempt_trampoline",
    ".type preempt_trampoline, %function",
    // An unwinder may take this address for a return address: then it looks at the byte before.
    "nop",
    "preempt_trampoline:",
    rules!(),
    "hint #38", // bti jc
    "bl {preempted}",
    "b greenthread_way_back",
    ".cfi_endproc",
    ".size preempt_trampoline, . - preempt_trampoline",
    ".p2align 4",
    ".hidden greenthread_way_back, greenthread_way_back_end",
    ".globl greenthread_way_back, greenthread_way_back_end",
    ".type greenthread_way_back, %function",
    "greenthread_way_back:",
    rules!(),
    // sigaltstack(null, where to write the present one)
    "mov x0, xzr",
    "add x1, sp, {stack}",
    "mov x8, {sigaltstack}",
    "svc #0",
    // rt_sigprocmask(no change, null, where to write the present one, its size)
    "mov x0, xzr",
    "mov x1, xzr",
    "add x2, sp, {mask}",
    "mov x3, #8",
    "mov x8, {rt_sigprocmask}",
    "svc #0",
    "mov x8, {rt_sigreturn}",
    "svc #0",
    "greenthread_way_back_end:",
    "brk #0",
    ".cfi_endproc",
    ".size greenthread_way_back, . - greenthread_way_back",
    preempted = sym crate::engine::sched::current::suspend_preempted,
    stack = const STACK,
    mask = const MASK,
    sp = const SP,
    pc = const PC,
    registers = const REGISTERS,
    sigaltstack = const libc::SYS_sigaltstack,
    rt_sigprocmask = const libc::SYS_rt_sigprocmask,
    rt_sigreturn = const libc::SYS_rt_sigreturn,
);
