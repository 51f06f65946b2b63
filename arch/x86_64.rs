//! x86-64: the thread pointer is the FS base, the extended state is what XSAVE saves.
//!
//! # A preemption, seen on the interrupted stack
//!
//! The signal handler (on the kernel thread's alternate stack) rewrites the interrupted frame so
//! that
//! `sigreturn` lands in [`preempt_trampoline`], as if the thread had called it between two
//! instructions:
//!
//! ```text
//!   sp at the signal ->  |  live data             |
//!                        |  red zone, 128 bytes   |  untouched
//!                        |  interrupted pc        |  written by `Frame::inject`, popped by `ret
//!                        128`
//!                        |  flags                 |
//!                        |  rbp  <- rbp           |
//!                        |  rax rcx rdx rsi rdi   |  every register a call may clobber
//!                        |  r8 r9 r10 r11         |
//!                        |  (alignment to 64)     |
//!                        |  XSAVE area            |  size from CPUID, header zeroed
//! ```
//!
//! The trampoline then calls `sched::preempt::preempted`, which switches away (or another one
//! `sched::interrupted::go_on`, which does not). When the thread is
//! resumed, on whatever kernel thread, everything is restored and `ret 128` drops pc and red zone
//! at once. Callee-saved registers are kept by the switch itself.

use core::arch::{asm, global_asm, naked_asm};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes below the stack pointer that a leaf function may use without moving it (System V ABI).
const RED_ZONE: usize = 128;
/// Pushed registers, alignment, and the stack that the code under the trampoline needs to switch
/// away.
const TRAMPOLINE_FRAMES: usize = 12 * 8 + 64 + 2048;

/// The thread pointer: the address of the running thread's control block.
#[inline(always)]
pub(crate) fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: the ABI keeps a pointer to the control block in its own first word, at fs:0.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// Makes `pointer` the thread pointer.
///
/// # Safety
/// `pointer` is a live control block that no other kernel thread has as its thread pointer, and the
/// calling function, after inlining, touches no thread-local: a cached address would belong to the
/// other thread.
#[inline(always)]
pub(crate) unsafe fn set_thread_pointer(pointer: *mut u8) {
    // SAFETY: the caller's promise; `supported` has seen that user code may execute it.
    unsafe { asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags)) };
}

/// Whether user code may write the thread pointer and save the whole register state; if not, why
/// not.
pub(crate) fn supported() -> Result<(), &'static str> {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    if auxiliary(libc::AT_HWCAP2) & HWCAP2_FSGSBASE == 0 {
        return Err("the kernel does not let programs write the FS base (FSGSBASE is off)");
    }
    if !std::is_x86_feature_detected!("xsave") {
        return Err("the processor has no XSAVE");
    }
    // Leaf 0xd: sub-leaf 0 gives the bytes that the enabled state needs, sub-leaf 1 says whether
    // XSAVEC exists.
    let size = core::arch::x86_64::__cpuid_count(0xd, 0).ebx as usize;
    let compacts = core::arch::x86_64::__cpuid_count(0xd, 1).eax & 2 != 0;
    greenthread_xsave_bytes.store(size.next_multiple_of(64), Ordering::Relaxed);
    greenthread_xsave_compacts.store(compacts as usize, Ordering::Relaxed);
    Ok(())
}

/// An entry of the auxiliary vector, in which the kernel tells a program about the machine; 0 if there
/// is none of that kind.
pub(crate) fn auxiliary(kind: u64) -> u64 {
    // SAFETY: reads the vector, which does not change.
    unsafe { libc::getauxval(kind) }
}

/// A system call. A failure comes back as `-errno`; the thread-local `errno` is left alone, so this
/// is right whichever thread's control block the thread pointer names.
///
/// # Safety
/// As the system call demands.
#[inline(always)]
pub(crate) unsafe fn syscall(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: rcx and r11 are clobbered, all else is kept.
    unsafe {
        asm!("syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Calls `function(argument)` in a frame at which every unwinder stops: below it lies another
/// stack.
///
/// # Safety
/// `function` neither unwinds nor is given anything it may not have.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_at_bottom(
    function: unsafe extern "C" fn(*mut ()),
    argument: *mut (),
) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        "push rbp",
        "xor ebp, ebp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "pop rbp",
        "ret",
        ".cfi_endproc",
    )
}

/// The instruction that makes a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// How far before its end the number is looked for.
const CALL_PRELUDE: usize = 32;

/// The number in the last `mov eax, number` of `code` (`xor eax, eax` for 0), if that is plain to see.
fn number_in(code: &[u8]) -> Option<i64> {
    (1..code.len()).rev().find_map(|at| match code[at - 1..] {
        // A prefix would make it a move of another size or to another register.
        [0x40..=0x4f | 0x66, ..] => None,
        [_, 0xb8, low, high @ 0..=1, 0, 0, ref rest @ ..] if leaves_eax(rest) => {
            Some(i64::from(u16::from_le_bytes([low, high])))
        }
        [_, 0x31 | 0x33, 0xc0, ref rest @ ..] if leaves_eax(rest) => Some(0),
        _ => None,
    })
}

/// Whether `code` is whole instructions of a few kinds, none of which writes eax: moves, and
/// arithmetic with constants.
fn leaves_eax(mut code: &[u8]) -> bool {
    while !code.is_empty() {
        let (rex, rest) = match *code {
            [rex @ 0x40..=0x4f, ref rest @ ..] => (rex, rest),
            _ => (0, code),
        };
        // A register's number has its fourth bit in the prefix: of an operand in the middle of the
        // second byte with REX.R, of one at its end with REX.B.
        let (writes, length) = match *rest {
            [opcode @ 0xb8..=0xbf, ..] if rex & 8 == 0 => (opcode & 7 | (rex & 1) << 3, 5),
            [opcode, operands, ref rest @ ..] => {
                let (mode, middle, end) = (operands >> 6, operands >> 3 & 7, operands & 7);
                let sib = usize::from(mode != 3 && end == 4);
                let displacement = match mode {
                    0 if end == 5 => 4,
                    0 if end == 4 && rest.first().is_none_or(|sib| sib & 7 == 5) => 4,
                    1 => 1,
                    2 => 4,
                    _ => 0,
                };
                let (to_middle, constant) = match opcode {
                    0x8b | 0x8d | 0x63 | 0x33 => (true, 0), // mov, lea, movsxd, xor
                    0x89 | 0x31 => (false, 0),              // mov, xor
                    0x80 | 0x83 => (false, 1),              // and, or, xor ... with a constant
                    0x81 | 0xc7 => (false, 4),              // the same, mov
                    _ => return false,
                };
                let writes = match (to_middle, mode) {
                    (true, _) => middle | (rex & 4) << 1,
                    (false, 3) => end | (rex & 1) << 3,
                    (false, _) => MEMORY,
                };
                (writes, 2 + sib + displacement + constant)
            }
            _ => return false,
        };
        const EAX: u8 = 0;
        const MEMORY: u8 = !0;
        if writes == EAX || rest.len() < length {
            return false;
        }
        code = &rest[length..];
    }
    true
}

/// An interrupted thread's registers, as a signal handler was given them.
pub(crate) struct Frame<'a>(&'a mut libc::ucontext_t);

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
        self.0.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
    }

    /// The stack pointer at that instruction.
    pub(crate) fn sp(&self) -> usize {
        self.0.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
    }

    /// The signal mask of the interrupted thread (of which Linux has 64 bits).
    pub(crate) fn mask(&self) -> u64 {
        // SAFETY: sigset_t starts with the kernel's 64-bit mask.
        unsafe { *(&raw const self.0.uc_sigmask).cast() }
    }

    /// What a system call has returned, if the thread was interrupted right behind one.
    ///
    /// # Safety
    /// The two bytes before the program counter can be read.
    pub(crate) unsafe fn call_result(&self) -> Option<isize> {
        // SAFETY: the caller's promise.
        let code = unsafe { *((self.pc() - 2) as *const [u8; 2]) };
        (code == SYSCALL).then(|| self.0.uc_mcontext.gregs[libc::REG_RAX as usize] as isize)
    }

    /// The number of that call, which the kernel has overwritten, if it is plain to see before the
    /// instruction: `mov eax, number` or `xor eax, eax`, and nothing after it that writes eax.
    ///
    /// # Safety
    /// So many bytes before the program counter as [`CALL_PRELUDE`] says can be read.
    pub(crate) unsafe fn call_number(&self) -> Option<i64> {
        // SAFETY: the caller's promise.
        let code = unsafe { &*((self.pc() - CALL_PRELUDE) as *const [u8; CALL_PRELUDE]) };
        number_in(&code[..CALL_PRELUDE - SYSCALL.len()])
    }

    /// Makes the thread make that call, number `number`, again.
    pub(crate) fn repeat_call(&mut self, number: i64) {
        let registers = &mut self.0.uc_mcontext.gregs;
        registers[libc::REG_RAX as usize] = number;
        registers[libc::REG_RIP as usize] -= SYSCALL.len() as i64;
    }

    /// Makes the thread go on in a trampoline that calls `sched::interrupted::go_on` with the call's
    /// registers, and then returns to where it was.
    ///
    /// # Safety
    /// The stack has [`Frame::room_needed`] bytes below the stack pointer.
    pub(crate) unsafe fn go_on_with_call(&mut self, number: i64) {
        // The instruction overwrites rcx: nobody expects anything there.
        self.0.uc_mcontext.gregs[libc::REG_RCX as usize] = number;
        // SAFETY: the caller's promise.
        unsafe { self.call_here(go_on_trampoline) };
    }

    /// The system call that the thread is about to make: its number and arguments. So is one that a
    /// signal has interrupted, if the kernel makes it begin anew.
    ///
    /// # Safety
    /// The frame is of code that ran, so the instruction at its program counter can be read.
    pub(crate) unsafe fn call_ahead(&self) -> Option<(i64, [u64; 6])> {
        use libc::{REG_R8, REG_R9, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RSI};
        let register = |name: i32| self.0.uc_mcontext.gregs[name as usize];
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

    /// Bytes that [`Frame::inject`] and all that follows need below the stack pointer.
    pub(crate) fn room_needed() -> usize {
        RED_ZONE + TRAMPOLINE_FRAMES + greenthread_xsave_bytes.load(Ordering::Relaxed)
    }

    /// Makes the thread go on in the preemption trampoline, as if it had called it here.
    ///
    /// # Safety
    /// The stack has [`Frame::room_needed`] bytes below the stack pointer, and the thread may be
    /// suspended here.
    pub(crate) unsafe fn inject(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { self.call_here(preempt_trampoline) };
    }

    /// # Safety
    /// The stack has [`Frame::room_needed`] bytes below the stack pointer.
    unsafe fn call_here(&mut self, trampoline: unsafe extern "C" fn()) {
        let registers = &mut self.0.uc_mcontext.gregs;
        let slot = registers[libc::REG_RSP as usize] as usize - RED_ZONE - 8;
        // SAFETY: room below the red zone was promised.
        unsafe { *(slot as *mut i64) = registers[libc::REG_RIP as usize] };
        registers[libc::REG_RSP as usize] = slot as i64;
        registers[libc::REG_RIP as usize] = trampoline as *const () as i64;
        // A thread interrupted in the middle of a string operation may have the direction flag set;
        // the trampoline saves the flags and clears it, so nothing is to be done here.
    }
}

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "named from assembly")]
static greenthread_xsave_bytes: AtomicUsize = AtomicUsize::new(4096);
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "named from assembly")]
static greenthread_xsave_compacts: AtomicUsize = AtomicUsize::new(0);

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

    /// What it has returned, and will be seen to have returned.
    pub(crate) fn call_result(&mut self) -> &mut usize {
        &mut self.rax
    }
}

/// Saves everything, calls `$function` with what of it lies in [`SavedRegisters`], restores
/// everything.
macro_rules! trampoline {
    ($name:literal, $function:path) => {
        global_asm!(
            ".text",
            ".p2align 4",
            concat!(".hidden ", $name),
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "pushfq",
            "push rbp",
            "mov rbp, rsp",
            "push rax",
            "push rcx",
            "push rdx",
            "push rsi",
            "push rdi",
            "push r8",
            "push r9",
            "push r10",
            "push r11",
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
            // XSAVE copies: who runs next would find the x87 stack as full as it was here.
            "fninit",
            "call {function}",
            "mov eax, -1",
            "mov edx, -1",
            "xrstor64 [rsp]",
            "lea rsp, [rbp - 72]",
            "pop r11",
            "pop r10",
            "pop r9",
            "pop r8",
            "pop rdi",
            "pop rsi",
            "pop rdx",
            "pop rcx",
            "pop rax",
            "pop rbp",
            "popfq",
            "ret 128",
            concat!(".size ", $name, ", . - ", $name),
            bytes = sym greenthread_xsave_bytes,
            compacts = sym greenthread_xsave_compacts,
            function = sym $function,
        );
    };
}

trampoline!(
    "preempt_trampoline",
    crate::engine::sched::preempt::preempted
);
trampoline!("go_on_trampoline", crate::engine::sched::interrupted::go_on);

/// Asks for the cache line at `address`, which need not be valid.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: a hint: it reads nothing and never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast())
    };
}

/// How floating-point numbers are computed with: rounding, what is flushed to zero, what traps. That is
/// the control bits of MXCSR and the x87 control word, which a call preserves; the bits that say what
/// has happened it need not preserve. Kept as what differs from how a process begins, in 23 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FloatControl(u32);

impl FloatControl {
    /// As a process begins.
    pub(crate) const DEFAULT: FloatControl = FloatControl(0);
    const SSE: u32 = 0x1f80;
    const X87: u32 = 0x37f;
    /// MXCSR's control bits, ten of them from here up.
    const SSE_CONTROL: u32 = 6;
    /// Where those of the other register begin.
    const X87_AT: u32 = 10;

    pub(crate) fn difference(self) -> u32 {
        self.0
    }

    pub(crate) fn with_difference(difference: u32) -> FloatControl {
        FloatControl(difference)
    }

    /// What holds on this kernel thread now.
    #[inline(always)]
    pub(crate) fn current() -> FloatControl {
        let (mut sse, mut x87) = (0_u32, 0_u16);
        // SAFETY: each writes one register to a place of its size.
        unsafe {
            asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut sse, in(reg) &raw mut x87,
                options(nostack, preserves_flags));
        }
        let sse = (sse & 0xffc0 ^ FloatControl::SSE) >> FloatControl::SSE_CONTROL;
        let x87 = u32::from(x87) & 0x1fff ^ FloatControl::X87;
        FloatControl(sse | x87 << FloatControl::X87_AT)
    }

    /// Makes it hold on this kernel thread.
    pub(crate) fn set(self) {
        const FIRST: u32 = (1 << FloatControl::X87_AT) - 1;
        let sse = FloatControl::SSE ^ (self.0 & FIRST) << FloatControl::SSE_CONTROL;
        let x87 = (FloatControl::X87 ^ self.0 >> FloatControl::X87_AT) as u16;
        // SAFETY: values that the registers had before. What the x87 has noted is forgotten first: it
        // would trap now if only another thread has masked it.
        unsafe {
            asm!("ldmxcsr [{}]", "fnclex", "fldcw [{}]", in(reg) &raw const sse,
                in(reg) &raw const x87, options(nostack, preserves_flags));
        }
    }
}

/// A clock that only orders: cheap, never going back on one CPU, and with the others' as far as the
/// machine keeps its counters together, which all do that are not very old.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a register; every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether [`cpu`] knows.
pub(crate) fn tells_cpu() -> bool {
    const EXTENDED: u32 = 0x8000_0001;
    const RDTSCP: u32 = 1 << 27;
    core::arch::x86_64::__cpuid(0x8000_0000).eax >= EXTENDED
        && core::arch::x86_64::__cpuid(EXTENDED).edx & RDTSCP != 0
}

/// The CPU that this runs on, or did a moment ago. Only where [`tells_cpu`].
pub(crate) fn cpu() -> usize {
    // Linux keeps it in this register, with the node above it, for user code to read.
    const NUMBER: u32 = (1 << 12) - 1;
    let mut register = 0;
    // SAFETY: writes to a valid word; the caller has asked whether the instruction is there.
    unsafe { core::arch::x86_64::__rdtscp(&mut register) };
    (register & NUMBER) as usize
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_number_of_a_call() {
        let mov_eax = [0x90, 0xb8, 0x0f, 1, 0, 0];
        let mov_r8d = [0x41, 0xb8, 8, 0, 0, 0];
        let mov_ax = [0x66, 0xb8, 8, 0, 0, 0];
        let xor_eax = [0x31, 0xc0];
        let number = |parts: &[&[u8]]| super::number_in(&parts.concat());
        assert_eq!(number(&[&mov_eax]), Some(0x10f));
        assert_eq!(number(&[&mov_eax, &mov_r8d]), Some(0x10f));
        assert_eq!(number(&[&mov_r8d, &mov_eax]), Some(0x10f));
        assert_eq!(number(&[&mov_eax, &xor_eax]), Some(0));
        assert_eq!(number(&[&xor_eax, &mov_r8d]), None); // an operand's prefix may stand before it
        assert_eq!(number(&[&[0x90], &xor_eax, &mov_r8d]), Some(0));
        assert_eq!(number(&[&[0x48], &xor_eax]), None);
        assert_eq!(number(&[&mov_eax, &mov_ax]), None);
        assert_eq!(number(&[&mov_r8d]), None);
        assert_eq!(number(&[&[0x90; 30]]), None);
    }

    #[test]
    fn what_may_stand_before_a_call() {
        let harmless: [&[u8]; 9] = [
            &[],
            &[0x8b, 0x7c, 0x24, 0x1c],             // mov edi, [rsp + 0x1c]
            &[0x40, 0x80, 0xf6, 0x81],             // xor sil, 0x81
            &[0x4c, 0x89, 0xc7],                   // mov rdi, r8
            &[0x48, 0x8d, 0x3d, 1, 2, 3, 4],       // lea rdi, [rip + ...]
            &[0x8d, 0x3c, 0xfd, 8, 0, 0, 0],       // lea edi, [rdi * 8 + 8]
            &[0x45, 0x31, 0xd2, 0x31, 0xf6],       // xor r10d, r10d; xor esi, esi
            &[0x41, 0xb8, 8, 0, 0, 0],             // mov r8d, 8
            &[0xc7, 0x44, 0x24, 0x3c, 2, 0, 0, 0], // mov dword ptr [rsp + 0x3c], 2
        ];
        for code in harmless {
            assert!(super::leaves_eax(code), "{code:x?}");
        }
        let others: [&[u8]; 7] = [
            &[0x89, 0xe8],                   // mov eax, ebp
            &[0x8b, 0x07],                   // mov eax, [rdi]
            &[0x31, 0xc0],                   // xor eax, eax
            &[0xb8, 1, 0, 0, 0],             // mov eax, 1
            &[0x83, 0xc8, 2],                // or eax, 2
            &[0x48, 0x8b, 0x44, 0x24, 0x20], // mov rax, [rsp + 0x20]
            &[0x8b, 0x7c, 0x24],             // half an instruction
        ];
        for code in others {
            assert!(!super::leaves_eax(code), "{code:x?}");
        }
    }
}
