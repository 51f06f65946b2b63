//! `syscall(SYS_futex, …)`: the futexes of std, of parking_lot, and of C++.
//!
//! | operation | what is done |
//! |---|---|
//! | `WAIT`, `WAIT_BITSET`, `WAKE`, `WAKE_BITSET`, `REQUEUE`, `CMP_REQUEUE`, `WAKE_OP`, private | ours, in [`FUTEXES`] |
//! | the same, shared; those that inherit priorities | the kernel's: other processes, or the kernel, take part |
//!
//! All other system calls go to the kernel; those that change the calling kernel thread keep the thread
//! there (`changes`), and those that ask for its CPU time tell the green thread's (`cpu_time`).
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
use core::sync::atomic::{AtomicBool, Ordering};

use super::addresses::{ANY, Addresses, Buckets, Events, How, Waited};
use super::descriptor::value_at;
use super::{
    changes, close, count_parked, deadline_on, exported, fail, futex2, is_hooked, is_on, nanos,
    repeated,
};
use crate::engine::facade::is_forked_child;
use crate::engine::hooks::{handlers, mask_changed, name, thread_clock};
use crate::sys::word::{self, Fault};
use crate::sys::{call as kernel_call, clock};
use crate::wait::WaitKind;
use crate::wait::queue::Position;

/// The threads that wait on words.
pub(super) static FUTEXES: Addresses = Addresses::new(&FUTEX, &BUCKETS);
static BUCKETS: Buckets = Buckets::new();

static FUTEX: WaitKind = WaitKind::inside("futex", |address, facts| {
    if let Ok(word) = word::look(address) {
        facts.number("word", u64::from(word));
    }
});

/// Sees to it that a child that is forked before there is a runtime begins with an empty table. (Later ones
/// do not use it.)
pub(super) fn forget_in_children() {
    static DONE: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        FUTEXES.forget();
    }
    if !DONE.load(Ordering::Relaxed) && !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler writes to atomics.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// `errno`.
pub(super) struct Errno(pub(super) c_int);

impl From<Fault> for Errno {
    fn from(_: Fault) -> Errno {
        Errno(libc::EFAULT)
    }
}

exported! {
    fn syscall(
        number: c_long,
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
    ) -> c_long {
        // SAFETY: the caller's arguments.
        unsafe { call(number, [a, b, c, d, e, f]) }
    }
}

/// Makes a system call. A number that is not listed here goes to the kernel as it is.
///
/// # Safety
/// As the system call demands.
unsafe fn call(number: c_long, arguments: [usize; 6]) -> c_long {
    let [a, b, c, ..] = arguments;
    let kernels = || {
        // SAFETY: the caller's promise.
        let own = unsafe { thread_clock(number, &arguments) };
        // SAFETY: the same.
        let once = || unsafe { kernel_call(number, &arguments) };
        // An interrupted `close` has closed: the descriptor may be another's by now.
        let is_cut = |answer: &_| *answer == Err(libc::EINTR) && number != libc::SYS_close;
        own.unwrap_or_else(|| changes::guard(number, &arguments, || repeated(once, is_cut)))
    };
    // SAFETY: the caller's promise.
    if let Some(answer) = unsafe { close::by_number(number, a, b, c) } {
        return answer.into();
    }
    let answer = match number {
        libc::SYS_futex if is_ours(b as c_int) => futex(arguments),
        libc::SYS_prctl => name::prctl(a, b).unwrap_or_else(kernels).map_err(Errno),
        // The preemption signals' actions are the crate's.
        libc::SYS_rt_sigaction if b != 0 && handlers::is_reserved(a as c_int) => {
            Err(Errno(libc::EINVAL))
        }
        libc::SYS_rt_sigaction => {
            let answer = kernels();
            handlers::adopt();
            answer.map_err(Errno)
        }
        libc::SYS_rt_sigprocmask => {
            let answer = kernels();
            mask_changed();
            answer.map_err(Errno)
        }
        _ => futex2::call(number, arguments).unwrap_or_else(|| kernels().map_err(Errno)),
    };
    match answer {
        Ok(result) => result as c_long,
        Err(Errno(errno)) => c_long::from(fail(errno)),
    }
}

/// The part of an operation that says what is to be done. Flags that are not known here belong to it, so
/// that the kernel gets them.
const COMMAND: c_int = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);

/// Whether the operation is one of those above, on a private futex.
fn is_ours(operation: c_int) -> bool {
    let is_known = match operation & COMMAND {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => waits_here(),
        libc::FUTEX_WAKE
        | libc::FUTEX_WAKE_BITSET
        | libc::FUTEX_REQUEUE
        | libc::FUTEX_CMP_REQUEUE
        | libc::FUTEX_WAKE_OP => true,
        _ => false,
    };
    is_known && operation & libc::FUTEX_PRIVATE_FLAG != 0 && is_on() && !is_forked_child()
}

/// Whether threads wait in the table: there are green threads, or have been.
pub(super) fn waits_here() -> bool {
    handlers::is_any_reserved()
}

fn futex([address, operation, value, fourth, second, third]: [usize; 6]) -> Result<usize, Errno> {
    let by_real_clock = operation as c_int & libc::FUTEX_CLOCK_REALTIME != 0;
    let operation = operation as c_int & COMMAND;
    if by_real_clock && operation != libc::FUTEX_WAIT_BITSET {
        return Err(Errno(libc::ENOSYS));
    }
    // Of threads to wake or to move; the kernel wakes one if it is asked for fewer.
    let most = |count: usize| (count as c_int).max(1) as usize;
    match operation {
        libc::FUTEX_WAIT => {
            // Relative.
            let deadline = time(fourth)?.map(|time| clock::now().saturating_add(time));
            wait(address, value as u32, ANY, deadline)
        }
        libc::FUTEX_WAIT_BITSET => {
            let clock = match by_real_clock {
                true => libc::CLOCK_REALTIME,
                false => libc::CLOCK_MONOTONIC,
            };
            let deadline = deadline_by(clock, fourth)?;
            wait(address, value as u32, events(third)?, deadline)
        }
        libc::FUTEX_WAKE => {
            check(address)?;
            Ok(wake(address, ANY, most(value)))
        }
        libc::FUTEX_WAKE_BITSET => {
            let events = events(third)?;
            check(address)?;
            Ok(wake(address, events, most(value)))
        }
        libc::FUTEX_WAKE_OP => wake_op(address, most(value), second, most(fourth), third as u32),
        _ => {
            let expected = (operation == libc::FUTEX_CMP_REQUEUE).then_some(third as u32);
            requeue(address, second, value as c_int, fourth as c_int, expected)
        }
    }
}

/// Makes a call that the table has done in part, for the threads that wait in the kernel.
fn ask_the_kernel(arguments: [usize; 6]) -> usize {
    // SAFETY: the calls that come here look for threads at addresses; one of them compares a word, or fails.
    unsafe { kernel_call(libc::SYS_futex, &arguments) }.unwrap_or(0)
}

/// Wakes `most` threads that wait at `address` for one of `events`: those of the table first.
pub(super) fn wake(address: usize, events: Events, most: usize) -> usize {
    let woken = FUTEXES.wake(address, events, most);
    if woken >= most {
        return woken;
    }
    let operation = (libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG) as usize;
    let rest = most - woken;
    woken + ask_the_kernel([address, operation, rest, 0, 0, events as usize])
}

/// Wakes `woken` threads that wait at `from`, and moves `moved` others to `to`, if the word at `from` is as
/// `expected`.
pub(super) fn requeue(
    from: usize,
    to: usize,
    woken: c_int,
    moved: c_int,
    expected: Option<u32>,
) -> Result<usize, Errno> {
    let (Ok(woken), Ok(moved)) = (usize::try_from(woken), usize::try_from(moved)) else {
        return Err(Errno(libc::EINVAL));
    };
    check(from)?;
    check(to)?;
    let compare = || match expected {
        Some(expected) if word::load(from)? != expected => Err(Errno(libc::EAGAIN)),
        _ => Ok(()),
    };
    let done = FUTEXES.requeue(from, to, woken, moved, compare)?;
    let rest = [woken - done.0, moved - done.1];
    if rest == [0; 2] {
        return Ok(woken + moved);
    }
    // If the word changes meanwhile, it is as if those in the kernel came later.
    let (operation, third) = match expected {
        Some(expected) => (libc::FUTEX_CMP_REQUEUE, expected),
        None => (libc::FUTEX_REQUEUE, 0),
    };
    let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
    let kernels = ask_the_kernel([from, operation, rest[0], rest[1], to, third as usize]);
    Ok(done.0 + done.1 + kernels)
}

/// The time at `address`, if there is one.
fn time(address: usize) -> Result<Option<u64>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's argument.
    let time = unsafe { value_at(address as *const libc::timespec) }.ok_or(Fault)?;
    nanos(time).map(Some).ok_or(Errno(libc::EINVAL))
}

/// The point in time at which `clock` shows the time at `address`, if there is one.
pub(super) fn deadline_by(clock: libc::clockid_t, address: usize) -> Result<Option<u64>, Errno> {
    Ok(time(address)?.map(|time| deadline_on(clock, time)))
}

/// Checks the address of a futex.
pub(super) fn check(address: usize) -> Result<(), Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno(libc::EINVAL));
    }
    // No program has more; what lies above is the kernel's, or nobody's.
    match address >> 56 != 0 {
        true => Err(Errno(libc::EFAULT)),
        false => Ok(()),
    }
}

fn events(set: usize) -> Result<Events, Errno> {
    match set as Events {
        0 => Err(Errno(libc::EINVAL)),
        events => Ok(events),
    }
}

pub(super) fn wait(
    address: usize,
    expected: u32,
    events: Events,
    deadline: Option<u64>,
) -> Result<usize, Errno> {
    let compare = || match word::load(address)? == expected {
        true => Ok(()),
        false => Err(Errno(libc::EAGAIN)),
    };
    // The common refusal needs no lock.
    check(address)?;
    compare()?;
    forget_in_children();
    waited(FUTEXES.wait(address, events, how(), Position::Back, deadline, compare)?)
}

/// How the calling thread, which is about to wait, does so.
pub(super) fn how() -> How {
    if !is_hooked() {
        return How::Block;
    }
    count_parked();
    How::Park
}

/// The answer of a wait that has ended so: if it was woken, the number of the word.
pub(super) fn waited(ended: Waited) -> Result<usize, Errno> {
    match ended {
        Waited::Woken(number) => Ok(number),
        Waited::TimedOut => Err(Errno(libc::ETIMEDOUT)),
        Waited::Interrupted => Err(Errno(libc::EINTR)),
    }
}

/// Changes the word at `other` as `operation` says, wakes threads at `address`, and, if the word had a value
/// that `operation` describes, threads at `other`.
fn wake_op(
    address: usize,
    most: usize,
    other: usize,
    most_there: usize,
    operation: u32,
) -> Result<usize, Errno> {
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
        return Err(Errno(libc::ENOSYS));
    }
    let before = word::update(other, |word| change(word).unwrap_or(word))?;
    if is_met(before).is_none() {
        return Err(Errno(libc::ENOSYS)); // the kernel, too, has changed the word by then
    }
    let woken = wake(address, ANY, most);
    match is_met(before) {
        Some(true) => Ok(woken + wake(other, ANY, most_there)),
        _ => Ok(woken),
    }
}
