//! An interrupted thread: its registers, and the trampoline that it is sent through.
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
//! The trampoline then calls `sched::current::suspend_preempted`, which switches away. When the thread is resumed,
//! on any kernel thread, everything is restored and `ret 128` drops pc and red zone at once. Callee-saved
//! registers are kept by the switch itself.

use core::arch::global_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::super::{FAULT, Frame};
use super::guarded::accesses;

/// The instruction that makes a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Bytes below the stack pointer that a leaf function may use without moving it (System V ABI).
const RED_ZONE: usize = 128;
/// Pushed registers, alignment, and the stack that the code under the trampoline needs to switch
/// away.
const TRAMPOLINE_FRAMES: usize = 12 * 8 + 64 + 2048;

/// The kernel's record of an interrupted thread, as far as it is used here.
#[repr(C)]
pub(in crate::engine::arch) struct Context {
    flags: u64,
    link: usize,
    stack: libc::stack_t,
    machine: libc::mcontext_t,
    pub(in crate::engine::arch) mask: u64,
}

impl Frame<'_> {
    /// What an unwinder needs: the program counter, the stack pointer, rbp and rbx.
    pub(crate) fn registers(&self) -> [usize; 4] {
        use libc::{REG_RBP, REG_RBX, REG_RIP, REG_RSP};
        [REG_RIP, REG_RSP, REG_RBP, REG_RBX]
            .map(|name| self.0.machine.gregs[name as usize] as usize)
    }

    /// Where the interrupted function returns to, if it is a leaf: one that has not moved the stack
    /// pointer.
    ///
    /// # Safety
    /// The stack pointer lies in a stack.
    pub(crate) unsafe fn return_address_of_leaf(&self) -> usize {
        // SAFETY: a word of a stack, which is mapped.
        unsafe { super::stack_word(self.sp()) }
    }

    /// If the fault that this frame belongs to is that of a guarded access, makes that function return [`FAULT`]. False:
    /// the fault is other code's.
    pub(crate) fn end_access(&mut self) -> bool {
        if !accesses().contains(&self.pc()) {
            return false;
        }
        // SAFETY: the stack pointer of such a function points to its return address.
        let caller = unsafe { *(self.sp() as *const usize) };
        let registers = &mut self.0.machine.gregs;
        registers[libc::REG_RAX as usize] = FAULT as i64;
        registers[libc::REG_RIP as usize] = caller as i64;
        registers[libc::REG_RSP as usize] += size_of::<usize>() as i64;
        true
    }

    /// The system call that the thread is about to make: its number and arguments. So is one that a
    /// signal has interrupted, if the kernel makes it begin anew.
    pub(crate) fn call_ahead(&self) -> Option<(i64, [u64; 6])> {
        use libc::{REG_R8, REG_R9, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RSI};
        let register = |name: i32| self.0.machine.gregs[name as usize];
        let code = self.pc() as *const u8;
        // SAFETY: the frame is of code that ran, so the instruction can be read; no instruction is this first byte alone.
        let is_call = unsafe { *code == SYSCALL[0] && *code.add(1) == SYSCALL[1] };
        let arguments = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9];
        let arguments = arguments.map(|name| register(name) as u64);
        is_call.then_some((register(REG_RAX), arguments))
    }

    /// The system call that is ahead is not made: it gives `answer`.
    pub(crate) fn end_call(&mut self, answer: i64) {
        let registers = &mut self.0.machine.gregs;
        registers[libc::REG_RIP as usize] += SYSCALL.len() as i64;
        registers[libc::REG_RAX as usize] = answer;
    }

    /// Bytes that [`Frame::inject`] and all that follows need below the stack pointer. `None`: the thread
    /// cannot be sent through the trampoline here; any thread can.
    pub(crate) fn room_needed(&self) -> Option<usize> {
        let state = XSAVE_BYTES.load(Ordering::Relaxed);
        Some(RED_ZONE + TRAMPOLINE_FRAMES + state)
    }

    /// Makes the thread go on in the trampoline, as if it had called it here.
    ///
    /// # Safety
    /// The stack has [`Frame::room_needed`] bytes below the stack pointer, and the thread may be
    /// suspended here.
    pub(crate) unsafe fn inject(&mut self) {
        let registers = &mut self.0.machine.gregs;
        let slot = registers[libc::REG_RSP as usize] as usize - RED_ZONE - 8;
        // SAFETY: room below the red zone was promised.
        unsafe { *(slot as *mut i64) = registers[libc::REG_RIP as usize] };
        registers[libc::REG_RSP as usize] = slot as i64;
        registers[libc::REG_RIP as usize] = preempt_trampoline as *const () as i64;
        // A thread interrupted in the middle of a string operation may have the direction flag set;
        // the trampoline saves the flags and clears it, so nothing is to be done here.
    }
}

/// Measures the area that the trampoline saves the extended state in.
pub(super) fn measure_state() {
    // Leaf 0xd: sub-leaf 0 gives the bytes that the enabled state needs, sub-leaf 1 says whether
    // XSAVEC exists.
    let size = super::cpuid(0xd, 0).ebx as usize;
    let compacts = super::cpuid(0xd, 1).eax & 2 != 0;
    XSAVE_BYTES.store(size.next_multiple_of(64), Ordering::Relaxed);
    XSAVE_COMPACTS.store(compacts as usize, Ordering::Relaxed);
}

static XSAVE_BYTES: AtomicUsize = AtomicUsize::new(4096);
static XSAVE_COMPACTS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn preempt_trampoline();
}

/// Saves everything, calls `$function`, restores everything.
macro_rules! trampoline {
    ($name:literal, $function:path) => {
        global_asm!(
            ".text",
            ".p2align 4",
            concat!(".hidden ", $name),
            // These symbols are hidden, so the code below addresses this library's own ones, in a shared
            // library, too.
            ".hidden {bytes}, {compacts}",
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
            ".set .Lsaved_at, -152",
            ".irp name, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11",
            "push \\name",
            ".set .Lsaved_at, .Lsaved_at - 8",
            ".cfi_offset \\name, .Lsaved_at",
            ".endr",
            "cld",
            "sub rsp, [rip + {bytes}]",
            "and rsp, -64",
            // XSAVE leaves the header's reserved words alone and XRSTOR faults unless they are zero.
            "xor eax, eax",
            ".irp at, 512, 520, 528, 536, 544, 552, 560, 568",
            "mov [rsp + \\at], rax",
            ".endr",
            "cmp qword ptr [rip + {compacts}], 0",
            "mov eax, -1",
            "mov edx, -1",
            "je 2f",
            "xsavec64 [rsp]",
            "jmp 3f",
            "2:",
            "xsave64 [rsp]",
            "3:",
            // XSAVE only copies the x87 registers, so without this the next thread would find the x87 stack
            // as full as this thread has left it.
            "fninit",
            "call {function}",
            "mov eax, -1",
            "mov edx, -1",
            "xrstor64 [rsp]",
            "lea rsp, [rbp - 72]",
            ".irp name, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax, rbp",
            "pop \\name",
            ".cfi_restore \\name",
            ".endr",
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
    crate::engine::sched::current::suspend_preempted
);

#[cfg(all(test, feature = "observe"))]
mod tests {
    use core::arch::naked_asm;

    use super::*;
    use crate::observe::unwind::tests::stepped::step;

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
