//! Interposed functions of libc. They concern parts of a kernel thread that a green thread cannot
//! carry along.
//!
//! | function | what ours does beside libc's work |
//! |---|---|
//! | `pthread_sigmask`, `sigprocmask`, `sighold`, `sigrelse`, `sigblock`, `sigsetmask`, `setcontext`, `swapcontext` | the thread is marked: `switch` takes its mask along |
//! | `sigaltstack` | a green thread keeps its kernel thread's alternate stack: its own would stay behind when it moves |
//! | `pthread_getattr_np` | a green thread's stack is its own, and that of another one the other's; libc would ask the kernel about a thread id that is not one |
//! | `dlclose` | it waits for green threads that resolve symbols, too (`unload`) |
//! | `pthread_getname_np` | a green thread has its own name, not its kernel thread's, and another one has the other's (`name`) |
//! | `pthread_detach` | a green thread that detaches itself stays as it is: libc would note it in a control block that other threads have later |
//! | `pthread_kill`, `pthread_sigqueue` | a green thread signals its kernel thread when it signals itself: libc may name it by its thread id, which the kernel does not know. Another green thread is alive (signal 0), and can be sent nothing |
//! | `pthread_mutexattr_setprotocol` | refuses a green thread priority inheritance and ceilings: the kernel finds a mutex's owner by its id, which a green thread's is not |
//!
//! (`sigaction` and its kin: `handlers`. `fork` and its kin: `fork`.)
//!
//! `dlsym(RTLD_NEXT)` finds the real functions. Where ours are not found before libc's (`sys::names`), and in a static
//! program, which has no `dlsym`, there are no green threads.

use crate::engine::sys::real::Real;

/// Finds libc's functions: now, not in a forked child, where the loader's lock may be held for ever.
pub(crate) fn find() {
    for real in [
        &PTHREAD_SIGMASK,
        &SIGPROCMASK,
        &SIGHOLD,
        &SIGRELSE,
        &SIGBLOCK,
        &SIGSETMASK,
        &SETCONTEXT,
        &SWAPCONTEXT,
        &SIGALTSTACK,
        &GETATTR,
        &GETNAME,
        &DETACH,
        &KILL,
        &SIGQUEUE,
        &SETPROTOCOL,
        &DLCLOSE,
    ] {
        real.address();
    }
    super::pthreads::find();
}

static PTHREAD_SIGMASK: Real = Real::new(c"pthread_sigmask");
static SIGPROCMASK: Real = Real::new(c"sigprocmask");
static SIGHOLD: Real = Real::new(c"sighold");
static SIGRELSE: Real = Real::new(c"sigrelse");
static SIGBLOCK: Real = Real::new(c"sigblock");
static SIGSETMASK: Real = Real::new(c"sigsetmask");
static SETCONTEXT: Real = Real::new(c"setcontext");
static SWAPCONTEXT: Real = Real::new(c"swapcontext");
static SIGALTSTACK: Real = Real::new(c"sigaltstack");
static GETATTR: Real = Real::new(c"pthread_getattr_np");
static GETNAME: Real = Real::new(c"pthread_getname_np");
static DETACH: Real = Real::new(c"pthread_detach");
static KILL: Real = Real::new(c"pthread_kill");
static SIGQUEUE: Real = Real::new(c"pthread_sigqueue");
static SETPROTOCOL: Real = Real::new(c"pthread_mutexattr_setprotocol");
static DLCLOSE: Real = Real::new(c"dlclose");

#[cfg(interposes)]
mod functions {
    use core::ffi::{c_int, c_void};
    use core::mem::transmute;

    use super::*;
    use crate::engine::arch;
    use crate::engine::green::current;
    use crate::engine::sched::{handlers, unload};
    use crate::engine::tls;

    type SetMask = unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;

    /// Calls the real function, and marks the thread if it asked for a change.
    unsafe fn set_mask(
        real: &Real,
        how: c_int,
        set: *const libc::sigset_t,
        old: *mut libc::sigset_t,
    ) -> c_int {
        // SAFETY: libc's function of that name; the arguments are the caller's.
        let result = unsafe { transmute::<usize, SetMask>(real.address())(how, set, old) };
        if !set.is_null() {
            current::mask_changed();
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

    /// Declares functions that change the mask by a signal's number, or by a set of signals. The thread is marked after that: a mark that
    /// nothing has changed goes when it is preempted.
    macro_rules! setting {
        ($($name:ident = $real:ident;)*) => {$(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(signals: c_int) -> c_int {
                type Set = unsafe extern "C" fn(c_int) -> c_int;
                // SAFETY: libc's function of that name, with the caller's argument.
                let answer = unsafe { transmute::<usize, Set>($real.address())(signals) };
                current::mask_changed();
                answer
            }
        )*};
    }

    setting! {
        sighold = SIGHOLD;
        sigrelse = SIGRELSE;
        sigblock = SIGBLOCK;
        sigsetmask = SIGSETMASK;
    }

    /// Declares functions that mark the thread, and go on as libc's, which return elsewhere.
    macro_rules! changing {
        ($($name:ident = $real:ident;)*) => {$(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                extern "C" fn way() -> *const () {
                    current::mask_changed();
                    $real.address() as *const ()
                }
                arch::jump_where!(way)
            }
        )*};
    }

    changing! {
        setcontext = SETCONTEXT;
        swapcontext = SWAPCONTEXT;
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn dlclose(library: *mut c_void) -> c_int {
        // SAFETY: libc's function, with the caller's argument.
        let close = || unsafe { transmute::<usize, Close>(DLCLOSE.address())(library) };
        if !handlers::is_any_reserved() {
            return close(); // there are no green threads
        }
        if !tls::is_known() {
            return 0; // it stays loaded: a thread may be looking a symbol up in it
        }
        unload::waiting(close).unwrap_or(0)
    }
}

#[cfg(answers)]
mod answers {
    use core::ffi::{c_char, c_int};
    use core::mem::transmute;

    use super::*;
    use crate::engine::green::current;
    use crate::engine::inspect::epoch::ReadSection;
    use crate::engine::sched::name;
    use crate::engine::sched::pthreads::Who;
    use crate::engine::stack;
    use crate::engine::sys::{signal, word};

    type SetStack = unsafe extern "C" fn(*const libc::stack_t, *mut libc::stack_t) -> c_int;
    type GetName = unsafe extern "C" fn(libc::pthread_t, *mut c_char, usize) -> c_int;
    type Detach = unsafe extern "C" fn(libc::pthread_t) -> c_int;
    type Kill = unsafe extern "C" fn(libc::pthread_t, c_int) -> c_int;
    type Queue = unsafe extern "C" fn(libc::pthread_t, c_int, libc::sigval) -> c_int;
    type SetProtocol = unsafe extern "C" fn(*mut libc::pthread_mutexattr_t, c_int) -> c_int;
    type GetAttributes = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;

    #[unsafe(no_mangle)]
    unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
        // One that cannot be read is an error.
        let is_ignored = current::owner().is_some()
            && word::load(new.addr() & !3).is_ok()
            && word::load(new.addr().wrapping_add(size_of::<libc::stack_t>() - 1) & !3).is_ok();
        let new = if is_ignored { core::ptr::null() } else { new };
        // SAFETY: the caller's arguments, or a null that asks for no change.
        unsafe { transmute::<usize, SetStack>(SIGALTSTACK.address())(new, old) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_getattr_np(
        thread: libc::pthread_t,
        attributes: *mut libc::pthread_attr_t,
    ) -> c_int {
        // SAFETY: the caller's arguments; `attributes` is initialised before it is filled in.
        unsafe {
            match Who::is(thread).green().and_then(|green| green.stack()) {
                Some(bounds) => {
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
        let answered = match Who::is(thread) {
            Who::Own(green) => name::tell(green, buffer.addr(), length),
            Who::Other(green) => {
                let section = ReadSection::begin();
                let told = name::tell(green, buffer.addr(), length);
                section.end_without_dropping();
                told
            }
            Who::Libcs => None,
        };
        // SAFETY: the caller's arguments.
        let real =
            || unsafe { transmute::<usize, GetName>(GETNAME.address())(thread, buffer, length) };
        answered.unwrap_or_else(real)
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_detach(thread: libc::pthread_t) -> c_int {
        // SAFETY: the caller's argument, unchanged.
        unsafe {
            match current::owner() {
                Some(_) if thread == libc::pthread_self() => 0,
                _ => transmute::<usize, Detach>(DETACH.address())(thread),
            }
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_kill(thread: libc::pthread_t, signal: c_int) -> c_int {
        let raise = || {
            // SAFETY: the thread's own `errno`. In libc the thread stays on its kernel thread.
            unsafe {
                let errno = libc::__errno_location();
                let before = *errno;
                let failed = libc::raise(signal) != 0;
                let after = core::mem::replace(&mut *errno, before);
                if failed { after } else { 0 }
            }
        };
        // SAFETY: the caller's arguments, unchanged.
        let real = || unsafe { transmute::<usize, Kill>(KILL.address())(thread, signal) };
        send(thread, signal, raise, real)
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_sigqueue(
        thread: libc::pthread_t,
        signal: c_int,
        value: libc::sigval,
    ) -> c_int {
        let queue = || {
            let _off = current::preemption_off();
            signal::queue_to_self(signal, value).err().unwrap_or(0)
        };
        // SAFETY: the caller's arguments, unchanged.
        let real =
            || unsafe { transmute::<usize, Queue>(SIGQUEUE.address())(thread, signal, value) };
        send(thread, signal, queue, real)
    }

    /// Sends a signal: to the calling green thread by `to_self`, to a kernel thread by `real`.
    fn send(
        thread: libc::pthread_t,
        signal: c_int,
        to_self: impl FnOnce() -> c_int,
        real: impl FnOnce() -> c_int,
    ) -> c_int {
        const LIBCS_OWN: [c_int; 2] = [32, 33];
        match Who::is(thread) {
            _ if LIBCS_OWN.contains(&signal) => real(),
            Who::Libcs => real(),
            Who::Own(_) => to_self(),
            // It lives. What it may be sent would come to whatever thread its kernel thread runs then.
            Who::Other(_) if signal == 0 => 0,
            Who::Other(_) if (1..=libc::SIGRTMAX()).contains(&signal) => libc::ENOTSUP,
            Who::Other(_) => libc::EINVAL,
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_mutexattr_setprotocol(
        attributes: *mut libc::pthread_mutexattr_t,
        protocol: c_int,
    ) -> c_int {
        if protocol != libc::PTHREAD_PRIO_NONE && current::owner().is_some() {
            return libc::ENOTSUP;
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { transmute::<usize, SetProtocol>(SETPROTOCOL.address())(attributes, protocol) }
    }
}
