//! `syscall(SYS_futex_waitv, …)`, and `futex_wake`, `futex_wait` and `futex_requeue` of Linux 6.7: the newer calls on
//! futexes.
//!
//! Those on private words of 32 bits are made in the table of `futex`, so that they meet the older ones. All others
//! are the kernel's: of other sizes, shared, with flags that are not known here, and mistakes. So is every call that
//! the kernel does not know, or a filter refuses: a program that asks for it must learn that.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::addresses::{ANY, Waiting};
use super::descriptor::is_there;
use super::futex::{
    self, Errno, FUTEXES, check, deadline_by, forget_in_children, how, waited, waits_here,
};
use super::is_on;
use crate::engine::facade::is_forked_child;
use crate::sys::{call as kernel_call, word};

/// From here on the four have one number each on all architectures.
const WAITV: i64 = 449;
const WAKE: i64 = 454;
const WAIT: i64 = 455;
const REQUEUE: i64 = 456;

/// `FUTEX2_SIZE_U32 | FUTEX2_PRIVATE`.
const PRIVATE_WORD: u32 = 2 | 128;

/// `struct futex_waitv`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Futex {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

impl Futex {
    fn is_ours(&self) -> bool {
        let fits = u32::try_from(self.value).is_ok();
        fits && self.flags == PRIVATE_WORD && self.reserved == 0
    }

    /// Whether the word has the value still.
    fn compare(&self) -> Result<(), Errno> {
        match word::load(self.address as usize)? == self.value as u32 {
            true => Ok(()),
            false => Err(Errno(libc::EAGAIN)),
        }
    }
}

/// Makes the call, if it is one of these on private words. `None`: it is the kernel's.
#[inline]
pub(super) fn call(number: i64, arguments: [usize; 6]) -> Option<Result<usize, Errno>> {
    match number {
        WAITV | WAKE | WAIT | REQUEUE if is_on() && !is_forked_child() && is_known(number) => {
            ours(number, arguments)
        }
        _ => None,
    }
}

#[cold]
fn ours(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> Option<Result<usize, Errno>> {
    match number {
        WAKE => {
            let events = u32::try_from(b).ok().filter(|&events| events != 0)?;
            is_private(d).then(|| {
                check(a)?;
                match c as c_int {
                    0 => Ok(0),
                    most => Ok(futex::wake(a, events, most.max(1) as usize)),
                }
            })
        }
        WAIT => {
            let expected = u32::try_from(b).ok()?;
            let events = u32::try_from(c).ok().filter(|&events| events != 0)?;
            (is_private(d) && waits_here() && is_clock(e, f)).then(|| {
                let deadline = deadline_by(f as libc::clockid_t, e)?;
                futex::wait(a, expected, events, deadline)
            })
        }
        REQUEUE => {
            let both = (b as u32 == 0).then(|| futexes(a, 2))??;
            // SAFETY: both can be read, and are copied.
            let [from, to] = unsafe { [both.read_unaligned(), both.add(1).read_unaligned()] };
            (from.is_ours() && to.is_ours()).then(|| {
                let [at, other] = [from.address as usize, to.address as usize];
                futex::requeue(at, other, c as c_int, d as c_int, Some(from.value as u32))
            })
        }
        _ => {
            /// Places for so many words lie on the stack.
            const FEW: usize = 4;
            /// The kernel takes no more.
            const MOST: usize = 128;
            let count = b as u32 as usize;
            if !(1..=MOST).contains(&count) || c as u32 != 0 || !waits_here() || !is_clock(d, e) {
                return None;
            }
            let words = futexes(a, count)?;
            // SAFETY: so many can be read, and the caller keeps them.
            let word = |number: usize| unsafe { words.add(number).read_unaligned() };
            if !(0..count).all(|number| word(number).is_ours()) {
                return None;
            }
            let place = |number| Waiting::new(word(number).address as usize, ANY);
            let wait = |places: &[Waiting]| {
                let deadline = deadline_by(e as libc::clockid_t, d)?;
                for number in 0..count {
                    check(word(number).address as usize)?;
                    word(number).compare()?; // the common refusal needs no lock
                }
                forget_in_children();
                let compare = |number: usize| word(number).compare();
                waited(FUTEXES.wait_at_any(places, how(), deadline, compare)?)
            };
            Some(match count {
                ..=FEW => {
                    wait(&core::array::from_fn::<_, FEW, _>(|i| place(i.min(count - 1)))[..count])
                }
                _ => wait(&(0..count).map(place).collect::<Vec<_>>()),
            })
        }
    }
}

fn is_private(flags: usize) -> bool {
    flags as u32 == PRIVATE_WORD
}

/// Whether the kernel waits until a time of the clock, if there is a time.
fn is_clock(time: usize, clock: usize) -> bool {
    let clock = clock as libc::clockid_t;
    time == 0 || matches!(clock, libc::CLOCK_MONOTONIC | libc::CLOCK_REALTIME)
}

/// The records at `address`, if they can be read.
fn futexes(address: usize, count: usize) -> Option<*const Futex> {
    let at = address as *const Futex;
    (!at.is_null() && is_there(at, count)).then_some(at)
}

/// Whether the kernel knows the call, and nobody forbids it. It is asked once.
fn is_known(number: i64) -> bool {
    static KNOWN: [AtomicU8; 8] = [const { AtomicU8::new(0) }; 8];
    const YES: u8 = 1;
    const NO: u8 = 2;
    let known = &KNOWN[(number - WAITV) as usize];
    if known.load(Relaxed) == 0 {
        // Each of them refuses such flags, which are its second to fourth argument.
        let wrong = u32::MAX as usize;
        // SAFETY: the kernel refuses the arguments before it looks at memory.
        let answer = unsafe { kernel_call(number, &[0, wrong, wrong, wrong, 0, 0]) };
        let is_known = answer == Err(libc::EINVAL);
        known.store(if is_known { YES } else { NO }, Relaxed);
    }
    known.load(Relaxed) == YES
}
