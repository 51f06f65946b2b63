//! The CPU time of green threads: what CLOCK_THREAD_CPUTIME_ID shows to one, what getrusage says of it, and the clocks
//! that `pthread_getcpuclockid` gives out.
//!
//! The kernel counts the time of kernel threads, and reading that is a system call. So nothing is measured until
//! somebody asks: who asks first finds 0, and from then on that thread's switches read the clock of their kernel thread
//! ([`Oddities::CLOCKED`]) and add up. One that asks for another thread's clock finds the time from the other's next
//! turn on.
//!
//! A clock's number for a green thread is made of its thread id, as the kernel makes one of its own, with a kind that
//! the kernel does not have: functions that are not here refuse it (EINVAL). Like the kernel's it may later be another
//! thread's, for ids are used again.
//!
//! `clock_gettime` is on the way of every `Instant`: for another clock than a thread's, ours compares the number and goes
//! on to libc's (`sys::clock`).

use core::cell::Cell;

use super::{fork, locked};
use crate::engine::green::{Green, Oddities, Room, current};
use crate::engine::inspect::epoch::ReadSection;
use crate::engine::sys::{call, clock};
use crate::engine::{stack, tls};

/// The thread's run begins.
pub(super) fn begins(green: &Green) {
    if let Some(room) = green.room() {
        room.cpu_time.begin(clock::own_cpu_time());
    }
}

/// The thread has left its stack.
pub(super) fn ends(green: &Green) {
    if let Some(room) = green.room() {
        room.cpu_time.end(clock::own_cpu_time);
    }
}

/// The CPU time of `green` in nanoseconds, from the first question on; `None`: nobody has asked.
pub(crate) fn known(green: &'static Green) -> Option<u64> {
    let is_measured = green.oddities.has(Oddities::CLOCKED);
    is_measured.then(|| read(green)).flatten()
}

/// `None`: it has ended.
fn read(green: &'static Green) -> Option<u64> {
    let runs_on = || green.last_machine().map_or(0, |machine| machine.cpu_time());
    Some(green.room()?.cpu_time.read(runs_on))
}

/// The CPU time of the calling green thread, which is measured from now on. `None`: this is none, or its thread pointer
/// alone is here (a handler has interrupted the scheduler; a child of `vfork`).
fn own() -> Option<u64> {
    let green = current::owner().filter(|green| locked::is_here(green))?;
    if green.off.load(core::sync::atomic::Ordering::Relaxed) == 0 {
        let _off = current::preemption_off();
        if !green.oddities.has(Oddities::CLOCKED) {
            green.oddities.add(Oddities::CLOCKED);
        }
        if green.room().is_some_and(|room| !room.cpu_time.is_running()) {
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
    stack::visit(|room| {
        let tenant = Room::tenant_of(Room::at(room).slot());
        found = found.or(tenant.filter(|(_, green)| clock_of(green) == Some(clock)));
    });
    section.end_without_dropping();
    let (_, green) = found?;
    if !green.oddities.has(Oddities::CLOCKED) {
        // From outside: an owner that writes at this moment may undo it. Then the next question asks once more.
        green.oddities.add(Oddities::CLOCKED);
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
    // SAFETY: a room has a block, and its memory stays.
    let id = unsafe { tls::thread_id(green.room()?.pthread()) }?;
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
