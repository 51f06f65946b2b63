//! What a simulated process (`sim`) must not learn from the system, and what it must not do there.
//!
//! | functions | in a simulated process |
//! |---|---|
//! | `getrandom`, `getentropy`, `arc4random` and its kin, `/dev/urandom` | tell numbers that follow from the seed, a stream of its own for each thread |
//! | `time`, `gettimeofday`, `timespec_get`, `clock` | ask `clock_gettime`, which tells virtual time |
//! | `getpid`, `getppid`, `gettid`, `sched_getcpu`, `getcpu`, `sysconf` of CPUs, `gethostname`, `uname` | tell constants. `sched_getaffinity` fails, so that who asks it for the number of CPUs asks `sysconf` |
//! | `pthread_mutex_trylock` and other attempts, `pthread_spin_lock` | are points, and park nobody; a spin lock lets others run |
//! | `pthread_create`, `posix_spawn` and its kin, Internet sockets, timers of the system's | end the run with a failure, unless they are allowed |
//!
//! In any other process each of them is libc's, or does as that. (But the numbers are counted in a process that will fork
//! simulated ones.)

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

use libc::{cpu_set_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use super::{fail, poll::timeval, pthread, read};
use crate::engine::hooks::operation;
use crate::sim;
use crate::sys::{call as kernel_call, clock::timespec, kernel_thread, simulated::Step};

/// The number of a simulated process, and that of its parent: the kernel gives no process so high a number, so no other
/// process is meant by mistake.
const PROCESS: pid_t = (1 << 22) + 1;
const PARENT: pid_t = 1 << 22;

/// The name of the machine.
const HOST: &[u8] = b"simulated\0";

/// Fills `length` bytes at `buffer` by chance. False: the process neither is simulated, nor will fork such.
fn filled(buffer: *mut c_void, length: usize) -> bool {
    for start in (0..length).step_by(8) {
        let Some(number) = sim::own_number() else {
            return false;
        };
        let (bytes, count) = (number.to_ne_bytes(), (length - start).min(8));
        let place = buffer.cast::<u8>().wrapping_add(start);
        // SAFETY: the caller's buffer has so many bytes more.
        unsafe { place.copy_from(bytes.as_ptr(), count) };
    }
    length != 0
}

/// The same in any process.
fn fill(buffer: *mut c_void, length: usize) {
    let mut done = if filled(buffer, length) { length } else { 0 };
    while done < length {
        let arguments = [buffer.addr() + done, length - done, 0];
        // SAFETY: the caller's buffer, or the rest of it.
        match unsafe { kernel_call(libc::SYS_getrandom, &arguments) } {
            Err(libc::EINTR) => {}
            Ok(count) => done += count,
            Err(_) => crate::sys::die("the kernel gives no random numbers"),
        }
    }
}

/// In a simulated process: what is opened in the place of the system's random numbers.
fn random_file(path: *const c_char, flags: c_int) -> Option<c_int> {
    /// A program reads keys and seeds: it reads no more than this.
    const LENGTH: usize = 64 << 10;
    if !sim::is_simulated() || path.is_null() {
        return None;
    }
    // SAFETY: the caller's string.
    let path = unsafe { CStr::from_ptr(path) };
    if path != c"/dev/urandom" && path != c"/dev/random" {
        return None;
    }
    let mut bytes = vec![0_u8; LENGTH];
    fill(bytes.as_mut_ptr().cast(), LENGTH);
    let flags = match flags & libc::O_CLOEXEC {
        0 => 0,
        _ => libc::MFD_CLOEXEC,
    };
    // SAFETY: plain calls, with a string, and bytes of ours.
    unsafe {
        let file = libc::memfd_create(path.as_ptr(), flags);
        if file >= 0 {
            libc::pwrite(file, bytes.as_ptr().cast(), LENGTH, 0);
        }
        Some(file)
    }
}

/// Writes `value` to a place of the caller's, if there is one.
fn tell<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's place, for a value of this type.
        unsafe { place.write(value) };
    }
}

exported! {
    fn arc4random() -> u32 {
        let mut number = 0_u32;
        fill((&raw mut number).cast(), size_of::<u32>());
        number
    }

    fn arc4random_buf(buffer: *mut c_void, length: usize) -> () {
        fill(buffer, length)
    }

    fn arc4random_uniform(bound: u32) -> u32 {
        // By multiplication: each number below the bound is as likely as any other, up to 1 in 2^32.
        let mut number = 0_u64;
        fill((&raw mut number).cast(), size_of::<u64>());
        ((u128::from(number) * u128::from(bound)) >> 64) as u32
    }

    fn time(place: *mut libc::time_t) -> libc::time_t {
        let seconds = (read(libc::CLOCK_REALTIME) / 1_000_000_000) as libc::time_t;
        tell(place, seconds);
        seconds
    }

    fn gettimeofday(place: *mut libc::timeval, zone: *mut c_void) -> c_int {
        tell(place, timeval(read(libc::CLOCK_REALTIME)));
        // Minutes west of Greenwich, and whether there is a summer time: the kernel says no more.
        tell(zone.cast::<[c_int; 2]>(), [0; 2]);
        0
    }

    fn clock() -> libc::clock_t {
        (read(libc::CLOCK_PROCESS_CPUTIME_ID) / 1_000) as libc::clock_t
    }
}

/// The answer to system call `number` in a simulated process, if one of the functions below gives it. (The crate getrandom asks so.)
pub(super) fn by_number(number: c_long, [a, b, c, ..]: [usize; 6]) -> Option<c_long> {
    if !sim::is_simulated() {
        return None;
    }
    // SAFETY: the caller's arguments, of this system call.
    unsafe {
        Some(match number {
            libc::SYS_getrandom => getrandom(a as *mut c_void, b, c as c_uint) as c_long,
            libc::SYS_getpid => getpid().into(),
            libc::SYS_getppid => getppid().into(),
            libc::SYS_gettid => gettid().into(),
            libc::SYS_clock_gettime => {
                libc::clock_gettime(a as libc::clockid_t, b as *mut libc::timespec).into()
            }
            libc::SYS_timerfd_create => timerfd_create(a as c_int, b as c_int).into(),
            _ => return None,
        })
    }
}

// Where a thread may be cancelled: so no thread that is not green has a frame of ours there.
hooked! {
    fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int where real() {
        random_file(path, flags).unwrap_or_else(real)
    }

    fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int where real() {
        random_file(path, flags).unwrap_or_else(real)
    }
}

when_loaded!(sim::when_loaded());

interposed! {
    fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize where real() {
        if filled(buffer, length) { length as isize } else { real() }
    }

    fn getentropy(buffer: *mut c_void, length: usize) -> c_int where real() {
        if length <= 256 && filled(buffer, length) { 0 } else { real() }
    }

    fn timespec_get(place: *mut libc::timespec, base: c_int) -> c_int where real() {
        const UTC: c_int = 1;
        if base != UTC || !sim::is_simulated() {
            return real();
        }
        tell(place, timespec(read(libc::CLOCK_REALTIME)));
        base
    }

    fn getpid() -> pid_t where real() {
        if sim::is_simulated() { PROCESS } else { real() }
    }

    fn getppid() -> pid_t where real() {
        if sim::is_simulated() { PARENT } else { real() }
    }

    fn gettid() -> pid_t {
        sim::own().map_or_else(pthread::create::number, |number| PROCESS + number as pid_t)
    }

    fn kill(process: pid_t, signal: c_int) -> c_int where real(process) {
        match process {
            PROCESS if sim::is_simulated() => real(kernel_thread::process()),
            _ => real(process),
        }
    }

    fn sched_getcpu() -> c_int where real() {
        if sim::is_simulated() { 0 } else { real() }
    }

    fn getcpu(cpu: *mut c_uint, node: *mut c_uint) -> c_int where real() {
        if !sim::is_simulated() {
            return real();
        }
        tell(cpu, 0);
        tell(node, 0);
        0
    }

    fn sched_getaffinity(process: pid_t, size: usize, set: *mut cpu_set_t) -> c_int where real() {
        if sim::is_simulated() { fail(libc::EPERM) } else { real() }
    }

    fn sysconf(name: c_int) -> c_long where real() {
        match name {
            libc::_SC_NPROCESSORS_ONLN | libc::_SC_NPROCESSORS_CONF => sim::cpus().unwrap_or_else(real),
            _ => real(),
        }
    }

    fn gethostname(name: *mut c_char, length: usize) -> c_int where real() {
        match sim::is_simulated() {
            false => real(),
            true if length < HOST.len() => fail(libc::ENAMETOOLONG),
            true => {
                // SAFETY: the caller's buffer has room for it.
                unsafe { name.cast::<u8>().copy_from(HOST.as_ptr(), HOST.len()) };
                0
            }
        }
    }

    fn uname(told: *mut libc::utsname) -> c_int where real() {
        let answer = real();
        if answer == 0 && sim::is_simulated() {
            // SAFETY: the caller's place, which libc has filled in; the name has room for it.
            unsafe { (&raw mut (*told).nodename).cast::<u8>().copy_from(HOST.as_ptr(), HOST.len()) };
        }
        answer
    }

    fn pthread_spin_lock(lock: *mut libc::pthread_spinlock_t) -> c_int where real() {
        if !sim::is_simulated() {
            return real();
        }
        // SAFETY: the caller's lock.
        while unsafe { pthread_spin_trylock(lock) } != 0 {
            crate::thread::yield_now();
        }
        0
    }

    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int where real() {
        if domain != libc::AF_UNIX {
            sim::goes("makes a socket to the outside");
        }
        real()
    }
}

/// Declares functions that are libc's, after `$first`.
macro_rules! preceded {
    ($first:expr => $(fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty;)*) => {
        interposed! {
            $(fn $name($($argument: $Type),*) -> $Result where real() {
                let _first = $first;
                real()
            })*
        }
    };
}

// Attempts, which park nobody.
preceded! { operation(Step::Call) =>
    fn pthread_mutex_trylock(mutex: *mut libc::pthread_mutex_t) -> c_int;
    fn pthread_rwlock_tryrdlock(lock: *mut libc::pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_trywrlock(lock: *mut libc::pthread_rwlock_t) -> c_int;
    fn sem_trywait(semaphore: *mut libc::sem_t) -> c_int;
    fn pthread_spin_trylock(lock: *mut libc::pthread_spinlock_t) -> c_int;
}

preceded! { sim::goes("starts a process") =>
    fn fork() -> pid_t;
    fn popen(command: *const c_char, kind: *const c_char) -> *mut libc::FILE;
    fn posix_spawn(
        child: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, arguments: *const *mut c_char, environment: *const *mut c_char,
    ) -> c_int;
    fn posix_spawnp(
        child: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, arguments: *const *mut c_char, environment: *const *mut c_char,
    ) -> c_int;
}

preceded! { sim::goes("makes a timer of the system's") =>
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
    fn timer_create(clock: libc::clockid_t, event: *mut libc::sigevent, timer: *mut libc::timer_t) -> c_int;
    fn setitimer(which: c_int, new: *const libc::itimerval, old: *mut libc::itimerval) -> c_int;
    fn alarm(seconds: c_uint) -> c_uint;
}
