//! An interrupted thread: its registers, and how it is sent through the trampoline.
//!
//! # A preemption, seen on the interrupted stack
//!
//! The signal handler (on the kernel thread's alternate stack) copies the kernel's record of the thread
//! onto the thread's own stack, and rewrites the record so that `sigreturn` lands in a trampoline with
//! the stack pointer at the copy:
//!
//! ```text
//!   sp at the signal     ->  |  live data                   |  Linux has no red zone on aarch64
//!                            |  (alignment to 16)           |
//!                            |  more records, if they did   |  the state of SVE and SME
//!                            |  not fit below               |
//!                            |  records                     |  each with its kind and its size: q0 to q31,
//!                            |                              |  FPCR and FPSR, SVE ..., up to an empty one
//!                            |  x0 to x30, sp, pc, flags    |
//!                            |  mask, alternate stack       |
//!   sp in the trampoline ->  |  128 bytes, the signal's     |
//! ```
//!
//! The trampoline then calls `sched::current::suspend_preempted`, which switches away. When the thread is resumed,
//! on any kernel thread, it returns from the copy (`trampoline`), and the kernel restores everything, records
//! that we know nothing of included. All records can be moved but one: that which leads to those that did not
//! fit. It says where they lie, and they must lie right behind.
//!
//! A thread in SME's streaming mode, or with the ZA array in use, is not sent: both belong to the
//! processor, and the functions of the scheduler must not run so.

use core::sync::atomic::{Ordering, compiler_fence};

use super::super::{FAULT, Frame};
use super::guarded::accesses;
use super::trampoline::{is_way_back, preempt_trampoline};

/// All instructions have this size.
type Instruction = u32;
/// The instruction that makes a system call: `svc #0`.
const SYSCALL: Instruction = 0xd400_0001;
/// The stack that the code under the trampoline needs to switch away.
const TRAMPOLINE_FRAMES: usize = 2048;
/// As all stack pointers.
const ALIGNMENT: usize = 16;

/// The kernel's record of an interrupted thread.
#[repr(C)]
pub(in crate::engine::arch) struct Context {
    flags: u64,
    link: usize,
    pub(super) stack: libc::stack_t,
    pub(in crate::engine::arch) mask: u64,
    unused: [u64; 15],
    pub(super) machine: Machine,
}

#[repr(C, align(16))]
pub(super) struct Machine {
    fault_address: u64,
    pub(super) registers: [usize; 31],
    pub(super) sp: u64,
    pub(super) pc: u64,
    state: u64,
    records: [Record; 256],
}

/// The head of a record, and the least that one has.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Record {
    kind: u32,
    /// Bytes, the head included.
    size: u32,
    content: u64,
}

// As libc has it.
const _: () = assert!(
    core::mem::offset_of!(Context, machine) == core::mem::offset_of!(libc::ucontext_t, uc_mcontext)
        && size_of::<Context>() == size_of::<libc::ucontext_t>()
);

impl Record {
    const END: u32 = 0;
    const SVE: u32 = 0x5356_4501;
    const ZA: u32 = 0x5436_6345;
    /// The content is the address of more records, followed by their size.
    const EXTRA: u32 = 0x4558_5401;
    const BYTES: usize = size_of::<Record>();
    /// Bytes of kind and size.
    const HEAD: usize = core::mem::offset_of!(Record, content);

    /// Whether SME is in use, by this record.
    fn is_of_sme(&self) -> bool {
        const STREAMING: u64 = 1;
        // The content of SVE's: 16 bits for the length of vectors, 16 for flags. ZA's has no more than
        // its head while the array is off.
        match self.kind {
            Record::SVE => self.content >> 16 & STREAMING != 0,
            Record::ZA => self.size as usize > Record::BYTES,
            _ => false,
        }
    }
}

impl Frame<'_> {
    /// What an unwinder needs: the program counter, the stack pointer, the frame pointer and the link
    /// register.
    pub(crate) fn registers(&self) -> [usize; 4] {
        let Machine {
            registers, sp, pc, ..
        } = &self.0.machine;
        [*pc as usize, *sp as usize, registers[29], registers[30]]
    }

    /// Where the interrupted function returns to, if it is a leaf: one that has not saved that.
    ///
    /// # Safety
    /// None: it is in a register.
    pub(crate) unsafe fn return_address_of_leaf(&self) -> usize {
        super::plain_address(self.0.machine.registers[30])
    }

    /// If the fault that this frame belongs to is that of a guarded access, makes that function return [`FAULT`]. False:
    /// the fault is other code's.
    pub(crate) fn end_access(&mut self) -> bool {
        if !accesses().contains(&self.pc()) {
            return false;
        }
        let machine = &mut self.0.machine;
        machine.registers[0] = FAULT as usize;
        machine.pc = machine.registers[30] as u64;
        true
    }

    /// The system call that the thread is about to make: its number and arguments. So is one that a
    /// signal has interrupted, if the kernel makes it begin anew.
    pub(crate) fn call_ahead(&self) -> Option<(i64, [u64; 6])> {
        // SAFETY: the frame is of code that ran, so the instruction can be read.
        let is_call = unsafe { *(self.pc() as *const Instruction) == SYSCALL };
        let registers = &self.0.machine.registers;
        let arguments = core::array::from_fn(|i| registers[i] as u64);
        is_call.then_some((registers[8] as i64, arguments))
    }

    /// The system call that is ahead is not made: it gives `answer`.
    pub(crate) fn end_call(&mut self, answer: i64) {
        self.0.machine.pc += size_of::<Instruction>() as u64;
        self.0.machine.registers[0] = answer as _;
    }

    /// Bytes that [`Frame::inject`] and all that follows need below the stack pointer. `None`: the thread
    /// cannot be sent through the trampoline here.
    pub(crate) fn room_needed(&self) -> Option<usize> {
        if is_way_back(self.pc()) {
            return None;
        }
        let (length, _) = self.extent()?;
        Some(SavedRegisters::OWN + length + ALIGNMENT + TRAMPOLINE_FRAMES)
    }

    /// Makes the thread go on in the trampoline, as if it had called it here.
    ///
    /// # Safety
    /// The stack has [`Frame::room_needed`] bytes below the stack pointer, and the thread may be
    /// suspended here.
    pub(crate) unsafe fn inject(&mut self) {
        let Some((length, more)) = self.extent() else {
            return;
        };
        let base = (self.sp() - SavedRegisters::OWN - length) & !(ALIGNMENT - 1);
        // SAFETY: the room was promised; the context is as long as it says, and nothing else writes it.
        unsafe {
            let copy = (base + SavedRegisters::OWN) as *mut u8;
            copy.copy_from_nonoverlapping(self.start(), length);
            if let Some((lie_at, written_at)) = more {
                let address = copy.add(written_at).cast::<usize>();
                address.write(copy.addr() + lie_at);
            }
        }
        // When the handler returns, the kernel reads the record.
        compiler_fence(Ordering::SeqCst);
        // These bits tell the kind of branch that the interrupted code has just made. The copy keeps them.
        const BRANCH_TYPE: u64 = 0b11 << 10;
        let machine = &mut self.0.machine;
        machine.sp = base as u64;
        machine.pc = preempt_trampoline as *const () as u64;
        machine.state &= !BRANCH_TYPE;
    }

    /// Where the context begins: the kernel's memory goes on behind it.
    fn start(&self) -> *const u8 {
        core::ptr::with_exposed_provenance((&raw const *self.0).addr())
    }

    /// What a copy of the kernel's record needs: its bytes, from the beginning of the context; and if more records lie
    /// behind, where they lie and where their address is written, as distances from the beginning of the context.
    /// `None`: SME is in use, or the records are not as we know them.
    fn extent(&self) -> Option<(usize, Option<(usize, usize)>)> {
        let first = core::mem::offset_of!(Context, machine.records);
        let (end, extra) = self.records(first, size_of::<Context>())?;
        let behind = end + Record::BYTES;
        let Some(extra) = extra else {
            return Some((behind, None));
        };
        let written_at = extra + Record::HEAD;
        // SAFETY: the record has the address of more, and their size behind that.
        let (at, size) = unsafe {
            let address = self.start().add(written_at).cast::<usize>();
            (address.read(), address.add(1).cast::<u32>().read())
        };
        let lie_at = at.checked_sub(self.start().addr())?;
        // The last record of qemu is a head alone, without a content.
        let is_right_behind = [behind, end + Record::HEAD].contains(&lie_at);
        let length = lie_at + size as usize;
        let (_, more) = is_right_behind.then(|| self.records(lie_at, length))??;
        more.is_none()
            .then_some((length, Some((lie_at, written_at))))
    }

    /// Walks over the records from `at` to `limit`, as distances from the beginning of the context. Returns
    /// where the empty one lies, and where the one lies that leads to more.
    fn records(&self, mut at: usize, limit: usize) -> Option<(usize, Option<usize>)> {
        let mut extra = None;
        loop {
            if at + Record::HEAD > limit {
                return None;
            }
            // SAFETY: within the limit, which is the context's or what the kernel says of the rest.
            let [kind, size] = unsafe { self.start().add(at).cast::<[u32; 2]>().read() };
            if kind == Record::END && size == 0 {
                return Some((at, extra));
            }
            if at + Record::BYTES > limit {
                return None;
            }
            // SAFETY: likewise. (qemu's lie at multiples of 8.)
            let record = unsafe { self.start().add(at).cast::<Record>().read_unaligned() };
            let size = size as usize;
            if kind == Record::EXTRA {
                extra = Some(at);
            }
            if size < Record::BYTES || !size.is_multiple_of(Record::BYTES) || record.is_of_sme() {
                return None;
            }
            at += size;
        }
    }
}

/// The copy of the kernel's record that the trampoline returns from, with the registers.
#[repr(C)]
pub(super) struct SavedRegisters {
    /// The kernel writes the signal here, and does not look again.
    signal: [u64; 16],
    pub(super) context: Context,
}

impl SavedRegisters {
    /// Bytes before the context.
    const OWN: usize = core::mem::offset_of!(SavedRegisters, context);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FPSIMD: u32 = 0x4650_8001;
    const FIRST: usize = core::mem::offset_of!(Context, machine.records);
    /// Numbers of two words each.
    type Memory = [u128; 1024];

    /// The length of a context with these records: kind, size, and the word behind.
    fn length(records: &[(u32, u32, u64)]) -> Option<usize> {
        extent(records, &[], 0)
    }

    /// The same with more records, that lie so many bytes from the place where they must.
    fn extent(records: &[(u32, u32, u64)], more: &[(u32, u32, u64)], away: isize) -> Option<usize> {
        let mut memory: Box<Memory> = Box::new([0; 1024]);
        let start = memory.as_mut_ptr().cast::<u8>();
        let put = |at: usize, (kind, size, content): (u32, u32, u64)| {
            // SAFETY: within the memory: the records are small.
            unsafe {
                start.add(at).cast::<Record>().write_unaligned(Record {
                    kind,
                    size,
                    content,
                })
            };
            at + size as usize
        };
        let mut end = records.iter().fold(FIRST, |at, &record| put(at, record));
        if !more.is_empty() {
            let lie_at = (end + 32 + Record::BYTES).wrapping_add_signed(away);
            let behind = more.iter().fold(lie_at, |at, &record| put(at, record));
            let size = behind + Record::BYTES - lie_at;
            put(end + Record::BYTES, (size as u32, 0, 0));
            end = put(end, (Record::EXTRA, 32, (start.addr() + lie_at) as u64));
        }
        put(end, (Record::END, 0, 0));
        // SAFETY: any numbers are a context.
        let frame = unsafe { Frame::new(start.cast()) };
        frame.extent().map(|(length, _)| length)
    }

    #[test]
    fn the_kernels_record_is_as_long_as_it_says() {
        let simd = (FPSIMD, 528, 0);
        let idle = [simd, (Record::SVE, 608, 16), (Record::ZA, 16, 16)];
        assert_eq!(length(&[simd]), Some(FIRST + 528 + 16));
        assert_eq!(length(&idle), Some(FIRST + 528 + 608 + 16 + 16));
        assert_eq!(
            extent(&idle, &[(7, 8000, 0)], 0),
            Some(FIRST + 1152 + 48 + 8016)
        );
        assert_eq!(
            extent(&idle, &[(7, 8000, 0)], -8),
            Some(FIRST + 1152 + 40 + 8016)
        );
    }

    #[test]
    fn what_is_not_known_is_not_copied() {
        let simd = (FPSIMD, 528, 0);
        assert_eq!(length(&[simd, (Record::SVE, 608, 16 | 1 << 16)]), None); // streaming
        assert_eq!(length(&[simd, (Record::ZA, 272, 16)]), None); // ZA in use
        assert_eq!(length(&[simd, (7, 24, 0)]), None);
        assert_eq!(length(&[(7, 4096, 0)]), None); // no end
        assert_eq!(extent(&[simd], &[(7, 8000, 0)], 16), None); // elsewhere
        assert_eq!(extent(&[simd], &[(Record::ZA, 272, 16)], 0), None);
    }
}
