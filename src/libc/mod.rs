//! Functions with the names of libc's. The linker lets the program and the shared libraries that it is linked with call
//! these.
//!
//! Some tell of a thread, or change it, where libc would mean the kernel thread:
//!
//! | file | functions | where |
//! |---|---|---|
//! | `signals` | signal handlers, signal masks, alternate stacks | `cfg(interposes)` |
//! | `mod` | `dlclose` | the same |
//! | `threads` | questions about a pthread; calls that change the kernel thread, `prctl`; CPU time; `vfork`, `_Fork`, `clone` | `cfg(answers)` |
//!
//! The others (`cfg(hooks)`: with the feature `unmodified`) block, and park the green thread that makes them, in code that
//! knows nothing of green threads. Each asks first whether the calling thread is a green
//! one that may be parked ([`is_hooked`]). If not, it calls libc's function.
//!
//! | file | functions |
//! |---|---|
//! | `futex` | `syscall` |
//! | `sleep` | `nanosleep`, `sleep` and their kin |
//! | `pthread` | mutexes, condition variables, reader-writer locks, semaphores, barriers, once |
//! | `poll` | `poll`, `select`, `epoll_wait` and their kin: waiting for one of several descriptors |
//! | `transfer` | `read`, `write`, `recv`, `send` and their kin, `sendfile`, `splice`; `connect`, `accept` |
//! | `announced` | what no descriptor's event ends: `waitpid` and its kin, `pthread_join`, locks on files, syncing, `getaddrinfo` and others |
//! | `descriptor` | a call on a descriptor: try, wait, try again; `close` and its kin: a descriptor for which threads wait |
//! | `addresses` | (none) threads that wait at addresses, for the futexes and locks of code that is not ours |
//! | `inside` | (none) a signal handler that has interrupted its thread in there leaves it a note |
//! | `macros` | (none) declaring a function of libc's, and ours of the same name |
//!
//! What they promise:
//! 1. A result is one that libc's function could have given, `errno` included.
//! 2. A descriptor's flags are never changed. A call is first tried in a form that does not block.
//! 3. Where a thread must not leave its kernel thread (in a signal handler, in a child that shares its memory) it makes
//!    libc's call: the first question says so.
//! 4. A preemption's signal interrupts no call: what it makes fail with EINTR is made again ([`uninterrupted`]).
//!
//! libc's own calls of these functions stay inside libc; a thread that is blocked in one is handed
//! off by the scheduler. So is a thread in a call that is not in the table.
//!
//! `docs/unmodified.md` says for each call what differs from the kernel's behaviour.

#[macro_use]
mod macros;

#[cfg(hooks)]
mod addresses;
#[cfg(hooks)]
mod announced;
#[cfg(hooks)]
mod descriptor;
#[cfg(hooks)]
mod futex;
#[cfg(hooks)]
mod inside;
#[cfg(hooks)]
mod poll;
#[cfg(hooks)]
mod pthread;
mod signals;
#[cfg(hooks)]
mod sleep;
#[cfg(answers)]
mod threads;
#[cfg(hooks)]
mod transfer;

use core::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::engine::facade;
use crate::engine::hooks::count_parked;
use crate::engine::hooks::signals::begun;
use crate::sys::{clock, libraries, variable};

/// Whether calls are hooked in this process.
fn is_on() -> bool {
    /// 0: nobody has asked yet.
    static STATE: AtomicU8 = AtomicU8::new(0);
    const ON: u8 = 1;
    const OFF: u8 = 2;
    match STATE.load(Ordering::Relaxed) {
        0 => {
            // A value that is not accepted is an error when the first runtime starts.
            let is_off = variable::peek(c"GREENTHREAD_UNMODIFIED", |value| value == b"off");
            // A sanitizer that lets the threads be kernel threads is to see all that they do.
            let is_on = is_off != Some(true)
                && libraries::libcs_names_lead_here()
                && crate::sys::sanitizer::stranger().is_none();
            STATE.store(if is_on { ON } else { OFF }, Ordering::Relaxed);
            is_on
        }
        state => state == ON,
    }
}

/// Whether the calling thread is a green one whose blocking calls park it.
#[inline]
fn is_hooked() -> bool {
    crate::engine::hooks::is_hooked() && is_on()
}

interposed! {
    // Green threads that resolve symbols are waited for, too (`sched::unload`).
    fn dlclose(library: *mut c_void) -> c_int where real() {
        crate::engine::hooks::unloaded_by(real)
    }
}

/// Sets `errno`, and returns what a function returns that fails.
fn fail(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// What a function returns that is one system call.
fn answered(result: Result<usize, c_int>) -> c_int {
    match result {
        Ok(result) => result as c_int,
        Err(errno) => fail(errno),
    }
}

fn errno() -> c_int {
    // SAFETY: the address of the thread's own `errno`.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = errno };
}

/// Makes `call`: again, as long as `is_cut` says that a signal has cut it short, and that was none of the program's.
fn repeated<T>(mut call: impl FnMut() -> T, is_cut: impl Fn(&T) -> bool) -> T {
    loop {
        let before = begun();
        let answer = call();
        if !is_cut(&answer) || begun() != before {
            return answer;
        }
    }
}

/// The same for a call that fails with -1 and `errno`.
fn uninterrupted<T: PartialEq + From<i8>>(call: impl FnMut() -> T) -> T {
    repeated(call, |answer| {
        *answer == T::from(-1) && errno() == libc::EINTR
    })
}

/// Makes `call`, which blocks the kernel thread: the processor goes to others at once.
fn in_kernel<T: PartialEq + From<i8>>(call: impl FnMut() -> T) -> T {
    facade::blocking(|| uninterrupted(call))
}

/// What fortified C asks of its buffers: otherwise the program ends.
fn must_hold(is_right: bool) {
    unsafe extern "C" {
        fn __chk_fail() -> !;
    }
    if !is_right {
        // SAFETY: libc's function for this case.
        unsafe { __chk_fail() };
    }
}

/// So many seconds and nanoseconds, in nanoseconds.
fn sum(seconds: u64, nanos: u64) -> u64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// A time in nanoseconds. `None`: the kernel does not accept it.
fn nanos(time: libc::timespec) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let rest = u64::try_from(time.tv_nsec).ok()?;
    (rest < 1_000_000_000).then(|| sum(seconds, rest))
}

/// The point in time (monotonic nanoseconds) at which `nanos` are over; none at all are over by now, and at once.
fn after(nanos: u64) -> u64 {
    match nanos {
        0 => 0,
        _ => clock::now().saturating_add(nanos),
    }
}

/// The point in time (monotonic nanoseconds) at which `clock` shows `time`.
fn deadline_on(clock: libc::clockid_t, time: u64) -> u64 {
    match clock {
        libc::CLOCK_MONOTONIC => time,
        _ => time
            .saturating_sub(read(clock))
            .saturating_add(clock::now()),
    }
}

/// What `clock` shows, in nanoseconds.
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = clock::timespec(0);
    // SAFETY: a place of ours. The call fails for a clock that does not exist: then 0 is returned.
    unsafe { libc::clock_gettime(clock, &mut now) };
    nanos(now).unwrap_or(0)
}
