//! Interposed functions of libc. They concern parts of a kernel thread that a green thread cannot
//! carry along.
//!
//! | function | what ours does beside libc's work |
//! |---|---|
//! | `pthread_sigmask`, `sigprocmask` | the thread is marked: `switch` takes its mask along |
//! | `sigaction`, `signal` | a handler must not move to another kernel thread half way: while it runs the mask differs and preemption declines; the preemption signal is added to its mask for those that run with an unchanged one (SA_NODEFER). And it is noted that the program has handlers |
//! | `sigaltstack` | a green thread keeps its kernel thread's alternate stack: its own would stay behind when it moves |
//! | `pthread_getattr_np` | a green thread's stack is its own; libc would ask the kernel about a thread id that is not one |
//! | `dlclose` | it waits for green threads that resolve symbols, too (`unload`) |
//! | `pthread_getname_np` | a green thread has its own name, not its kernel thread's |
//! | `pthread_detach` | a green thread that detaches itself stays as it is: libc would note it in a control block that other threads have later |
//! | `pthread_kill` | a green thread signals its kernel thread when it signals itself; up to glibc 2.33 libc would name it by its thread id, which the kernel does not know |
//! | `pthread_mutexattr_setprotocol` | refuses a green thread priority inheritance and ceilings: the kernel finds a mutex's owner by its id, which a green thread's is not |
//!
//! `dlsym(RTLD_NEXT)` finds the real functions. In a shared library ours are not found before
//! libc's, and in a static program there is no `dlsym`, but no green threads either.

use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::engine::sys::real::Real;
use crate::engine::sys::signal::{Handler, bit};
use crate::engine::sys::word;

/// The preemption signals of all clusters.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
/// The signals that the program itself ignores, and not whoever has started it.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Whether the program has installed a signal handler.
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);
/// Handlers of the crate's for signals that are not reserved: they do not count as the program's.
static OWN_HANDLERS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// `handler` is the crate's, and does not count.
pub(crate) fn own_handler(handler: Handler) {
    let set = |place: &AtomicUsize| {
        let (old, new) = (0, handler as usize);
        let set = place.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        set.is_ok() || set == Err(new)
    };
    if !OWN_HANDLERS.iter().any(set) {
        crate::engine::sys::die("the crate has more handlers than it knows of");
    }
}

/// From now on `signal` preempts.
pub(crate) fn reserve(signal: i32) {
    SIGNALS.fetch_or(bit(signal), Ordering::Relaxed);
    // This happens now, not in a forked child, where the loader's lock may be held for ever.
    for real in [
        &PTHREAD_SIGMASK,
        &SIGPROCMASK,
        &SIGACTION,
        &SIGNAL,
        &SIGALTSTACK,
        &GETATTR,
        &GETNAME,
        &DETACH,
        &KILL,
        &SETPROTOCOL,
        &DLCLOSE,
    ] {
        real.address();
    }
}

/// Whether `signal` preempts already.
pub(crate) fn is_reserved(signal: i32) -> bool {
    SIGNALS.load(Ordering::Relaxed) & bit(signal) != 0
}

/// Whether the program itself has said that it ignores `signal`.
pub(crate) fn program_ignores(signal: i32) -> bool {
    IGNORED.load(Ordering::Relaxed) & bit(signal) != 0
}

/// Whether the program handles signals: then it knows of EINTR, and its handlers may run in the
/// scheduler.
#[inline(always)]
pub(crate) fn program_has_handlers() -> bool {
    HAS_HANDLERS.load(Ordering::Relaxed)
}

static PTHREAD_SIGMASK: Real = Real::new(c"pthread_sigmask");
static SIGPROCMASK: Real = Real::new(c"sigprocmask");
static SIGACTION: Real = Real::new(c"sigaction");
static SIGNAL: Real = Real::new(c"signal");
static SIGALTSTACK: Real = Real::new(c"sigaltstack");
static GETATTR: Real = Real::new(c"pthread_getattr_np");
static GETNAME: Real = Real::new(c"pthread_getname_np");
static DETACH: Real = Real::new(c"pthread_detach");
static KILL: Real = Real::new(c"pthread_kill");
static SETPROTOCOL: Real = Real::new(c"pthread_mutexattr_setprotocol");
static DLCLOSE: Real = Real::new(c"dlclose");

#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
mod functions {
    use core::ffi::{c_char, c_int, c_void};
    use core::mem::transmute;

    use super::*;
    use crate::engine::green::Oddities;
    use crate::engine::green::current;
    use crate::engine::sched::unload;
    use crate::engine::sys::signal::Mask;
    use crate::engine::{stack, tls};

    type SetMask = unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
    type SetAction =
        unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    type SetHandler = unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;
    type SetStack = unsafe extern "C" fn(*const libc::stack_t, *mut libc::stack_t) -> c_int;
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    type GetName = unsafe extern "C" fn(libc::pthread_t, *mut c_char, usize) -> c_int;
    type Detach = unsafe extern "C" fn(libc::pthread_t) -> c_int;
    type Kill = unsafe extern "C" fn(libc::pthread_t, c_int) -> c_int;
    type SetProtocol = unsafe extern "C" fn(*mut libc::pthread_mutexattr_t, c_int) -> c_int;
    type GetAttributes = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;

    /// Calls the real function, and marks the thread if it asked for a change.
    unsafe fn set_mask(
        real: &Real,
        how: c_int,
        set: *const libc::sigset_t,
        old: *mut libc::sigset_t,
    ) -> c_int {
        // SAFETY: libc's function of that name; the arguments are the caller's.
        let result = unsafe { transmute::<usize, SetMask>(real.address())(how, set, old) };
        if !set.is_null()
            && let Some(green) = current::green()
        {
            green.oddities.add(Oddities::MASK);
        }
        result
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_sigmask(
        how: c_int,
        set: *const libc::sigset_t,
        old: *mut libc::sigset_t,
    ) -> c_int {
        // SAFETY: the caller's arguments, unchanged.
        unsafe { set_mask(&PTHREAD_SIGMASK, how, set, old) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn sigprocmask(
        how: c_int,
        set: *const libc::sigset_t,
        old: *mut libc::sigset_t,
    ) -> c_int {
        // SAFETY: the caller's arguments, unchanged.
        unsafe { set_mask(&SIGPROCMASK, how, set, old) }
    }

    /// Notes a handler of the program's. The handlers for faults, which std and we install, do not
    /// count.
    fn note(signal: c_int, handler: libc::sighandler_t) -> bool {
        let is_handler = !matches!(handler, libc::SIG_DFL | libc::SIG_IGN);
        match signal {
            1..=64 if handler == libc::SIG_IGN => IGNORED.fetch_or(bit(signal), Ordering::Relaxed),
            1..=64 => IGNORED.fetch_and(!bit(signal), Ordering::Relaxed),
            _ => 0,
        };
        if matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
            word::faults_are_caught(false); // the crate says so once its handler is in place
        }
        let is_own = OWN_HANDLERS
            .iter()
            .any(|own| own.load(Ordering::Relaxed) == handler);
        if is_handler
            && !is_own
            && !matches!(signal, libc::SIGSEGV | libc::SIGBUS)
            && !is_reserved(signal)
        {
            HAS_HANDLERS.store(true, Ordering::Relaxed);
        }
        is_handler
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn sigaction(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int {
        // SAFETY: libc's function; `new` is valid or null, and so is its copy.
        unsafe {
            let real = transmute::<usize, SetAction>(SIGACTION.address());
            if new.is_null() || !note(signal, (*new).sa_sigaction) {
                return real(signal, new, old);
            }
            let mut with_ours = *new;
            let mask: *mut Mask = (&raw mut with_ours.sa_mask).cast();
            *mask |= SIGNALS.load(Ordering::Relaxed);
            real(signal, &with_ours, old)
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
        if handler != libc::SIG_ERR {
            note(signal, handler);
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { transmute::<usize, SetHandler>(SIGNAL.address())(signal, handler) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
        let new = if current::green().is_some() {
            core::ptr::null()
        } else {
            new
        };
        // SAFETY: the caller's arguments, or a null that asks for no change.
        unsafe { transmute::<usize, SetStack>(SIGALTSTACK.address())(new, old) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn dlclose(library: *mut c_void) -> c_int {
        // SAFETY: libc's function, with the caller's argument.
        let close = || unsafe { transmute::<usize, Close>(DLCLOSE.address())(library) };
        if SIGNALS.load(Ordering::Relaxed) == 0 {
            return close(); // there are no green threads
        }
        if !tls::is_known() {
            return 0; // it stays loaded: a thread may be looking a symbol up in it
        }
        unload::waiting(close).unwrap_or(0)
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_getattr_np(
        thread: libc::pthread_t,
        attributes: *mut libc::pthread_attr_t,
    ) -> c_int {
        // SAFETY: the caller's arguments; `attributes` is initialised before it is filled in.
        unsafe {
            match current::green().and_then(|green| green.stack()) {
                Some(bounds) if thread == libc::pthread_self() => {
                    libc::pthread_attr_init(attributes);
                    libc::pthread_attr_setguardsize(attributes, stack::GUARD);
                    let bottom = bounds.bottom as *mut libc::c_void;
                    libc::pthread_attr_setstack(attributes, bottom, bounds.top - bounds.bottom)
                }
                _ => transmute::<usize, GetAttributes>(GETATTR.address())(thread, attributes),
            }
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_getname_np(
        thread: libc::pthread_t,
        buffer: *mut c_char,
        length: usize,
    ) -> c_int {
        /// The kernel keeps so many bytes of a name.
        const KEPT: usize = 15;
        // SAFETY: the caller's arguments: `buffer` has `length` bytes.
        unsafe {
            match current::green().and_then(|green| green.name()) {
                Some(name) if thread == libc::pthread_self() => {
                    if length <= KEPT {
                        return libc::ERANGE;
                    }
                    let kept = name.len().min(KEPT);
                    buffer.copy_from_nonoverlapping(name.as_ptr().cast(), kept);
                    buffer.add(kept).write(0);
                    0
                }
                _ => transmute::<usize, GetName>(GETNAME.address())(thread, buffer, length),
            }
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_detach(thread: libc::pthread_t) -> c_int {
        // SAFETY: the caller's argument, unchanged.
        unsafe {
            match current::green() {
                Some(_) if thread == libc::pthread_self() => 0,
                _ => transmute::<usize, Detach>(DETACH.address())(thread),
            }
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_kill(thread: libc::pthread_t, signal: c_int) -> c_int {
        const LIBCS_OWN: [c_int; 2] = [32, 33];
        // SAFETY: the caller's arguments, unchanged. In libc the thread stays on its kernel thread.
        unsafe {
            let is_own = thread == libc::pthread_self() && current::green().is_some();
            if !is_own || LIBCS_OWN.contains(&signal) {
                return transmute::<usize, Kill>(KILL.address())(thread, signal);
            }
            let errno = libc::__errno_location();
            let before = *errno;
            let failed = libc::raise(signal) != 0;
            let after = core::mem::replace(&mut *errno, before);
            if failed { after } else { 0 }
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_mutexattr_setprotocol(
        attributes: *mut libc::pthread_mutexattr_t,
        protocol: c_int,
    ) -> c_int {
        if protocol != libc::PTHREAD_PRIO_NONE && current::green().is_some() {
            return libc::ENOTSUP;
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { transmute::<usize, SetProtocol>(SETPROTOCOL.address())(attributes, protocol) }
    }
}
