//! Calls that are not about a descriptor, or that no event of one ends: sleeping, and waiting for children, threads, locks and
//! others. Some the ring makes in the kernel's own way, where there is a ring. The others
//! block inside libc or the kernel: they are announced, so that the processor goes to other threads at once.
//!
//! | calls | |
//! |---|---|
//! | `waitpid`, `wait`, `wait4`, `wait3`, `waitid` | asked without waiting, again whenever the ring says that there is something to ask for |
//! | `pthread_join` | the kernel thread's descriptor says that it has ended, where the kernel has such descriptors (since Linux 6.9) |
//! | `fsync`, `fdatasync` | the ring syncs |
//! | `flock`, `fcntl(F_SETLKW)` | a free lock is taken at once; nothing tells when a lock becomes free, so the wait is announced |
//! | `nanosleep`, `clock_nanosleep`, `usleep`, `sleep` | parked until the time has come |
//! | `sched_yield` | gives way: libraries spin with it for a while before they wait |
//! | names of hosts, other programs, queues of System V and of POSIX, signals | announced |
//!
//! What a thread waits for among its children is what the kernel would report, with the same children and options: ends, stops,
//! continuations. A child's pidfd tells of its end only, and any child may stop: once it is traced, which it may ask for itself
//! at any moment, its tracer hears of its stops whatever the options are. So the ring makes the kernel's own wait, which takes
//! nothing (`WNOWAIT`), and then the thread looks again: another one may have come first. The wait is announced where the ring
//! has none (before Linux 6.7); and so is a wait with `__WNOTHREAD`, which is about the kernel thread that calls.
//!
//! A signal for the thread alone ends a sleep. A sleep until a time of a clock that
//! may jump looks at that clock again now and then: it can be set, or it goes on while the machine is suspended.
//! A sleep by a clock of CPU time is the kernel's.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::ptr::{null, null_mut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libc::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_TAI, TIMER_ABSTIME, clockid_t, id_t,
    idtype_t, pid_t, pthread_t, rusage, siginfo_t, socklen_t, timespec,
};

use super::descriptor::{can_be_written, not_ready, run, until, value_at};
use super::poll::for_time;
use super::{
    after, count_parked, deadline_on, errno, fail, heed, in_kernel, nanos, read, repeated,
    set_errno,
};
use crate::cancel::is_cancelled;
use crate::engine::hooks::{Operation, directed::due, operate, thread_id};
use crate::engine::{facade::blocking, hooks::watch::Direction};
use crate::sys::calls::{self, is_nonblocking};
use crate::sys::{self, clock};
use crate::thread::Thread;
use crate::wait::{is_in_frame, refusal, shielded};

/// Declares calls that are announced: by `blocking`, or by `in_kernel`, those that do all or nothing, which are made again if a
/// signal of the runtime's cuts them short.
macro_rules! announced {
    ($announce:ident: $(fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty;)*) => {
        hooked! {
            $(fn $name($($argument: $Type),*) -> $Result where real() {
                #[cfg(sim)]
                crate::sim::goes("makes a call that waits in the kernel");
                $announce(real)
            })*
        }
    };
}

announced! { blocking:
    // Names of hosts.
    fn getnameinfo(
        address: *const libc::sockaddr, length: socklen_t, host: *mut c_char,
        host_length: socklen_t, service: *mut c_char, service_length: socklen_t, flags: c_int,
    ) -> c_int;
    fn gethostbyname(name: *const c_char) -> *mut c_void;
    // Other programs.
    fn system(command: *const c_char) -> c_int;
    fn pclose(stream: *mut c_void) -> c_int;
}

announced! { in_kernel:
    // Queues of System V and of POSIX.
    fn msgsnd(queue: c_int, message: *const c_void, length: usize, flags: c_int) -> c_int;
    fn msgrcv(
        queue: c_int, message: *mut c_void, length: usize, kind: c_long, flags: c_int,
    ) -> isize;
    fn semop(set: c_int, operations: *mut c_void, count: usize) -> c_int;
    fn mq_send(queue: c_int, message: *const c_char, length: usize, priority: u32) -> c_int;
    fn mq_receive(queue: c_int, message: *mut c_char, length: usize, priority: *mut u32) -> isize;
    // Signals.
    fn pause() -> c_int;
    fn tcdrain(terminal: c_int) -> c_int;
}

/// Has the ring do this, or makes the call that blocks, where there is no ring.
pub(super) fn by_ring(operation: Operation<'_>, blocking: impl FnOnce() -> c_int) -> c_int {
    count_parked();
    match operate(operation) {
        None => blocking(),
        Some(Ok(_)) => 0,
        Some(Err(error)) => fail(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// `fsync` or `fdatasync`; `real` makes libc's call.
fn synced(fd: c_int, data_only: bool, real: impl Fn() -> c_int) -> c_int {
    if fd < 0 {
        return blocking(real);
    }
    // SAFETY: the descriptor is open, or the operation fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    by_ring(Operation::Sync { fd, data_only }, || blocking(real))
}

/// Makes the call in its form that does not wait, and announced if it would; `real` makes libc's.
fn locked(without_waiting: c_int, waiting: c_int, real: impl Fn(c_int) -> c_int) -> c_int {
    let before = errno();
    let try_now = || match real(without_waiting) {
        -1 if without_waiting != waiting && matches!(errno(), libc::EAGAIN | libc::EACCES) => {
            set_errno(before);
            None
        }
        answer => Some(answer),
    };
    try_now().unwrap_or_else(|| polled(try_now).unwrap_or_else(|| blocking(|| real(waiting))))
}

/// In a frame, makes `look` until it has an answer or a frame has ended: the frame is to end a wait of which nothing tells when
/// it is over. `None`: the thread is in no frame.
pub(super) fn polled(mut look: impl FnMut() -> Option<c_int>) -> Option<c_int> {
    /// In nanoseconds. The first is short for a lock that is held for a moment; the longest keeps the CPU free of many that wait.
    const PAUSES: [u64; 2] = [1_000_000, 20_000_000];
    let mut pause = PAUSES[0];
    while is_in_frame() {
        Thread::rest_until(after(pause));
        pause = (2 * pause).min(PAUSES[1]);
        let answer = look().or_else(|| refusal(None).map(fail));
        if answer.is_some() {
            return answer;
        }
    }
    None
}

/// Makes `look`, which does not wait, until it has an answer. In between it waits for the children that `kind` and `id` name;
/// `real` makes the call that waits.
fn until_told(
    (kind, id): (idtype_t, id_t),
    options: c_int,
    mut look: impl FnMut() -> Option<c_int>,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let before = errno();
    let wait = |_| {
        if options & libc::__WNOTHREAD != 0 {
            return Err(());
        }
        count_parked();
        let operation = Operation::WaitForChild(kind, id, options | libc::WNOWAIT);
        let is_told = matches!(operate(operation), Some(Ok(_)));
        is_told.then_some(true).ok_or(())
    };
    let answer = until(&mut look, wait).ok().flatten();
    answer.or_else(|| polled(look)).unwrap_or_else(|| {
        set_errno(before);
        blocking(real)
    })
}

hooked! {
    fn semtimedop(set: c_int, operations: *mut c_void, count: usize, time: *const timespec) -> c_int
    where real(time) {
        for_time(time, null(), real, |limit| limit.block())
    }

    fn fsync(fd: c_int) -> c_int where real() {
        synced(fd, false, real)
    }

    fn fdatasync(fd: c_int) -> c_int where real() {
        synced(fd, true, real)
    }

    fn flock(fd: c_int, operation: c_int) -> c_int where real(operation) {
        locked(operation | libc::LOCK_NB, operation, real)
    }

    // The third argument, if there is one, is passed as a variadic one is: in a register.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int where real(command) {
        let without_waiting = match command {
            libc::F_SETLKW => libc::F_SETLK,
            libc::F_OFD_SETLKW => libc::F_OFD_SETLK,
            _ => command,
        };
        locked(without_waiting, command, real)
    }

    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: the caller's arguments, of libc's other name for it.
        unsafe { fcntl(fd, command, argument) }
    }

    fn waitpid(child: pid_t, status: *mut c_int, options: c_int) -> pid_t {
        // SAFETY: the caller's arguments; no place for the usage.
        unsafe { wait4(child, status, options, null_mut()) }
    }

    fn wait4(child: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t
    where real(options) {
        if options & libc::WNOHANG != 0 {
            return real(options);
        }
        let whom = match child {
            1.. => (libc::P_PID, child as id_t),
            -1 => (libc::P_ALL, 0),
            // 0 means the caller's own group.
            group => (libc::P_PGID, group.unsigned_abs()),
        };
        let look = || Some(real(options | libc::WNOHANG)).filter(|&answer| answer != 0);
        until_told(whom, options | libc::WEXITED, look, || real(options))
    }

    fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
        // SAFETY: the caller's arguments.
        unsafe { wait4(-1, status, options, usage) }
    }

    fn waitid(kind: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int
    where real(id, info, options) {
        if options & libc::WNOHANG != 0 || kind == libc::P_PIDFD && is_nonblocking(id as c_int) {
            return real(id, info, options);
        }
        // The duplicate keeps the file open, as the kernel's call does, whatever becomes of the number.
        let kept = (kind == libc::P_PIDFD).then(|| sys::duplicate(id as c_int, 0).ok()).flatten();
        let id = kept.map_or(id, |kept| kept as id_t);
        let look = || {
            // SAFETY: zeroes are a valid record; the caller's place may be null, or can be written.
            unsafe {
                let mut seen: siginfo_t = core::mem::zeroed();
                match real(id, &mut seen, options | libc::WNOHANG) {
                    0 if seen.si_pid() == 0 => return None,
                    0 if info.is_null() => {}
                    // As with the kernel's call, the child's change is taken although it cannot be reported.
                    0 if !can_be_written(info, 1) => return Some(fail(libc::EFAULT)),
                    0 => *info = seen,
                    failed => return Some(failed),
                }
                Some(0)
            }
        };
        let answer = until_told((kind, id), options, look, || real(id, info, options));
        if let Some(kept) = kept {
            sys::close(kept);
        }
        answer
    }
}

exported! {
    // This call waits for any child.
    fn wait(status: *mut c_int) -> pid_t {
        // SAFETY: the caller's place.
        unsafe { waitpid(-1, status, 0) }
    }
}

/// A descriptor that is readable when `thread` has ended, whose control block is there still. `None`: the kernel has none to
/// give.
fn descriptor(thread: pthread_t) -> Option<OwnedFd> {
    // SAFETY: the caller's thread, which nobody has joined yet, so its control block is there.
    let name = || unsafe { thread_id(thread as usize) };
    let id = name().filter(|&id| id != 0)?;
    // The first thread of a process is left out: its end is not told as that of the others is.
    if id == std::process::id() {
        return None;
    }
    // If the id is still the thread's after the call, the descriptor is the thread's, too.
    let descriptor = calls::pidfd(id, calls::PIDFD_THREAD).ok();
    descriptor.filter(|_| name() == Some(id))
}

/// `pthread_join` of a kernel thread: parks, or calls `real`, libc's, which blocks.
pub(super) fn join(thread: pthread_t, result: *mut *mut c_void, real: impl Fn() -> c_int) -> c_int {
    // SAFETY: it takes nothing.
    if thread == unsafe { libc::pthread_self() } {
        return real(); // it says that this would wait for ever
    }
    // SAFETY: the caller's thread and place.
    let attempt = || unsafe { libc::pthread_tryjoin_np(thread, result) };
    let first = attempt();
    if first != libc::EBUSY {
        return first;
    }
    let Some(descriptor) = descriptor(thread) else {
        return blocking(real);
    };
    let attempt = |_, _| match attempt() {
        libc::EBUSY => not_ready(),
        answer => answer as isize,
    };
    let block = |_, _| real() as isize;
    let wait = || {
        run(
            descriptor.as_raw_fd(),
            Direction::Read,
            None,
            &attempt,
            &block,
        )
    };
    shielded(wait) as c_int
}

// ==== sleeping ====

/// Sleeps until `clock` shows `time`.
fn sleep_on(clock: clockid_t, time: u64) {
    /// How long a sleep relies on a clock that may jump: it ends as late as this at most.
    const TRUST: u64 = 1_000_000_000;
    count_parked();
    loop {
        let end = deadline_on(clock, time);
        match clock {
            CLOCK_MONOTONIC => Thread::rest_until(end),
            _ => Thread::rest_until(end.min(after(TRUST))),
        }
        if read(clock) >= time || is_cancelled() || due() != 0 {
            return;
        }
    }
}

/// Sleeps for `nanos`. Returns what is left, if a signal has come for the thread.
fn sleep_for(nanos: u64) -> u64 {
    count_parked();
    let end = after(nanos);
    Thread::rest_until(end);
    match due() {
        0 => 0,
        _ => end.saturating_sub(clock::now()),
    }
}

hooked! {
    fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
        // SAFETY: the caller's arguments.
        match unsafe { clock_nanosleep(CLOCK_REALTIME, 0, time, left) } {
            0 => 0,
            errno => fail(errno),
        }
    }

    fn clock_nanosleep(
        clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec,
    ) -> c_int where real(time, left) {
        let is_known = matches!(clock, CLOCK_MONOTONIC | CLOCK_REALTIME | CLOCK_BOOTTIME | CLOCK_TAI);
        let is_absolute = flags & TIMER_ABSTIME != 0;
        if let Some(time) = value_at(time).and_then(nanos)
            && is_known
            && flags & !TIMER_ABSTIME == 0
        {
            let end = if is_absolute { time } else { read(clock).saturating_add(time) };
            let rest = match clock {
                CLOCK_REALTIME | CLOCK_MONOTONIC if !is_absolute => sleep_for(time),
                _ => {
                    sleep_on(clock, end);
                    end.saturating_sub(read(clock))
                }
            };
            if rest == 0 || due() == 0 {
                return 0;
            }
            if !is_absolute && !left.is_null() {
                // SAFETY: the caller's place.
                unsafe { *left = clock::timespec(rest) };
            }
            heed(!0); // it does not fail with -1
            return libc::EINTR;
        }
        // The kernel makes this sleep. It reads the time before it writes what is left, so both may be one place.
        let mut rest = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let left = if left.is_null() { &raw mut rest } else { left };
        let mut time = time;
        let sleep = || {
            let answer = real(time, left);
            if answer == libc::EINTR && !is_absolute {
                time = left;
            }
            answer
        };
        let answer = repeated(sleep, |answer| *answer == libc::EINTR);
        if answer == libc::EINTR {
            heed(!0);
        }
        answer
    }

    fn sched_yield() -> c_int {
        Thread::yield_now();
        0
    }

    fn usleep(micros: c_uint) -> c_int {
        if sleep_for(u64::from(micros) * 1_000) == 0 { 0 } else { fail(libc::EINTR) }
    }

    fn sleep(seconds: c_uint) -> c_uint {
        let rest = sleep_for(u64::from(seconds) * 1_000_000_000);
        if rest != 0 {
            heed(!0); // what it returns says nothing of a failure
        }
        (rest / 1_000_000_000) as c_uint
    }
}
