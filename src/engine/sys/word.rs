//! Words of the program's memory that may not be there: an access to them fails, and does not crash. `None`: the word
//! cannot be read, or not be written.
//!
//! While the crate's own handler of faults is in place an access costs no more than any other: if the access
//! faults, the handler ends it. Otherwise the kernel is asked first whether the word can be read. That suffices for a
//! word which its user keeps; a word that may go away at any moment, as a report's, is copied by the kernel itself.

use super::syscall;
use crate::engine::arch::guarded;
use crate::engine::atomic::{AtomicBool, Ordering};

/// Whether the handler of faults is the crate's.
pub(crate) static CAUGHT: AtomicBool = AtomicBool::new(false);

/// Reads the word at `address`, a multiple of 4.
#[inline]
pub(crate) fn load(address: usize) -> Option<u32> {
    check(address, false)?;
    // SAFETY: the handler ends a fault, or the kernel has just read the word.
    answer(unsafe { guarded::load(address) })
}

/// [`load`] of a word that may go away while it is read.
pub(crate) fn look(address: usize) -> Option<u32> {
    if CAUGHT.load(Ordering::Relaxed) {
        return load(address);
    }
    let mut word = 0_u32;
    let (to, from) = ([&raw mut word as usize, 4], [address, 4]);
    let (number, process) = (libc::SYS_process_vm_readv, super::kernel_thread::process());
    // SAFETY: the kernel writes to the word, if it can read the other one.
    let read = unsafe { syscall!(number, process, &raw const to, 1, &raw const from, 1, 0) };
    // If the word cannot be read, or a filter forbids this call, an error is better than a fault.
    (read == Ok(4)).then_some(word)
}

/// Reads eight bytes at `address`, a multiple of 8, which other threads may write at the same time, and which may
/// go away.
pub(crate) fn read(address: usize) -> Option<usize> {
    let half = |at: usize| look(at).map(|half| half as usize);
    if address == 0 || !address.is_multiple_of(8) {
        return None;
    }
    // The two halves may be those of different values, so they are read until two looks agree.
    const TRIES: usize = 8;
    let look = || Some(half(address)? | half(address.checked_add(4)?)? << 32);
    let mut seen = look()?;
    for _ in 0..TRIES {
        let again = look()?;
        if again == seen {
            return Some(seen);
        }
        seen = again;
    }
    None
}

/// Replaces the word at `address`, a multiple of 4, by what `next` makes of it; returns the value that it had.
pub(crate) fn update(address: usize, next: impl Fn(u32) -> u32) -> Option<u32> {
    check(address, true)?;
    // SAFETY: as in `load`.
    let mut seen = answer(unsafe { guarded::load(address) })?;
    loop {
        // SAFETY: as in `load`.
        match answer(unsafe { guarded::compare_exchange(address, seen, next(seen)) })? {
            now if now == seen => return Some(now),
            now => seen = now,
        }
    }
}

/// Reads the byte at `address`.
pub(crate) fn load_byte(address: usize) -> Option<u8> {
    load(address & !3).map(|word| word.to_ne_bytes()[address & 3])
}

/// Writes the byte at `address`.
pub(crate) fn store_byte(address: usize, byte: u8) -> Option<()> {
    let with = |word: u32| {
        let mut bytes = word.to_ne_bytes();
        bytes[address & 3] = byte;
        u32::from_ne_bytes(bytes)
    };
    update(address & !3, with).map(drop)
}

fn answer(value: u64) -> Option<u32> {
    u32::try_from(value).ok()
}

/// Asks the kernel whether the word can be read, or be written too, if a fault would not be caught.
fn check(address: usize, to_write: bool) -> Option<()> {
    if CAUGHT.load(Ordering::Relaxed) {
        return Some(());
    }
    let at_once = [0_u64; 2];
    let time = at_once.as_ptr() as usize;
    let ask = |operation: i32, word: usize, time, other, change: i32| {
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the kernel reads the word and the time, and writes to the word what the word holds.
        let asked = unsafe { syscall!(libc::SYS_futex, word, operation, 0, time, other, change) };
        (asked != Err(libc::EFAULT)).then_some(())
    };
    // This wait is over at once, whatever value the word has.
    ask(libc::FUTEX_WAIT, address, time, 0, 0)?;
    if to_write {
        // SAFETY: the kernel has just read the word, which stays as long as its user wants it written.
        let seen = answer(unsafe { guarded::load(address) })?;
        // This sets no bits, and wakes no thread: no thread waits in the kernel at the place of the time, and
        // threads that wait at the word are woken only if the word has the value `other`, which it does not
        // have.
        let other = if seen == 1 { 2 } else { 1 };
        let change = libc::FUTEX_OP_OR << 28 | libc::FUTEX_OP_CMP_EQ << 24 | other;
        ask(libc::FUTEX_WAKE_OP, time, 0, address, change)?;
    }
    Some(())
}
