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
//! | `pthread` | mutexes, condition variables, reader-writer locks, semaphores, barriers, once |
//! | `poll` | `poll`, `select`, `epoll_wait` and their kin: waiting for one of several descriptors |
//! | `transfer` | `read`, `write`, `recv`, `send` and their kin, `sendfile`, `splice`; `connect`, `accept` |
//! | `announced` | `nanosleep`, `sleep` and their kin; what no descriptor's event ends: `waitpid` and its kin, `pthread_join`, locks on files, syncing, `getaddrinfo` and others |
//! | `descriptor` | a call on a descriptor: try, wait, try again; `close` and its kin: a descriptor for which threads wait |
//! | `addresses` | (none) threads that wait at addresses, for the futexes and locks of code that is not ours |
//! | `inside` | (none) a signal handler that has interrupted its thread in there leaves it a note |
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
//! # Declaring functions of libc's, and ours of the same names
//!
//! | macro | its functions |
//! |---|---|
//! | `libc_functions!` | libc's: for each a module of its name, with `real`, which calls it |
//! | `exported!` | ours, with no use for libc's |
//! | `interposed!` | ours, on every thread, and libc's |
//! | `hooked!` | ours, on a green thread that may be parked; any other thread goes on in libc's |
//! | `choosing!` | ours under conditions, or libc's |
//! | `around!` | ours, which leave no frame below what they call, and libc's |
//!
//! A function of `interposed!` or `hooked!` may be declared `where real(fd)`: in its body `real(fd)` calls libc's function
//! with that `fd`, and with the arguments of the caller for all others.
//!
//! `dlsym(RTLD_NEXT)` finds libc's functions: those of `interposed!` when the program is loaded, and not in a child of
//! `_Fork`, where the loader's lock may be held for ever; the others at their first use. Where ours are not found before
//! libc's (`sys::libraries`), and in a static program, which has no `dlsym`, there are no green threads. Beside a sanitizer
//! that learns from calls of libc's functions, it is the sanitizer's that are called.
//!
//! Orderings: an address is all that there is to see, so Relaxed.
//!
//! `docs/unmodified.md` says for each call what differs from the kernel's behaviour.

use core::ffi::{CStr, c_int, c_long, c_void};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use crate::engine::{facade, hooks::count_parked, hooks::signals::begun};
use crate::sys::{clock, die, libraries, sanitizer, variable};

// ==== declaring functions ====

/// A function of libc.
struct Real {
    name: &'static CStr,
    /// Empty: the function's only one, or its newest.
    version: &'static CStr,
    /// Not the sanitizer's.
    is_libcs: bool,
    /// 0: not found yet.
    address: AtomicUsize,
}

impl Real {
    /// The function of that version, where libc has versions; else the only one. Both texts end with their only NUL.
    const fn new(name: &'static str, version: &'static str) -> Real {
        Real {
            name: text(name),
            version: text(version),
            is_libcs: false,
            address: AtomicUsize::new(0),
        }
    }

    /// The address of libc's function.
    #[inline]
    fn target(&self) -> *const () {
        #[cfg(not(greenthread_points))]
        let address = self.address.load(Relaxed);
        // SAFETY: the word is aligned, and changes once. This load is no schedule point.
        #[cfg(greenthread_points)]
        let address = unsafe { self.address.as_ptr().read_volatile() };
        let address = match address {
            0 => self.find(),
            known => known,
        };
        if address == 0 {
            die("libc has no function of the name that it is asked for");
        }
        address as *const ()
    }

    /// Looks for it; 0: there is none.
    #[cold]
    fn find(&self) -> usize {
        #[cfg(sim)]
        let _once = crate::engine::hooks::without_points();
        let sanitizers = sanitizer::interceptor(self.name).filter(|_| !self.is_libcs);
        let mut found = sanitizers.unwrap_or(0);
        // SAFETY: dlvsym and dlsym get names that end with a NUL.
        unsafe {
            if found == 0 && !self.version.is_empty() {
                let version = self.version.as_ptr();
                found = libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version) as usize;
            }
            if found == 0 {
                found = libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) as usize;
            }
        }
        self.address.store(found, Relaxed);
        found
    }
}

const fn text(literal: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(literal.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("one NUL, at the end"),
    }
}

/// Declares functions of libc: for each a module of its name, with `real`, which calls it.
///
/// One that has versions is written `fn name["GLIBC_2.3.2"](…)`. All may unwind: libc's do when a kernel thread is
/// cancelled in them. A kernel thread comes there from `hooked!` or `around!`, which know libc's function by its
/// address, `target`: `real` is a frame of Rust's.
macro_rules! libc_functions {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty;
    )*) => {$(
        #[allow(non_snake_case, dead_code, reason = "libc's name; one of the ways is enough")]
        mod $name {
            #[allow(unused_imports, reason = "types of arguments")]
            use super::*;
            pub(super) static REAL: $crate::libc::Real = $crate::libc::Real::new(
                concat!(stringify!($name), "\0"),
                concat!($($version,)? "\0"),
            );

            /// libc's function.
            ///
            /// # Safety
            /// That of libc's function.
            #[inline]
            pub(super) unsafe fn real($($argument: $Type),*) -> $Result {
                // SAFETY: libc's function of this name has this type; the arguments are the caller's.
                unsafe {
                    core::mem::transmute::<*const (), unsafe extern "C-unwind" fn($($Type),*) -> $Result>(
                        REAL.target(),
                    )($($argument),*)
                }
            }
        }
    )*};
}

/// Declares `$real`, a closure for a body: it calls libc's function `$name`, with new values for the arguments in its own
/// brackets, and the caller's for the others.
macro_rules! real {
    ($name:ident($($argument:ident),*)) => {};
    ($name:ident($($argument:ident),*) $real:ident($($new:ident),*)) => {
        // SAFETY: libc's function gets what its caller has given to ours, or a part of it: a body changes flags, time-outs,
        // numbers of descriptors, and leaves out what is done already of a buffer.
        let $real = move |$($new),*| unsafe { $name::real($($argument),*) };
    };
}

/// Runs `$find` when the program, or the library that the crate is in, is loaded.
macro_rules! when_loaded {
    ($find:expr) => {
        const _: () = {
            extern "C" fn when_loaded() {
                $find;
            }
            #[used]
            // SAFETY: the section of functions that are called at the start; this one has their type.
            #[unsafe(link_section = ".init_array")]
            static WHEN_LOADED: extern "C" fn() = when_loaded;
        };
    };
}

/// The rest of the block is a call that others can see: in a simulated process a schedule point comes before it.
macro_rules! operation {
    () => {
        #[cfg(sim)]
        let _operation = $crate::engine::hooks::operation($crate::sys::simulated::Step::Call);
    };
}

/// Declares functions that have the names of libc's, and take their place.
macro_rules! exported {
    ($(
        fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty $body:block
    )*) => {$(
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($($argument: $Type),*) -> $Result $body
    )*};
}

/// `exported!`, with libc's functions behind them. A thread must not be cancelled in the body.
macro_rules! interposed {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty
            $(where $real:ident($($new:ident),*))? $body:block
    )*) => {
        libc_functions! {
            $(fn $name $([$version])? ($($argument: $Type),*) -> $Result;)*
        }
        exported! {
            $(fn $name($($argument: $Type),*) -> $Result {
                real!($name($($argument),*) $($real($($new),*))?);
                $body
            })*
        }
        when_loaded!(for real in [$(&$name::REAL),*] {
            real.find();
        });
    };
}

/// Declares functions that have the names of libc's. Each goes on in the first of the expressions whose condition is true, or else
/// in libc's function, with no frame of ours below it.
macro_rules! choosing {
    ($(fn $name:ident $arguments:tt -> $Result:ty { $($is_so:expr => $ours:expr,)* })*) => {
        libc_functions! {
            $(fn $name $arguments -> $Result;)*
        }
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(unused_variables, reason = "not all look at all arguments")]
            pub(super) unsafe extern "C-unwind" fn $name $arguments -> $Result {
                #[allow(unused_variables, reason = "as above")]
                extern "C" fn way $arguments -> *const () {
                    $(if $is_so {
                        return choosing!(ours $arguments $Result, $ours);
                    })*
                    $name::REAL.target()
                }
                $crate::sys::libraries::jump_where!(way)
            }
        )*
    };
    (ours $arguments:tt $Result:ty, $ours:expr) => {{
        #[allow(unused_variables, reason = "as above")]
        extern "C-unwind" fn ours $arguments -> $Result {
            $ours
        }
        ours as *const ()
    }};
}

/// Declares functions that have the names of libc's, and libc's behind them.
///
/// The body is the hooked call; it runs on a green thread that may be parked. Any other thread goes on in libc's function,
/// with no frame of ours below it.
macro_rules! hooked {
    ($(
        fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty
            $(where $real:ident($($new:ident),*))? $body:block
    )*) => {
        choosing! {
            $(fn $name($($argument: $Type),*) -> $Result {
                $crate::libc::is_hooked() => {
                    operation!();
                    let call = || {
                        real!($name($($argument),*) $($real($($new),*))?);
                        $body
                    };
                    #[cfg(hooks)]
                    const HOW: $crate::libc::Interruption = $crate::libc::Interruption::of(stringify!($name));
                    #[cfg(hooks)]
                    let call = || $crate::libc::interruptible(HOW, call);
                    call()
                },
            })*
        }
    };
}

/// Declares functions that have the names of libc's, and call another function: `before` gets the arguments, and says
/// which (`sys::libraries`). Any thread may be cancelled there, or unwind.
macro_rules! around {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty {
            before $before:block
            after $after:path,
            unwound $unwound:path,
        }
    )*) => {
        libc_functions! {
            $(fn $name $([$version])? ($($argument: $Type),*) -> $Result;)*
        }
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(super) unsafe extern "C-unwind" fn $name($($argument: $Type),*) -> $Result {
                #[allow(unused_variables, reason = "whoever is called gets them")]
                extern "C" fn before(
                    $($argument: $Type),*
                ) -> $crate::sys::libraries::Decision $before
                $crate::sys::libraries::call_around!(before, $after, $unwound)
            }
        )*
    };
}

// The modules use the macros, which must stand before them.
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
mod resolver;
mod signals;
#[cfg(sim)]
mod simulated;
#[cfg(answers)]
mod threads;
#[cfg(hooks)]
mod transfer;

// ==== what the functions share ====

#[cfg(hooks)]
use pthread::signals::{Interruption, heed, interruptible};

/// Whether calls are hooked in this process.
fn is_on() -> bool {
    /// 0: nobody has asked yet.
    static STATE: AtomicU8 = AtomicU8::new(0);
    const ON: u8 = 1;
    const OFF: u8 = 2;
    #[cfg(not(greenthread_points))]
    let state = STATE.load(Relaxed);
    // SAFETY: the byte changes once. This load is no schedule point.
    #[cfg(greenthread_points)]
    let state = unsafe { STATE.as_ptr().read_volatile() };
    match state {
        0 => {
            #[cfg(sim)]
            let _once = crate::engine::hooks::without_points();
            // A value that is not accepted is an error when the first runtime starts.
            let is_off = variable::peek(c"GREENTHREAD_UNMODIFIED", |value| value == b"off");
            // A sanitizer under which all threads are kernel threads must see their calls as they are.
            let is_on = is_off != Some(true)
                && libraries::libcs_names_lead_here()
                && sanitizer::unsupported().is_none();
            STATE.store(if is_on { ON } else { OFF }, Relaxed);
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

/// What a system call returns, or `errno`.
type Answer = Result<usize, c_int>;

/// What a function returns that is one system call.
fn answered(result: Answer) -> c_long {
    result.map_or_else(|errno| fail(errno).into(), |result| result as c_long)
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
        if !is_cut(&answer) || begun() != before || is_signalled() {
            return answer;
        }
    }
}

/// Whether there is a signal for the calling green thread.
fn is_signalled() -> bool {
    #[cfg(hooks)]
    return crate::engine::hooks::directed::due() != 0;
    #[cfg(not(hooks))]
    false
}

/// The same for a call that fails with -1 and `errno`.
fn uninterrupted<T: PartialEq + From<i8>>(call: impl FnMut() -> T) -> T {
    let is_cut = |answer: &T| *answer == T::from(-1) && errno() == libc::EINTR;
    repeated(call, is_cut)
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
        _ => after(time.saturating_sub(read(clock))),
    }
}

/// What `clock` shows, in nanoseconds.
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = clock::timespec(0);
    // SAFETY: a place of ours. The call fails for a clock that does not exist: then 0 is returned.
    unsafe { libc::clock_gettime(clock, &mut now) };
    nanos(now).unwrap_or(0)
}
