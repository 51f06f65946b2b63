//! System calls, each behind a function that returns `io::Result` or a plain value.
//!
//! Everything here may run under any thread pointer and with preemption off: no call goes through
//! libc where libc would write `errno`, nothing allocates, and the only lock is [`shared::Lock`]
//! itself. (But for the growing of a [`shared::Table`]: only ordinary threads do that.)
//!
//! This file has what every switch and every wake-up may need: the call itself, the clock ([`clock`]), blocking on a word
//! ([`futex`]), and the points at which a perturbed build stops a thread ([`perturb`]). The other files have a subject each.

pub(crate) mod calls;
pub(crate) mod epoll;
pub(crate) mod kernel_thread;
pub(crate) mod libraries;
pub(crate) mod mm;
pub(crate) mod perturb;
pub(crate) mod sanitizer;
pub(crate) mod shared;
pub(crate) mod signal;
#[cfg(sim)]
pub(crate) mod simulated;
pub(crate) mod topology;
pub(crate) mod word;

use core::fmt::Arguments;
use std::io::{Cursor, Write};
use std::os::fd::RawFd;

use crate::engine::arch;

/// A system call by number; `Err(errno)` on failure.
///
/// # Safety
/// As the system call demands.
#[inline(always)]
pub(crate) unsafe fn call(number: libc::c_long, arguments: &[usize]) -> Result<usize, i32> {
    let mut registers = [0; 6];
    registers[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the arguments are as this call demands, the caller says.
    let result = unsafe { arch::syscall(number, registers) };
    if (-4095..0).contains(&result) {
        Err(-result as i32)
    } else {
        Ok(result as usize)
    }
}

/// The same for numbers and raw pointers of all types.
macro_rules! syscall {
    ($number:expr $(, $argument:expr)*) => {
        $crate::engine::sys::call($number, &[$($argument as usize),*])
    };
}
pub(crate) use syscall;

/// Closes `descriptor`. A failure cannot be reported anywhere.
pub(crate) fn close(descriptor: RawFd) {
    // SAFETY: the call touches no memory.
    let _ = unsafe { syscall!(libc::SYS_close, descriptor) };
}

/// Makes a duplicate of `descriptor`: its number is the lowest free one from `lowest` on.
pub(crate) fn duplicate(descriptor: RawFd, lowest: RawFd) -> Result<RawFd, i32> {
    // SAFETY: the call makes a descriptor, and touches no memory.
    let made = unsafe { syscall!(libc::SYS_fcntl, descriptor, libc::F_DUPFD_CLOEXEC, lowest) };
    made.map(|fd| fd as RawFd)
}

/// A question for `poll(2)`.
pub(crate) fn pollfd(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// The events of `poll(2)` that are there at this moment, of `events` and the errors.
pub(crate) fn poll_now(descriptor: RawFd, events: i16) -> Result<i16, i32> {
    let mut poll = pollfd(descriptor, events);
    let at_once = [0_u64; 2];
    loop {
        // SAFETY: one valid entry, which the kernel fills in, and a time, which it reads.
        match unsafe { syscall!(libc::SYS_ppoll, &raw mut poll, 1, &raw const at_once, 0, 0) } {
            Err(libc::EINTR) => {}
            answer => return answer.map(|_| poll.revents),
        }
    }
}

/// Whether one of `events` is there at this moment, or an error, which a call on the descriptor then tells.
pub(crate) fn is_ready(descriptor: RawFd, events: i16) -> bool {
    poll_now(descriptor, events) != Ok(0)
}

/// Writes `bytes`, or a part of them, to `descriptor`; returns how many.
pub(crate) fn write(descriptor: RawFd, bytes: &[u8]) -> Result<usize, i32> {
    // SAFETY: the kernel reads the bytes, which are valid.
    unsafe { syscall!(libc::SYS_write, descriptor, bytes.as_ptr(), bytes.len()) }
}

/// Writes `text` to standard error. A failure cannot be reported anywhere.
pub(crate) fn print(text: &[u8]) {
    let _ = write(libc::STDERR_FILENO, text);
}

/// Writes a line to standard error, as far as it has room, without the allocator and std's lock.
pub(crate) fn say(text: Arguments<'_>) {
    let mut line = Cursor::new([0; 640]);
    let _ = writeln!(line, "greenthread: {text}");
    print(&line.get_ref()[..line.position() as usize]);
}

/// Prints `message` and aborts: an invariant of the runtime itself is broken, going on would
/// corrupt memory.
#[cold]
#[inline(never)]
pub(crate) fn die(message: &str) -> ! {
    for part in ["greenthread: internal invariant broken: ", message, "\n"] {
        print(part.as_bytes());
    }
    std::process::abort()
}

/// Stops here now and then if this is a perturbed build: `perturb.rs`.
#[inline(always)]
pub(crate) fn point(name: &'static str) {
    if cfg!(greenthread_perturb) {
        perturb::come_to(name);
    }
    #[cfg(sim)]
    simulated::point(simulated::Step::Call);
}

/// Blocking a kernel thread on a word of memory.
pub(crate) mod futex {
    use core::ptr;

    use super::{clock, perturb};
    use crate::engine::atomic::AtomicU32;

    /// Blocks while `word` holds `expected`, at most until `deadline` (monotonic nanoseconds). May return early. Returns
    /// whether a signal's handler has run on the kernel thread meanwhile.
    pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<u64>) -> bool {
        perturb::point("futex: waiting");
        // This operation takes an absolute monotonic time, so an interrupted wait need not compute a remainder.
        let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let (word, all) = (ptr::from_ref(word), libc::FUTEX_BITSET_MATCH_ANY as u32);
        let until = deadline.map(clock::timespec);
        let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the word is valid, and the time is absent or valid. The kernel writes nowhere.
        let waited = unsafe { syscall!(libc::SYS_futex, word, operation, expected, until, 0, all) };
        // Every failure (EAGAIN, EINTR, ETIMEDOUT) means "look again".
        waited == Err(libc::EINTR)
    }

    /// Wakes at most `count` of those that wait on `word`. The word may be gone by now: the kernel then
    /// wakes no thread, or one that looks again.
    pub(crate) fn wake(word: *const AtomicU32, count: u32) {
        perturb::point("futex: waking");
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the kernel uses the word's address as a key only.
        let _ = unsafe { syscall!(libc::SYS_futex, word, operation, count, 0, 0, 0) };
    }
}

/// Clocks, in nanoseconds.
pub(crate) mod clock {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    #[cfg(answers)]
    use crate::engine::atomic::AtomicUsize;
    use crate::engine::atomic::{AtomicU32, Ordering};

    /// A deadline that never comes.
    pub(crate) const NEVER: u64 = u64::MAX;

    /// `nanos` as the kernel takes times.
    pub(crate) fn timespec(nanos: u64) -> libc::timespec {
        libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        }
    }

    /// libc's `clock_gettime`, whose name is ours; 0 until it is found, when the program has been loaded. Relaxed: the
    /// address is all that there is to see.
    #[cfg(answers)]
    pub(crate) static GETTIME: AtomicUsize = AtomicUsize::new(0);

    /// Reads `clock` as libc does, or by the system call, which does the same.
    ///
    /// # Safety
    /// As the function demands.
    #[cfg(answers)]
    pub(crate) unsafe fn get(clock: libc::clockid_t, time: *mut libc::timespec) -> i32 {
        #[cfg(sim)]
        if let Some(now) = super::simulated::time(clock) {
            // SAFETY: the place is one that the function may write to, the caller says.
            unsafe { time.write(timespec(now)) };
            return 0;
        }
        type GetTime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32;
        // SAFETY: the place is one that the function may write to, the caller says; libc's function of that name.
        unsafe {
            match GETTIME.load(Ordering::Relaxed) {
                0 => match syscall!(libc::SYS_clock_gettime, clock, time) {
                    Ok(_) => 0,
                    Err(errno) => {
                        *libc::__errno_location() = errno;
                        -1
                    }
                },
                real => core::mem::transmute::<usize, GetTime>(real)(clock, time),
            }
        }
    }

    #[cfg(not(answers))]
    use libc::clock_gettime as get;

    fn nanos(time: &libc::timespec) -> u64 {
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// The monotonic clock, which `Instant` and futexes use too.
    pub(crate) fn now() -> u64 {
        let mut time = timespec(0);
        // SAFETY: writes to a valid place. The clock exists, so the call does not fail.
        unsafe { get(libc::CLOCK_MONOTONIC, &mut time) };
        nanos(&time)
    }

    /// A timer of the system's that sends the process a signal. It stays as long as the process; a forked child has none.
    pub(crate) struct Timer(i32);

    impl Timer {
        pub(crate) fn of_signal(signal: i32) -> Option<Timer> {
            // SAFETY: zeroes are a valid event.
            let mut event: libc::sigevent = unsafe { core::mem::zeroed() };
            (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, signal);
            let mut number = 0;
            let (event, place) = (&raw const event, &raw mut number);
            // SAFETY: the kernel reads the event, and writes the timer's number, an `int`.
            let made =
                unsafe { syscall!(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, event, place) };
            made.ok().map(|_| Timer(number))
        }

        /// It goes off once, `nanos` from now; 0: it does not go off. A signal handler may call this.
        pub(crate) fn set(&self, nanos: u64) {
            let time = libc::itimerspec {
                it_interval: timespec(0),
                it_value: timespec(nanos),
            };
            // SAFETY: the kernel reads a valid time, and is given no place to write to.
            let _ = unsafe { syscall!(libc::SYS_timer_settime, self.0, 0, &raw const time, 0) };
        }
    }

    /// The coarse clock: milliseconds of the monotonic clock, as somebody last noted them. Alone on its
    /// cache line: every switch reads it.
    #[repr(align(128))]
    pub(crate) struct Coarse(AtomicU32);
    pub(crate) static COARSE: Coarse = Coarse(AtomicU32::new(0));

    /// The coarse clock. It wraps after 49 days.
    #[inline(always)]
    pub(crate) fn coarse() -> u32 {
        COARSE.0.load(Ordering::Relaxed)
    }

    /// Sets the coarse clock: `now` is the time of a moment ago. Callers are the monitors, each time that
    /// they look, and processors that were idle.
    pub(crate) fn note(now: u64) {
        let millis = (now / 1_000_000) as u32;
        // The clock is written only when it changes, since other processors read its cache line.
        if coarse() != millis {
            COARSE.0.store(millis, Ordering::Relaxed);
        }
    }

    /// When `duration` will be over; [`NEVER`] if that is beyond the clock.
    pub(crate) fn after(duration: Duration) -> u64 {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(NEVER);
        now().saturating_add(nanos)
    }

    /// `deadline` on the monotonic clock: the same for the same deadline, whenever this is asked.
    pub(crate) fn at(deadline: Instant) -> u64 {
        /// A point in time as std and as the kernel has it. Between two readings of a clock the thread may be preempted.
        static SAME: OnceLock<(u64, Instant, u64)> = OnceLock::new();
        let (nanos, instant, _) = *SAME.get_or_init(|| {
            let look = || (now(), Instant::now(), now());
            let looks = [(); 8].map(|()| look()).into_iter();
            let best = looks.min_by_key(|(before, _, after)| after - before);
            best.unwrap_or_else(look)
        });
        let before = instant.saturating_duration_since(deadline).as_nanos();
        let after = deadline.saturating_duration_since(instant).as_nanos();
        let deadline = (u128::from(nanos) + after).saturating_sub(before);
        u64::try_from(deadline).unwrap_or(NEVER)
    }

    /// CPU time used by the kernel thread behind `clock` (see [`super::kernel_thread::cpu_clock`]); 0 if there is no such
    /// thread, or a filter forbids the question.
    pub(crate) fn cpu_time(clock: libc::clockid_t) -> u64 {
        let mut time = timespec(0);
        // SAFETY: the kernel writes to a valid place.
        let _ = unsafe { syscall!(libc::SYS_clock_gettime, clock, &raw mut time) };
        nanos(&time)
    }
}

/// Variables of the environment, and which of them the crate reads.
///
/// The environment is the caller's. A program that has rights which its caller lacks (setuid, setgid, capabilities
/// of the file) must not let that caller name a file to be written, so the crate reads no variable at all there, as
/// with `secure_getenv`: the kernel says so at the start of the program, for good.
///
/// Invariant: all of the crate that reads the environment reads it here (`.ci/house` looks).
pub(crate) mod variable {
    use core::ffi::CStr;
    use std::ffi::OsString;

    use crate::engine::arch;

    /// The value of variable `name`.
    pub(crate) fn read(name: &str) -> Option<OsString> {
        is_heard().then(|| std::env::var_os(name)).flatten()
    }

    /// Calls `f` with the value of variable `name`, for code that may neither allocate nor take std's lock, which a
    /// preempted thread may hold. The program does not change such a variable.
    pub(crate) fn peek<T>(name: &CStr, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if !is_heard() {
            return None;
        }
        // SAFETY: the name is a string; the answer is null, or a string that stays as it is while `f` runs.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            (!value.is_null()).then(|| f(CStr::from_ptr(value).to_bytes()))
        }
    }

    fn is_heard() -> bool {
        arch::auxiliary(libc::AT_SECURE) == 0
    }
}

mod unseen {
    use core::marker::PhantomData;

    use super::sanitizer;

    /// While it lives, ThreadSanitizer sees nothing of what the calling thread does.
    pub(crate) struct Unseen(PhantomData<*mut ()>);

    #[inline(always)]
    pub(crate) fn unseen() -> Unseen {
        sanitizer::hide();
        Unseen(PhantomData)
    }

    #[cfg(tsan)]
    impl Drop for Unseen {
        #[inline(always)]
        fn drop(&mut self) {
            sanitizer::see_again();
        }
    }
}

/// What ThreadSanitizer must be told, where it is not: nothing. `sanitizer.rs` says what each function is for.
#[cfg(not(tsan))]
mod no_tsan {
    use core::ffi::CStr;

    pub(crate) fn interceptor(_: &CStr) -> Option<usize> {
        None
    }

    pub(crate) struct Fiber;

    impl Fiber {
        pub(crate) const fn new() -> Fiber {
            Fiber
        }

        pub(crate) fn begin(&self, _: *mut u8) {}
        pub(crate) fn end(&self, _: usize, _: usize) {}
        pub(crate) fn enter(&self) {}
        pub(crate) fn leave(&self) {}
    }

    pub(crate) fn lend_own(_: *mut u8) {}
    #[inline(always)]
    pub(crate) fn hide() {}
    pub(crate) fn see_again() {}
    #[inline(always)]
    pub(crate) fn publish<T>(_: &T) {}
    #[inline(always)]
    pub(crate) fn observe<T>(_: &T) {}
    pub(crate) fn forget_accesses(_: usize, _: usize) {}
}
