//! The CPU time of green threads: what CLOCK_THREAD_CPUTIME_ID shows to one, what getrusage says of it, and the clocks
//! that `pthread_getcpuclockid` gives out.
//!
//! The kernel counts the time of kernel threads, and reading that is a system call. So nothing is measured before
//! somebody asks. A thread that asks for its own time first finds 0; from then on its switches read the clock of the kernel
//! thread ([`ThreadFlags::CLOCKED`]) and add up. A thread that asks for another thread's clock finds the time from the other
//! thread's next run on.
//!
//! A clock's number for a green thread is made of its thread id, as the kernel makes one of its own, with a kind that
//! the kernel does not have: functions that are not here refuse it (EINVAL). Like the kernel's it may later be another
//! thread's, for ids are used again.
//!
//! `clock_gettime` is on the way of every `Instant`: for another clock than a thread's, ours compares the number and goes
//! on to libc's (`sys::clock`).
//!
//! A thread's CPU time is one word. While the thread does not run, the word is the time used so far, in nanoseconds. While
//! the thread runs, the word is the distance from there to the clock of its kernel thread, so that the clock and the word
//! together are the time at any moment. The kernel thread that runs the thread writes the word, at the switches; any
//! thread reads it:
//!
//! | the end of a run | a reader |
//! |---|---|
//! | word += `ENDING`, fence, reads its clock | reads the word, and that clock |
//! | word = the time (Release) | fence, reads the word (Acquire) again: the same, or it looks again |
//!
//! Both read the same clock, which never goes backwards. So a reader whose second look finds no end has read it before the
//! end did, and what is read never goes backwards either. A reader that finds the end under way gives way a few times:
//! it may be a handler that has interrupted that end.

use core::cell::Cell;

use crate::engine::atomic::{Ordering::*, fence};
use crate::engine::inspect::notes::ReadSection;
use crate::engine::sched::{Green, ThreadFlags, current, locked, start::ThreadStack};
use crate::engine::sys::{call, clock, kernel_thread};
use crate::engine::{stack, tls};

const RUNNING: u64 = 1 << 63;
const ENDING: u64 = 1 << 62;
/// The bits of a time, or of a distance.
const TIME: u64 = ENDING - 1;
/// How often a reader gives way to an end.
const PATIENCE: usize = 64;

/// The thread's run begins, or is measured from now on.
pub(super) fn begins(green: &Green) {
    if let Some(stack) = green.stack() {
        let used = stack.cpu_time.load(Relaxed);
        let distance = used.wrapping_sub(clock::cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)) & TIME;
        // Release: the kernel thread that runs the thread; partner: Acquire in `read`.
        stack.cpu_time.store(RUNNING | distance, Release);
    }
}

/// The thread has left its stack.
pub(super) fn ends(green: &Green) {
    let Some(stack) = green.stack() else { return };
    let word = stack.cpu_time.load(Relaxed);
    if word & RUNNING != 0 {
        stack.cpu_time.store(word | ENDING, Relaxed);
        // SeqCst: partner: the fence in `read`.
        fence(SeqCst);
        let used = word.wrapping_add(clock::cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)) & TIME;
        // Release: as in `begins`: the clock was read before.
        stack.cpu_time.store(used, Release);
    }
}

/// The CPU time of `green` in nanoseconds, from the first question on; `None`: nobody has asked, or it has ended.
pub(crate) fn known(green: &'static Green) -> Option<u64> {
    let is_measured = green.flags.has(ThreadFlags::CLOCKED);
    is_measured.then(|| read(green)).flatten()
}

/// The time used so far. `None`: the thread has ended.
fn read(green: &'static Green) -> Option<u64> {
    let word = &green.stack()?.cpu_time;
    let mut patience = PATIENCE;
    loop {
        // Acquire: partners: Release in `begins` and `ends`.
        let seen = word.load(Acquire);
        if seen & RUNNING == 0 {
            return Some(seen);
        }
        if seen & ENDING != 0 && patience != 0 {
            patience -= 1;
            kernel_thread::give_way();
            continue;
        }
        let now = green.last_worker().map_or(0, |worker| worker.cpu_time());
        // SeqCst: partner: the fence in `ends`.
        fence(SeqCst);
        if word.load(Acquire) == seen {
            return Some(seen.wrapping_add(now) & TIME);
        }
    }
}

/// The CPU time of the calling green thread, which is measured from now on. `None`: this is none, or its thread pointer
/// alone is here (a handler has interrupted the scheduler; a child of `vfork`).
fn own() -> Option<u64> {
    let green = current::owner().filter(|green| locked::is_here(green))?;
    if green.off.load(Relaxed) == 0 {
        let _off = current::preemption_off();
        green.flags.add(ThreadFlags::CLOCKED);
        let word = green.stack().map(|stack| &stack.cpu_time);
        if word.is_some_and(|word| word.load(Relaxed) & RUNNING == 0) {
            begins(green);
        }
    }
    read(green)
}

/// The same for the thread with this clock; `None`: there is none.
fn of(clock: libc::clockid_t) -> Option<u64> {
    if let Some(green) = current::owner()
        && clock_of(green) == Some(clock)
        && let Some(time) = own()
    {
        return Some(time);
    }
    if current::is_forked_child() {
        return None;
    }
    // While the section is open, no stack that is visited is destroyed.
    let section = ReadSection::begin();
    let mut found = None;
    stack::visit(|stack| {
        let owner = ThreadStack::owner_of(ThreadStack::at(stack).slot);
        found = found.or(owner.filter(|(_, green)| clock_of(green) == Some(clock)));
    });
    section.end_without_dropping();
    let (_, green) = found?;
    // The owner of the thread may write the flags at this moment, and undo this change. Then the next question for the time
    // adds the flag again.
    green.flags.add(ThreadFlags::CLOCKED);
    read(green)
}

/// The lowest bits of a clock's number: the kernel's are those of a thread, and the kind of time; this kind is not its own.
const KIND: libc::clockid_t = 7;

/// The number of the clock of `green`; `None`: it has ended.
pub(super) fn clock_of(green: &Green) -> Option<libc::clockid_t> {
    // The number has room for 28 bits of the id. Ids count up with the blocks, and no machine has memory for so many
    // blocks.
    const ID: u32 = (1 << 28) - 1;
    // SAFETY: a stack has a block, and its memory stays.
    let id = unsafe { tls::thread_id(green.stack()?.pthread()) }?;
    // One is added so that no clock has the number -1, which programs may use for no clock.
    Some(!(((id + 1) & ID) as libc::clockid_t) << 3 | KIND)
}

/// The kernel's answer to a question for the CPU time of a green thread, if this system call is one.
///
/// # Safety
/// As the system call demands.
pub(crate) unsafe fn answer(number: i64, arguments: &[usize]) -> Option<Result<usize, i32>> {
    let (first, place) = (arguments[0] as i32, arguments[1]);
    let is_of_green = first < 0 && first & KIND == KIND;
    let of_thread = libc::CLOCK_THREAD_CPUTIME_ID;
    let (asked, time) = match number {
        libc::SYS_clock_gettime if first == of_thread => (of_thread, own()?),
        libc::SYS_clock_gettime if is_of_green => match of(first) {
            Some(time) => (of_thread, time),
            None => return Some(Err(libc::EINVAL)),
        },
        libc::SYS_clock_getres if is_of_green => (of_thread, 0),
        libc::SYS_getrusage if first == libc::RUSAGE_THREAD => (first, own()?),
        _ => return None,
    };
    // SAFETY: the kernel checks the place and writes what its own thread has used. That the place may be written is
    // this function's condition, so it may be written once more.
    Some(unsafe {
        call(number, &[asked as usize, place]).inspect(|_| match number {
            libc::SYS_clock_gettime => {
                (place as *mut libc::timespec).write_unaligned(clock::timespec(time));
            }
            libc::SYS_getrusage => {
                let usage = place as *mut libc::rusage;
                usage.write_unaligned(split(time, usage.read_unaligned()));
            }
            _ => {}
        })
    })
}

thread_local! {
    /// The CPU time of this thread that was told to be the user's, and the system's.
    static TOLD: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// The kernel thread's figures, but with the CPU time of its green thread: what has been used since the last question
/// is divided as all the time of the kernel thread is.
fn split(time: u64, mut usage: libc::rusage) -> libc::rusage {
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    let nanos = |time: u64| libc::timeval {
        tv_sec: (time / 1_000_000_000) as libc::time_t,
        tv_usec: (time % 1_000_000_000 / 1_000) as libc::suseconds_t,
    };
    let of_all = [micros(usage.ru_utime), micros(usage.ru_stime)];
    let [user, system] = TOLD.get();
    let new = time.saturating_sub(user + system);
    let share = of_all[1] as f64 / (of_all[0] + of_all[1]).max(1) as f64;
    let new_system = ((new as f64 * share) as u64).min(new);
    let told = [user + new - new_system, system + new_system];
    TOLD.set(told);
    (usage.ru_utime, usage.ru_stime) = (nanos(told[0]), nanos(told[1]));
    usage
}
