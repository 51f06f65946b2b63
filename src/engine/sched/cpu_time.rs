//! The CPU time of green threads: what CLOCK_THREAD_CPUTIME_ID shows to one, what getrusage says of it, and the clocks
//! that `pthread_getcpuclockid` gives out.
//!
//! The kernel counts the time of kernel threads, and reading that is a system call. So nothing is measured until
//! somebody asks: who asks first finds 0, and from then on that thread's switches read the clock of their kernel thread
//! ([`ThreadFlags::CLOCKED`]) and add up. One that asks for another thread's clock finds the time from the other's next
//! turn on.
//!
//! A clock's number for a green thread is made of its thread id, as the kernel makes one of its own, with a kind that
//! the kernel does not have: functions that are not here refuse it (EINVAL). Like the kernel's it may later be another
//! thread's, for ids are used again.
//!
//! `clock_gettime` is on the way of every `Instant`: for another clock than a thread's, ours compares the number and goes
//! on to libc's (`sys::clock`).
//!
//! A thread's CPU time is one word. While the thread does not run it is the time used so far, in nanoseconds; while it runs, the distance from
//! there to the clock of its kernel thread, so that the clock and the word together are the time at any moment. The kernel
//! thread that runs the thread writes it, at the switches; any thread reads it:
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

use super::{fork, locked};
use crate::engine::atomic::{AtomicU64, Ordering, fence};
use crate::engine::inspect::epoch::ReadSection;
use crate::engine::sched::start::ThreadStack;
use crate::engine::sched::{Green, ThreadFlags, current};
use crate::engine::sys::{call, clock, kernel_thread};
use crate::engine::{stack, tls};

pub(crate) struct CpuTime(AtomicU64);

const RUNNING: u64 = 1 << 63;
const ENDING: u64 = 1 << 62;
/// The bits of a time, or of a distance.
const TIME: u64 = ENDING - 1;
/// How often a reader gives way to an end.
const PATIENCE: usize = 64;

impl CpuTime {
    pub(crate) const fn new() -> CpuTime {
        CpuTime(AtomicU64::new(0))
    }

    /// For the next thread.
    #[inline(always)]
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// From now on the run is measured; the kernel thread's clock shows `now`.
    pub(crate) fn begin(&self, now: u64) {
        let used = self.0.load(Ordering::Relaxed);
        let distance = used.wrapping_sub(now) & TIME;
        // Release: the kernel thread that runs the thread; partner: Acquire in `read`.
        self.0.store(RUNNING | distance, Ordering::Release);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0.load(Ordering::Relaxed) & RUNNING != 0
    }

    /// The run is over.
    pub(crate) fn end(&self, clock: impl FnOnce() -> u64) {
        let word = self.0.load(Ordering::Relaxed);
        if word & RUNNING == 0 {
            return;
        }
        self.0.store(word | ENDING, Ordering::Relaxed);
        // SeqCst: partner: the fence in `read`.
        fence(Ordering::SeqCst);
        let used = word.wrapping_add(clock()) & TIME;
        // Release: as in `begin`: the clock was read before.
        self.0.store(used, Ordering::Release);
    }

    /// The time used so far. `clock` reads the clock of the kernel thread that runs the thread.
    pub(crate) fn read(&self, clock: impl Fn() -> u64) -> u64 {
        let mut patience = PATIENCE;
        loop {
            // Acquire: partners: Release in `begin` and `end`.
            let word = self.0.load(Ordering::Acquire);
            if word & RUNNING == 0 {
                return word;
            }
            if word & ENDING != 0 && patience != 0 {
                patience -= 1;
                kernel_thread::give_way();
                continue;
            }
            let now = clock();
            // SeqCst: partner: the fence in `end`.
            fence(Ordering::SeqCst);
            if self.0.load(Ordering::Acquire) == word {
                return word.wrapping_add(now) & TIME;
            }
        }
    }
}

/// The thread's run begins.
pub(super) fn begins(green: &Green) {
    if let Some(stack) = green.stack() {
        stack.cpu_time.begin(clock::own_cpu_time());
    }
}

/// The thread has left its stack.
pub(super) fn ends(green: &Green) {
    if let Some(stack) = green.stack() {
        stack.cpu_time.end(clock::own_cpu_time);
    }
}

/// The CPU time of `green` in nanoseconds, from the first question on; `None`: nobody has asked.
pub(crate) fn known(green: &'static Green) -> Option<u64> {
    let is_measured = green.flags.has(ThreadFlags::CLOCKED);
    is_measured.then(|| read(green)).flatten()
}

/// `None`: it has ended.
fn read(green: &'static Green) -> Option<u64> {
    let runs_on = || green.last_worker().map_or(0, |worker| worker.cpu_time());
    Some(green.stack()?.cpu_time.read(runs_on))
}

/// The CPU time of the calling green thread, which is measured from now on. `None`: this is none, or its thread pointer
/// alone is here (a handler has interrupted the scheduler; a child of `vfork`).
fn own() -> Option<u64> {
    let green = current::owner().filter(|green| locked::is_here(green))?;
    if green.off.load(Ordering::Relaxed) == 0 {
        let _off = current::preemption_off();
        if !green.flags.has(ThreadFlags::CLOCKED) {
            green.flags.add(ThreadFlags::CLOCKED);
        }
        if green
            .stack()
            .is_some_and(|stack| !stack.cpu_time.is_running())
        {
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
    if fork::is_child() {
        return None;
    }
    // Rooms that are visited stay.
    let section = ReadSection::begin();
    let mut found = None;
    stack::visit(|stack| {
        let tenant = ThreadStack::owner_of(ThreadStack::at(stack).slot);
        found = found.or(tenant.filter(|(_, green)| clock_of(green) == Some(clock)));
    });
    section.end_without_dropping();
    let (_, green) = found?;
    if !green.flags.has(ThreadFlags::CLOCKED) {
        // From outside: an owner that writes at this moment may undo it. Then the next question asks once more.
        green.flags.add(ThreadFlags::CLOCKED);
    }
    read(green)
}

/// The lowest bits of a clock's number: the kernel's are those of a thread, and the kind of time; this kind is not its own.
const KIND: libc::clockid_t = 7;

/// Whether this is the number of a green thread's clock.
fn is_of_green(clock: libc::clockid_t) -> bool {
    clock < 0 && clock & KIND == KIND
}

/// The number of the clock of `green`; `None`: it has ended.
pub(super) fn clock_of(green: &Green) -> Option<libc::clockid_t> {
    // So many bits of the id there is room for: more than there is memory for blocks, whose ids count up.
    const ID: u32 = (1 << 28) - 1;
    // SAFETY: a stack has a block, and its memory stays.
    let id = unsafe { tls::thread_id(green.stack()?.pthread()) }?;
    // One more: that leaves out -1, which programs may have for no clock.
    Some(!(((id + 1) & ID) as libc::clockid_t) << 3 | KIND)
}

/// The kernel's answer to a question for the CPU time of a green thread, if this system call is one.
///
/// # Safety
/// As the system call demands.
pub(crate) unsafe fn answer(
    number: libc::c_long,
    arguments: &[usize],
) -> Option<Result<usize, i32>> {
    let (first, place) = (arguments[0] as i32, arguments[1]);
    let of_thread = libc::CLOCK_THREAD_CPUTIME_ID as usize;
    match number {
        libc::SYS_clock_gettime => {
            let time = match first {
                libc::CLOCK_THREAD_CPUTIME_ID => own()?,
                clock if is_of_green(clock) => match of(clock) {
                    Some(time) => time,
                    None => return Some(Err(libc::EINVAL)),
                },
                _ => return None,
            };
            // SAFETY: the kernel has checked and written the place, which is written once more.
            Some(unsafe {
                call(number, &[of_thread, place]).inspect(|_| {
                    (place as *mut libc::timespec).write_unaligned(clock::timespec(time));
                })
            })
        }
        libc::SYS_clock_getres if is_of_green(first) => {
            // SAFETY: the caller's promise.
            Some(unsafe { call(number, &[of_thread, place]) })
        }
        libc::SYS_getrusage if first == libc::RUSAGE_THREAD => {
            let time = own()?;
            // SAFETY: as above.
            Some(unsafe {
                call(number, &[first as usize, place]).inspect(|_| {
                    let usage = place as *mut libc::rusage;
                    usage.write_unaligned(split(time, usage.read_unaligned()));
                })
            })
        }
        _ => None,
    }
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
