//! An interrupted thread: its registers, and the trampolines that it is sent through.
//!
//! # A preemption, seen on the interrupted stack
//!
//! The signal handler (on the kernel thread's alternate stack) rewrites the interrupted frame so that
//! `sigreturn` lands in a trampoline, as if the thread had called it between two instructions:
//!
//! ```text
//!   sp at the signal ->  |  live data             |
//!                        |  red zone, 128 bytes   |  untouched
//!                        |  interrupted pc        |  by `Frame::inject`, popped by `ret 128`
//!                        |  flags                 |
//!                        |  rbp  <- rbp           |
//!                        |  rax rcx rdx rsi rdi   |  every register a call may clobber
//!                        |  r8 r9 r10 r11         |
//!                        |  (alignment to 64)     |
//!                        |  XSAVE area            |  size from CPUID, header zeroed
//! ```
//!
//! The trampoline then calls `sched::preempt::preempted`, which switches away (or another one
//! `sched::interrupted::go_on`, which does not). When the thread is resumed, on any kernel thread,
//! everything is restored and `ret 128` drops pc and red zone at once. Callee-saved registers are kept
//! by the switch itself.

use core::arch::global_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::prelude::{self, SYSCALL};

/// Bytes below the stack pointer that a leaf function may use without moving it (System V ABI).
const RED_ZONE: usize = 128;
/// Pushed registers, alignment, and the stack that the code under the trampoline needs to switch
/// away.
const TRAMPOLINE_FRAMES: usize = 12 * 8 + 64 + 2048;

/// The kernel's record of an interrupted thread, as far as it is used here.
#[repr(C)]
struct Context {
    flags: u64,
    link: usize,
    stack: libc::stack_t,
    machine: libc::mcontext_t,
    mask: u64,
}

/// An interrupted thread's registers, as a signal handler was given them.
pub(crate) struct Frame<'a>(&'a mut Context);

/// A system call that a thread was interrupted right behind.
pub(crate) struct FinishedCall {
    /// Its result.
    pub(crate) result: isize,
    /// The value that the kernel has overwritten with the result, if that is plain to see before the
    /// instruction: the call's number, in `mov eax, number` or `xor eax, eax`, and nothing after it
    /// that writes eax.
    pub(crate) lost: Option<u64>,
}

/// Where an interrupted thread goes on, to return to the place of the interruption.
pub(crate) enum Trampoline {
    /// To where it calls `sched::preempt::preempted`.
    Preempted,
    /// To where it calls `sched::interrupted::go_on`, with the registers of the system call behind which
    /// it was interrupted, and the value that the call's result has overwritten.
    GoOn(u64),
}

impl<'a> Frame<'a> {
    /// The frame behind a signal handler's third argument.
    ///
    /// # Safety
    /// `context` is that argument, and the handler has not returned.
    pub(crate) unsafe fn new(context: *mut libc::c_void) -> Frame<'a> {
        // SAFETY: the caller's promise.
        Frame(unsafe { &mut *context.cast() })
    }

    /// The interrupted instruction.
    pub(crate) fn pc(&self) -> usize {
        self.0.machine.gregs[libc::REG_RIP as usize] as usize
    }

    /// The stack pointer at that instruction.
    pub(crate) fn sp(&self) -> usize {
        self.0.machine.gregs[libc::REG_RSP as usize] as usize
    }

    /// What an unwinder needs: the program counter, the stack pointer, rbp and rbx.
    pub(crate) fn registers(&self) -> [usize; 4] {
        use libc::{REG_RBP, REG_RBX, REG_RIP, REG_RSP};
        [REG_RIP, REG_RSP, REG_RBP, REG_RBX]
            .map(|name| self.0.machine.gregs[name as usize] as usize)
    }

    /// The signal mask of the interrupted thread.
    pub(crate) fn mask(&self) -> u64 {
        self.0.mask
    }

    /// The system call that the thread was interrupted right behind, if it was.
    ///
    /// # Safety
    /// The two bytes before the program counter can be read; and if they are a system call,
    /// [`prelude::LENGTH`] bytes can.
    pub(crate) unsafe fn finished_call(&self) -> Option<FinishedCall> {
        // SAFETY: the caller's promise.
        let code = unsafe {
            let behind = self.pc() as *const u8;
            if *behind.sub(SYSCALL.len()).cast::<[u8; 2]>() != SYSCALL {
                return None;
            }
            &*behind.sub(prelude::LENGTH).cast::<[u8; prelude::LENGTH]>()
        };
        Some(FinishedCall {
            result: self.0.machine.gregs[libc::REG_RAX as usize] as isize,
            lost: prelude::number_in(&code[..prelude::LENGTH - SYSCALL.len()]),
        })
    }

    /// The lost value, if it was kept on the stack, for that purpose: it never is here.
    ///
    /// # Safety
    /// None.
    pub(crate) unsafe fn kept_argument(&self, _top: usize) -> Option<u64> {
        None
    }

    /// The number of that call: the value that was lost.
    pub(crate) fn call_number(&self, lost: u64) -> i64 {
        lost as i64
    }

    /// Where the interrupted function returns to, if it is a leaf: one that has not moved the stack
    /// pointer.
    ///
    /// # Safety
    /// The stack pointer lies in a stack.
    pub(crate) unsafe fn return_address_of_leaf(&self) -> usize {
        // SAFETY: the caller's promise.
        unsafe { super::stack_word(self.sp()) }
    }

    /// Makes the function that was interrupted return `result` at once.
    ///
    /// # Safety
    /// The stack pointer points to the return address, and the function has saved no registers.
    pub(super) unsafe fn return_with(&mut self, result: u64) {
        // SAFETY: the caller's promise.
        let caller = unsafe { *(self.sp() as *const usize) };
        let registers = &mut self.0.machine.gregs;
        registers[libc::REG_RAX as usize] = result as i64;
        registers[libc::REG_RIP as usize] = caller as i64;
        registers[libc::REG_RSP as usize] += size_of::<usize>() as i64;
    }

    /// Makes the thread make that call, whose number was `lost`, again.
    pub(crate) fn repeat_call(&mut self, lost: u64) {
        let registers = &mut self.0.machine.gregs;
        registers[libc::REG_RAX as usize] = lost as i64;
        registers[libc::REG_RIP as usize] -= SYSCALL.len() as i64;
    }

    /// The system call that the thread is about to make: its number and arguments. So is one that a
    /// signal has interrupted, if the kernel makes it begin anew.
    ///
    /// # Safety
    /// The frame is of code that ran, so the instruction at its program counter can be read.
    pub(crate) unsafe fn call_ahead(&self) -> Option<(i64, [u64; 6])> {
        use libc::{REG_R8, REG_R9, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RSI};
        let register = |name: i32| self.0.machine.gregs[name as usize];
        let code = self.pc() as *const u8;
        // SAFETY: the caller's promise; no instruction is this first byte alone.
        let is_call = unsafe { *code == SYSCALL[0] && *code.add(1) == SYSCALL[1] };
        let arguments = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9];
        is_call.then(|| {
            (
                register(REG_RAX),
                arguments.map(|name| register(name) as u64),
            )
        })
    }

    /// Bytes that [`Frame::inject`] and all that follows need below the stack pointer. `None`: the thread
    /// cannot be sent through a trampoline here; any thread can.
    pub(crate) fn room_needed(&self) -> Option<usize> {
        let state = XSAVE_BYTES.load(Ordering::Relaxed);
        Some(RED_ZONE + TRAMPOLINE_FRAMES + state)
    }

    /// Makes the thread go on in a trampoline, as if it had called it here.
    ///
    /// # Safety
    /// The stack has [`Frame::room_needed`] bytes below the stack pointer, and the thread may be
    /// suspended here, or made to go on with that call.
    pub(crate) unsafe fn inject(&mut self, trampoline: Trampoline) {
        let registers = &mut self.0.machine.gregs;
        let destination = match trampoline {
            Trampoline::Preempted => preempt_trampoline,
            Trampoline::GoOn(number) => {
                // The instruction overwrites rcx: no code expects anything there.
                registers[libc::REG_RCX as usize] = number as i64;
                go_on_trampoline
            }
        };
        let slot = registers[libc::REG_RSP as usize] as usize - RED_ZONE - 8;
        // SAFETY: room below the red zone was promised.
        unsafe { *(slot as *mut i64) = registers[libc::REG_RIP as usize] };
        registers[libc::REG_RSP as usize] = slot as i64;
        registers[libc::REG_RIP as usize] = destination as *const () as i64;
        // A thread interrupted in the middle of a string operation may have the direction flag set;
        // the trampoline saves the flags and clears it, so nothing is to be done here.
    }
}

/// Measures the area that a trampoline saves the extended state in.
pub(super) fn measure_state() {
    // Leaf 0xd: sub-leaf 0 gives the bytes that the enabled state needs, sub-leaf 1 says whether
    // XSAVEC exists.
    let size = core::arch::x86_64::__cpuid_count(0xd, 0).ebx as usize;
    let compacts = core::arch::x86_64::__cpuid_count(0xd, 1).eax & 2 != 0;
    XSAVE_BYTES.store(size.next_multiple_of(64), Ordering::Relaxed);
    XSAVE_COMPACTS.store(compacts as usize, Ordering::Relaxed);
}

static XSAVE_BYTES: AtomicUsize = AtomicUsize::new(4096);
static XSAVE_COMPACTS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn preempt_trampoline();
    fn go_on_trampoline();
}

/// The registers of an interrupted thread that a call may clobber, as a trampoline saves them.
#[repr(C)]
pub(crate) struct SavedRegisters {
    r11: usize,
    r10: usize,
    r9: usize,
    r8: usize,
    rdi: usize,
    rsi: usize,
    rdx: usize,
    rcx: usize,
    rax: usize,
}

impl SavedRegisters {
    /// The system call that was interrupted: its number and its arguments. In
    /// `go_on_trampoline` only.
    pub(crate) fn call(&self) -> (i64, [usize; 6]) {
        let arguments = [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9];
        (self.rcx as i64, arguments)
    }

    /// Its result so far, and the one that the thread will see.
    pub(crate) fn call_result(&mut self) -> &mut usize {
        &mut self.rax
    }
}

/// Saves everything, calls `$function` with the part that lies in [`SavedRegisters`], restores
/// everything.
macro_rules! trampoline {
    ($name:literal, $function:path) => {
        global_asm!(
            ".text",
            ".p2align 4",
            concat!(".hidden ", $name),
            // Addressed from here, they are no other library's, in a shared one either.
            ".hidden {bytes}",
            ".hidden {compacts}",
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            // For unwinders: as behind a signal's frame, the address below is of the next instruction.
            ".cfi_startproc",
            ".cfi_signal_frame",
            ".cfi_def_cfa rsp, 136",
            ".cfi_offset rip, -136",
            "pushfq",
            ".cfi_adjust_cfa_offset 8",
            "push rbp",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_offset rbp, -152",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push rax",
            ".cfi_offset rax, -160",
            "push rcx",
            ".cfi_offset rcx, -168",
            "push rdx",
            ".cfi_offset rdx, -176",
            "push rsi",
            ".cfi_offset rsi, -184",
            "push rdi",
            ".cfi_offset rdi, -192",
            "push r8",
            ".cfi_offset r8, -200",
            "push r9",
            ".cfi_offset r9, -208",
            "push r10",
            ".cfi_offset r10, -216",
            "push r11",
            ".cfi_offset r11, -224",
            "cld",
            "mov rdi, rsp",
            "sub rsp, [rip + {bytes}]",
            "and rsp, -64",
            // XSAVE leaves the header's reserved words alone and XRSTOR faults unless they are zero.
            "xor eax, eax",
            "mov [rsp + 512], rax",
            "mov [rsp + 520], rax",
            "mov [rsp + 528], rax",
            "mov [rsp + 536], rax",
            "mov [rsp + 544], rax",
            "mov [rsp + 552], rax",
            "mov [rsp + 560], rax",
            "mov [rsp + 568], rax",
            "cmp qword ptr [rip + {compacts}], 0",
            "mov eax, -1",
            "mov edx, -1",
            "je 2f",
            "xsavec64 [rsp]",
            "jmp 3f",
            "2:",
            "xsave64 [rsp]",
            "3:",
            // XSAVE copies: the next thread would find the x87 stack as full as it was here.
            "fninit",
            "call {function}",
            "mov eax, -1",
            "mov edx, -1",
            "xrstor64 [rsp]",
            "lea rsp, [rbp - 72]",
            "pop r11",
            ".cfi_restore r11",
            "pop r10",
            ".cfi_restore r10",
            "pop r9",
            ".cfi_restore r9",
            "pop r8",
            ".cfi_restore r8",
            "pop rdi",
            ".cfi_restore rdi",
            "pop rsi",
            ".cfi_restore rsi",
            "pop rdx",
            ".cfi_restore rdx",
            "pop rcx",
            ".cfi_restore rcx",
            "pop rax",
            ".cfi_restore rax",
            "pop rbp",
            ".cfi_restore rbp",
            ".cfi_def_cfa rsp, 144",
            "popfq",
            ".cfi_adjust_cfa_offset -8",
            "ret 128",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            bytes = sym XSAVE_BYTES,
            compacts = sym XSAVE_COMPACTS,
            function = sym $function,
        );
    };
}

trampoline!(
    "preempt_trampoline",
    crate::engine::sched::preempt::preempted
);
trampoline!("go_on_trampoline", crate::engine::sched::interrupted::go_on);

#[cfg(test)]
mod tests {
    use core::arch::naked_asm;

    use super::*;
    use crate::engine::report::unwind::tests::stepped::step;

    trampoline!("trampoline_of_tests", landed);

    #[inline(never)]
    unsafe extern "C" fn landed() {
        core::hint::black_box(());
    }

    /// Goes on at `interrupted` by way of the trampoline, as if a signal had come before its first
    /// instruction: the byte before that is another function's.
    #[unsafe(naked)]
    unsafe extern "C" fn inject() {
        naked_asm!(
            ".cfi_startproc",
            "lea rax, [rip + {interrupted}]",
            "lea rsp, [rsp - 128]",
            ".cfi_adjust_cfa_offset 128",
            "push rax",
            ".cfi_adjust_cfa_offset 8",
            "jmp trampoline_of_tests",
            ".cfi_endproc",
            interrupted = sym interrupted,
        )
    }

    #[unsafe(naked)]
    unsafe extern "C" fn interrupted() {
        naked_asm!(".cfi_startproc", "nop", "ret", ".cfi_endproc")
    }

    /// Its caller is found only with its own frame pointer.
    #[unsafe(naked)]
    unsafe extern "C" fn has_frame_pointer() {
        naked_asm!(
            ".cfi_startproc",
            "push rbp",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "sub rsp, 512",
            "call {inject}",
            "leave",
            ".cfi_def_cfa rsp, 8",
            ".cfi_restore rbp",
            "ret",
            ".cfi_endproc",
            inject = sym inject,
        )
    }

    /// Another test shows that unwinders get through real preemptions.
    #[test]
    fn the_trampolines_tell_unwinders_at_every_instruction_where_they_came_from() {
        measure_state();
        let (steps, _) = step(|| {
            // SAFETY: it touches nothing but its stack.
            unsafe { has_frame_pointer() }
        });
        println!("{steps} instructions");
        assert!(steps > 50);
    }
}
