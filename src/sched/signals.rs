//! What of a program's signal calls concerns a thread that can move: three functions of libc,
//! interposed.
//!
//! - `pthread_sigmask`, `sigprocmask`: a thread that changes its mask takes it along. The call is
//!   libc's; afterwards the thread is marked, and `switch` saves its mask and restores the kernel
//!   thread's whenever it leaves.
//! - `sigaction`: a handler must not move to another kernel thread half way. While one runs, the
//!   mask differs and preemption declines; but a handler with SA_NODEFER and an empty mask runs
//!   with the mask unchanged. So the preemption signal is added to every handler's mask.
//!
//! The real functions are found by `dlsym(RTLD_NEXT)`. Where ours are not linked in (a shared
//! library), nothing is lost but these two courtesies: the signal handler notices masks too.

use core::ffi::c_int;

use crate::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::current;
use crate::green::Oddities;
use crate::sys::signal::{Mask, bit};

/// The preemption signals of all clusters.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// From now on `signal` preempts.
pub(crate) fn reserve(signal: i32) {
    SIGNALS.fetch_or(bit(signal), Ordering::Relaxed);
}

/// Whether `signal` preempts already.
pub(crate) fn is_reserved(signal: i32) -> bool {
    SIGNALS.load(Ordering::Relaxed) & bit(signal) != 0
}

/// A function of libc, found at its first use.
struct Real {
    name: &'static core::ffi::CStr,
    address: AtomicUsize,
}

impl Real {
    const fn new(name: &'static core::ffi::CStr) -> Real {
        Real {
            name,
            address: AtomicUsize::new(0),
        }
    }

    fn address(&self) -> usize {
        let known = self.address.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        // SAFETY: dlsym with a valid name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        if found == 0 {
            crate::sys::die("libc has no function of the name that it is asked for");
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

type SetMask = unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
type SetAction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

static PTHREAD_SIGMASK: Real = Real::new(c"pthread_sigmask");
static SIGPROCMASK: Real = Real::new(c"sigprocmask");
static SIGACTION: Real = Real::new(c"sigaction");

/// Calls the real function, and marks the thread if it asked for a change.
unsafe fn set_mask(
    real: &Real,
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: libc's function of that name; the arguments are the caller's.
    let result = unsafe { core::mem::transmute::<usize, SetMask>(real.address())(how, set, old) };
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

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: libc's function; `new` is valid or null, and so is its copy.
    unsafe {
        let real = core::mem::transmute::<usize, SetAction>(SIGACTION.address());
        let ours = SIGNALS.load(Ordering::Relaxed);
        let is_handler =
            !new.is_null() && !matches!((*new).sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        if !is_handler || ours == 0 {
            return real(signal, new, old);
        }
        let mut with_ours = *new;
        let mask: *mut Mask = (&raw mut with_ours.sa_mask).cast();
        *mask |= ours;
        real(signal, &with_ours, old)
    }
}
