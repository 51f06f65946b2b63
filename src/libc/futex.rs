//! `syscall(SYS_futex, …)`: the futexes of std, of parking_lot, and of C++. And the newer calls on futexes:
//! `syscall(SYS_futex_waitv, …)`, and `futex_wake`, `futex_wait` and `futex_requeue` of Linux 6.7.
//!
//! | operation | what is done |
//! |---|---|
//! | `WAIT`, `WAIT_BITSET`, `WAKE`, `WAKE_BITSET`, `REQUEUE`, `CMP_REQUEUE`, `WAKE_OP`, private | ours, in [`FUTEXES`] |
//! | the same, shared; those that inherit priorities | the kernel's: other processes, or the kernel, take part |
//! | the newer calls, on private words of 32 bits | ours, so that they meet the older ones |
//! | the newer calls on words of other sizes, shared, with unknown flags, and mistakes | the kernel's |
//! | a newer call that the kernel does not know, or a filter refuses | the kernel's: a program that asks for it must learn that |
//!
//! All other system calls go to the kernel; those that change the calling kernel thread keep the thread
//! there, and those that ask for its CPU time tell the green thread's (`threads`).
//!
//! Threads of all kinds stand in one table, in the order in which they came: a green thread is parked, and any other
//! blocks its kernel thread on a word of its own.
//!
//! Others wait in the kernel: by a system call of their own assembly, by io_uring, for a shared word beside a private
//! one, or since before there were green threads. So a call that has woken fewer threads of the table than it was
//! asked to asks the kernel for the rest, as it would without us. Nothing can be done the other way round: a wake-up
//! that does not come by `syscall` finds no thread of the table. In a process without green threads, therefore, every
//! wait is the kernel's.
//!
//! A forked child has another table, the kernel's: the threads in this one are the parent's.

use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

use libc::{
    FUTEX_CLOCK_REALTIME, FUTEX_CMP_REQUEUE, FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE, FUTEX_WAIT,
    FUTEX_WAIT_BITSET, FUTEX_WAKE, FUTEX_WAKE_BITSET, FUTEX_WAKE_OP,
};

use super::addresses::{ANY, Addresses, Beside, Buckets, Events, How, Waited, Waiting};
use super::descriptor::{Record, value_at};
use super::{
    Answer, after, answered, count_parked, deadline_on, descriptor, is_hooked, is_on, nanos,
    pthread::signals::handle, repeated, threads,
};
use crate::engine::facade::is_forked_child;
use crate::engine::hooks::pthread::own_number;
use crate::engine::hooks::{mask_changed, prctl_of_green, signals, thread_clock};
use crate::sys::{call as kernel_call, word};
use crate::wait::{WaitKind, queue::Position};

/// The threads that wait on words.
pub(super) static FUTEXES: Addresses = Addresses::new([&FUTEX; 2], &BUCKETS);
static BUCKETS: Buckets = Buckets::new();

static FUTEX: WaitKind = WaitKind::inside("futex")
    .with_numbers(|address, facts| {
        if let Some(word) = word::look(address) {
            facts.number("word", u64::from(word));
        }
    })
    .handles();

exported! {
    // A number that is not listed here goes to the kernel as it is.
    fn syscall(
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
    ) -> c_long {
        operation!();
        let arguments = [a, b, c, d, e, f];
        let kernels = || {
            // SAFETY: the caller's arguments, of this system call.
            let own = unsafe { thread_clock(number, &arguments) };
            // SAFETY: the same.
            let once = || unsafe { kernel_call(number, &arguments) };
            // An interrupted `close` has closed: the descriptor may be another's by now.
            let is_cut = |answer: &_| *answer == Err(libc::EINTR) && number != libc::SYS_close;
            own.unwrap_or_else(|| threads::guard(number, &arguments, || repeated(once, is_cut)))
        };
        #[cfg(sim)]
        if let Some(answer) = super::simulated::by_number(number, arguments) {
            return answer;
        }
        if let Some(answer) = descriptor::by_number(number, a, b, c) {
            return answer.into();
        }
        let answer = match number {
            libc::SYS_futex if is_ours(b as c_int) => futex(arguments),
            libc::SYS_gettid => own_number().map_or_else(kernels, |own| Ok(own as usize)),
            libc::SYS_prctl => prctl_of_green(a, b).unwrap_or_else(kernels),
            // The preemption signals' actions are the crate's.
            libc::SYS_rt_sigaction if b != 0 && signals::is_reserved(a as c_int) => Err(libc::EINVAL),
            libc::SYS_rt_sigaction => {
                let answer = kernels();
                signals::adopt();
                answer
            }
            libc::SYS_rt_sigprocmask => {
                let answer = kernels();
                mask_changed();
                answer
            }
            WAITV | NEW_WAKE | NEW_WAIT | NEW_REQUEUE => {
                newer(number, arguments).unwrap_or_else(kernels)
            }
            _ => kernels(),
        };
        answered(answer)
    }
}

/// The part of an operation that says what is to be done. Flags that are not known here belong to it, so
/// that the kernel gets them.
const COMMAND: c_int = !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);

/// Whether the operation is one of those above, on a private futex.
fn is_ours(operation: c_int) -> bool {
    let is_known = match operation & COMMAND {
        FUTEX_WAIT | FUTEX_WAIT_BITSET => waits_here(),
        FUTEX_WAKE | FUTEX_WAKE_BITSET | FUTEX_REQUEUE | FUTEX_CMP_REQUEUE | FUTEX_WAKE_OP => true,
        _ => false,
    };
    is_known && operation & FUTEX_PRIVATE_FLAG != 0 && is_on() && !is_forked_child()
}

/// Whether threads wait in the table: there are green threads, or have been.
fn waits_here() -> bool {
    signals::reserved() != 0
}

fn futex([address, operation, value, fourth, second, third]: [usize; 6]) -> Answer {
    let by_real_clock = operation as c_int & FUTEX_CLOCK_REALTIME != 0;
    let operation = operation as c_int & COMMAND;
    if by_real_clock && operation != FUTEX_WAIT_BITSET {
        return Err(libc::ENOSYS);
    }
    // The number of threads to wake or to move. The kernel wakes one if it is asked for fewer.
    let most = |count: usize| (count as c_int).max(1) as usize;
    match operation {
        // The time is counted from now on.
        FUTEX_WAIT => wait_on(address, value as u32, ANY, time(fourth)?.map(after)),
        FUTEX_WAIT_BITSET => {
            let clock = match by_real_clock {
                true => libc::CLOCK_REALTIME,
                false => libc::CLOCK_MONOTONIC,
            };
            let deadline = deadline_by(clock, fourth)?;
            wait_on(address, value as u32, events(third)?, deadline)
        }
        FUTEX_WAKE => wake(address, ANY, most(value)),
        FUTEX_WAKE_BITSET => wake(address, events(third)?, most(value)),
        FUTEX_WAKE_OP => wake_op(address, most(value), second, most(fourth), third as u32),
        _ => {
            let expected = (operation == FUTEX_CMP_REQUEUE).then_some(third as u32);
            requeue(address, second, value as c_int, fourth as c_int, expected)
        }
    }
}

/// The time at `address`, if there is one.
fn time(address: usize) -> Result<Option<u64>, c_int> {
    if address == 0 {
        return Ok(None);
    }
    let time = value_at(address as *const libc::timespec).ok_or(libc::EFAULT)?;
    nanos(time).map(Some).ok_or(libc::EINVAL)
}

/// The point in time at which `clock` shows the time at `address`, if there is one.
fn deadline_by(clock: libc::clockid_t, address: usize) -> Result<Option<u64>, c_int> {
    Ok(time(address)?.map(|time| deadline_on(clock, time)))
}

/// Checks the address of a futex.
fn check(address: usize) -> Result<(), c_int> {
    match () {
        () if !address.is_multiple_of(4) => Err(libc::EINVAL),
        // No program has memory at so high an address.
        () if address >> 56 != 0 => Err(libc::EFAULT),
        () => Ok(()),
    }
}

/// Whether the word at `address` has this value.
fn compare(address: usize, expected: u32) -> Result<(), c_int> {
    let found = word::load(address).ok_or(libc::EFAULT)?;
    (found == expected).then_some(()).ok_or(libc::EAGAIN)
}

fn events(set: usize) -> Result<Events, c_int> {
    let events = set as Events;
    (events != 0).then_some(events).ok_or(libc::EINVAL)
}

/// Waits on one word.
fn wait_on(address: usize, expected: u32, events: Events, deadline: Option<u64>) -> Answer {
    wait(&[Waiting::new(address, events)], |_| expected, deadline)
}

/// Waits at these places, while each word has the value that is expected of its number. The answer is the number of the word
/// at which the thread was woken.
fn wait(places: &[Waiting], expected: impl Fn(usize) -> u32, deadline: Option<u64>) -> Answer {
    let compare = |number: usize| compare(places[number].address(), expected(number));
    for (number, place) in places.iter().enumerate() {
        check(place.address())?;
        compare(number)?; // the common refusal needs no lock
    }
    let how = if is_hooked() { How::Listen } else { How::Block };
    if how == How::Listen {
        count_parked();
        // A wait for several words tells which of them it was.
        #[cfg(sim)]
        if places.len() == 1 && crate::sys::simulated::is_spurious() {
            return Ok(0);
        }
    }
    let mut reason = 0;
    let mut refuse = |number, _: Beside<'_>| compare(number).map_err(|error| reason = error);
    let waited = FUTEXES.wait(places, how, Position::Back, deadline, &mut refuse, &|| ());
    match waited.map_err(|()| reason)? {
        Waited::Woken(number) => Ok(number),
        Waited::TimedOut => Err(libc::ETIMEDOUT),
        Waited::Interrupted => {
            handle();
            Err(libc::EINTR)
        }
    }
}

/// Makes a call that the table has done in part, for the threads that wait in the kernel.
fn ask_the_kernel(arguments: [usize; 6]) -> usize {
    // SAFETY: the calls that come here look for threads at addresses; one of them compares a word, or fails.
    unsafe { kernel_call(libc::SYS_futex, &arguments) }.unwrap_or(0)
}

/// Wakes `most` threads that wait at `address` for one of `events`: those of the table first.
fn wake(address: usize, events: Events, most: usize) -> Answer {
    check(address)?;
    let woken = FUTEXES.wake(address, events, most);
    if woken >= most {
        return Ok(woken);
    }
    let operation = (FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG) as usize;
    Ok(woken + ask_the_kernel([address, operation, most - woken, 0, 0, events as usize]))
}

/// Wakes `woken` threads that wait at `from`, and moves `moved` others to `to`, if the word at `from` is as
/// `expected`.
fn requeue(from: usize, to: usize, woken: c_int, moved: c_int, expected: Option<u32>) -> Answer {
    let count = |number: c_int| usize::try_from(number).map_err(|_| libc::EINVAL);
    let (woken, moved) = (count(woken)?, count(moved)?);
    check(from)?;
    check(to)?;
    let refuse = || expected.map_or(Ok(()), |expected| compare(from, expected));
    let done = FUTEXES.requeue([from, to], ANY, [woken, moved], Some(&refuse))?;
    let rest = [woken - done[0], moved - done[1]];
    if rest == [0; 2] {
        return Ok(woken + moved);
    }
    // If the word changes meanwhile, the kernel's threads are left out, as if they had come later.
    let (operation, third) = match expected {
        Some(expected) => (FUTEX_CMP_REQUEUE, expected),
        None => (FUTEX_REQUEUE, 0),
    };
    let operation = (operation | FUTEX_PRIVATE_FLAG) as usize;
    let kernels = ask_the_kernel([from, operation, rest[0], rest[1], to, third as usize]);
    Ok(done[0] + done[1] + kernels)
}

/// Changes the word at `other` as `operation` says, wakes threads at `address`, and, if the word had a value
/// that `operation` describes, threads at `other`.
fn wake_op(address: usize, most: usize, other: usize, most_there: usize, operation: u32) -> Answer {
    check(address)?;
    check(other)?;
    // | 4 bits: what to do, and whether with 1 << argument | 4: how to compare | 12: argument | 12: with what |
    let signed = |bits: u32| (bits << 20) as i32 >> 20;
    let (argument, with) = (signed(operation >> 12), signed(operation));
    let by_shift = operation >> 28 & libc::FUTEX_OP_OPARG_SHIFT as u32 != 0;
    let argument = match by_shift {
        true => 1_u32 << (argument & 31),
        false => argument as u32,
    };
    let change = |word: u32| match operation as i32 >> 28 & 7 {
        libc::FUTEX_OP_SET => Some(argument),
        libc::FUTEX_OP_ADD => Some(word.wrapping_add(argument)),
        libc::FUTEX_OP_OR => Some(word | argument),
        libc::FUTEX_OP_ANDN => Some(word & !argument),
        libc::FUTEX_OP_XOR => Some(word ^ argument),
        _ => None,
    };
    let is_met = |word: u32| {
        let word = word as i32;
        Some(match operation as i32 >> 24 & 15 {
            libc::FUTEX_OP_CMP_EQ => word == with,
            libc::FUTEX_OP_CMP_NE => word != with,
            libc::FUTEX_OP_CMP_LT => word < with,
            libc::FUTEX_OP_CMP_LE => word <= with,
            libc::FUTEX_OP_CMP_GT => word > with,
            libc::FUTEX_OP_CMP_GE => word >= with,
            _ => return None,
        })
    };
    if change(0).is_none() {
        return Err(libc::ENOSYS);
    }
    let before = word::update(other, |word| change(word).unwrap_or(word));
    let before = before.ok_or(libc::EFAULT)?;
    // The comparison is checked after the change, as the kernel does it.
    let is_met = is_met(before).ok_or(libc::ENOSYS)?;
    let woken = wake(address, ANY, most)?;
    let there = is_met.then(|| wake(other, ANY, most_there)).transpose()?;
    Ok(woken + there.unwrap_or(0))
}

// The newer calls have one number each on all architectures.
const WAITV: c_long = 449;
const NEW_WAKE: c_long = 454;
const NEW_WAIT: c_long = 455;
const NEW_REQUEUE: c_long = 456;

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

// SAFETY: numbers.
unsafe impl Record for Futex {}

/// The futexes at `address`, if they can be read and are private words.
fn futexes(address: usize, count: usize) -> Option<Vec<Futex>> {
    let is_ours = |futex: &Futex| {
        let fits = u32::try_from(futex.value).is_ok();
        fits && futex.flags == PRIVATE_WORD && futex.reserved == 0
    };
    let futex = |number| value_at((address as *const Futex).wrapping_add(number)).filter(is_ours);
    (0..count).map(futex).collect()
}

/// Makes one of the newer calls, if it is on private words. `None`: it is the kernel's.
#[cold]
fn newer(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<Answer> {
    if !is_on() || is_forked_child() || !is_known(number) {
        return None;
    }
    let is_private = |flags: usize| flags as u32 == PRIVATE_WORD;
    let events = |set: usize| u32::try_from(set).ok().filter(|&events| events != 0);
    // Whether the kernel waits until a time of the clock, if there is a time.
    let is_clock = |time: usize, clock: usize| {
        let is_known = matches!(clock as i32, libc::CLOCK_MONOTONIC | libc::CLOCK_REALTIME);
        time == 0 || is_known
    };
    match number {
        NEW_WAKE => {
            let events = events(b)?;
            is_private(d).then(|| match c as c_int {
                0 => check(a).map(|()| 0),
                most => wake(a, events, most.max(1) as usize),
            })
        }
        NEW_WAIT => {
            let (expected, events) = (u32::try_from(b).ok()?, events(c)?);
            (is_private(d) && waits_here() && is_clock(e, f)).then(|| {
                let deadline = deadline_by(f as libc::clockid_t, e)?;
                wait_on(a, expected, events, deadline)
            })
        }
        NEW_REQUEUE => {
            let both = (b as u32 == 0).then(|| futexes(a, 2))??;
            let [from, to] = [both[0].address as usize, both[1].address as usize];
            let expected = Some(both[0].value as u32);
            Some(requeue(from, to, c as c_int, d as c_int, expected))
        }
        _ => {
            /// The kernel takes no more.
            const MOST: usize = 128;
            let count = b as u32 as usize;
            if !(1..=MOST).contains(&count) || c as u32 != 0 || !waits_here() || !is_clock(d, e) {
                return None;
            }
            let words = futexes(a, count)?;
            let place = |word: &Futex| Waiting::new(word.address as usize, ANY);
            let places: Vec<_> = words.iter().map(place).collect();
            let expected = |number: usize| words[number].value as u32;
            let deadline = deadline_by(e as libc::clockid_t, d);
            Some(deadline.and_then(|deadline| wait(&places, expected, deadline)))
        }
    }
}

/// Whether the kernel knows the call, and nobody forbids it. It is asked once.
fn is_known(number: c_long) -> bool {
    /// How it has answered; 0: it was not asked yet.
    static ANSWERS: [AtomicI32; 8] = [const { AtomicI32::new(0) }; 8];
    let known = &ANSWERS[(number - WAITV) as usize];
    if known.load(Relaxed) == 0 {
        // Each of the calls has its flags among its second to fourth arguments, and refuses these.
        let wrong = u32::MAX as usize;
        // SAFETY: the kernel refuses the arguments before it looks at memory.
        let answer = unsafe { kernel_call(number, &[0, wrong, wrong, wrong, 0, 0]) };
        known.store(answer.err().unwrap_or(0), Relaxed);
    }
    known.load(Relaxed) == libc::EINVAL
}
