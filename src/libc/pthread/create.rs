//! The life of a pthread, where it is a green thread: `pthread_create`, join, detach, exit. (`runtime::pthread` has the thread.)
//!
//! A program asks for it by [`adopt`](crate::thread::adopt) or by `GREENTHREAD_PTHREADS`. A pthread stays a kernel thread where
//! its attributes ask for what a green one has not: a stack of the program's, a guard of more than 64 KiB, CPUs, a scheduling
//! policy or a priority; in a forked child; in a signal handler; inside [`unhooked`](crate::unhooked).
//!
//! | call | for a green pthread |
//! |---|---|
//! | `pthread_create` | stack size, detach state and signal mask by the attributes, or libc's default ones |
//! | `pthread_join`, `pthread_tryjoin_np`, `pthread_timedjoin_np`, `pthread_clockjoin_np` | parks for the end |
//! | `pthread_detach` | by anyone |
//! | `gettid` | a number of its own, which the kernel does not know; no system call |
//! | `pthread_exit` | libc's: unwinds to [`call`], runs cleanup handlers and destructors on the way. After the first thread's, the process ends with the last of the program's threads |
//! | `thrd_create` and C11's others | the same; a sleep parks |

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use libc::{
    CLOCK_REALTIME, PTHREAD_CREATE_DETACHED, clockid_t, cpu_set_t, pid_t, pthread_attr_t,
    pthread_t, sigset_t, timespec,
};

use super::signals::{Interruption, heed};
use super::{Limit, as_c11, modules};
use crate::arch;
use crate::engine::hooks::pthread::{self, Attributes, Value};
use crate::engine::hooks::{GUARD_SIZE, directed, owner};
use crate::libc::{announced, is_hooked, is_on};
use crate::sys::clock::NEVER;
use crate::sys::signal::Mask;
use crate::sys::{die, kernel_thread};

// ==== attributes ====

unsafe extern "C" {
    fn pthread_attr_getdetachstate(from: *const pthread_attr_t, state: *mut c_int) -> c_int;
    fn pthread_attr_getstackaddr(from: *const pthread_attr_t, start: *mut *mut c_void) -> c_int;
    fn pthread_attr_getsigmask_np(from: *const pthread_attr_t, mask: *mut sigset_t) -> c_int;
    fn pthread_getattr_default_np(attributes: *mut pthread_attr_t) -> c_int;
}

/// What a green thread needs of the attributes; null: of the default ones. `None`: the thread is to be a kernel thread.
///
/// # Safety
/// The attributes are initialised.
unsafe fn read(from: *const pthread_attr_t) -> Option<Attributes> {
    // SAFETY: the caller's attributes, and places of ours. All zero is a value of each type.
    unsafe {
        if from.is_null() {
            let mut default = zeroed();
            let found = (pthread_getattr_default_np(&mut default) == 0).then(|| read(&default));
            libc::pthread_attr_destroy(&mut default);
            return found.flatten();
        }
        let (mut stack_size, mut guard, mut start) = (0, 0, null_mut());
        let (mut detach, mut inherits, mut policy) = (0, 0, 0);
        let (mut cpus, mut mask): (cpu_set_t, sigset_t) = (zeroed(), zeroed());
        let mut parameter: libc::sched_param = zeroed();
        libc::pthread_attr_getstacksize(from, &mut stack_size);
        libc::pthread_attr_getguardsize(from, &mut guard);
        pthread_attr_getstackaddr(from, &mut start);
        pthread_attr_getdetachstate(from, &mut detach);
        libc::pthread_attr_getinheritsched(from, &mut inherits);
        libc::pthread_attr_getschedpolicy(from, &mut policy);
        let has_mask = pthread_attr_getsigmask_np(from, &mut mask) == 0;
        // Attributes without CPUs of their own have all, and libc fails if there are more than the set has room for.
        let size = size_of::<cpu_set_t>();
        let has_all_cpus = libc::pthread_attr_getaffinity_np(from, size, &mut cpus) == 0
            && libc::CPU_COUNT(&cpus) as usize == 8 * size;
        libc::pthread_attr_getschedparam(from, &mut parameter);
        let has_policy = inherits == libc::PTHREAD_EXPLICIT_SCHED
            && (policy, parameter.sched_priority) != (libc::SCHED_OTHER, 0);
        let is_plain = start.is_null() && guard <= GUARD_SIZE && has_all_cpus && !has_policy;
        is_plain.then(|| Attributes {
            stack_size,
            is_detached: detach == PTHREAD_CREATE_DETACHED,
            mask: has_mask.then(|| (&raw const mask).cast::<Mask>().read()),
        })
    }
}

// ==== a thread's function ====

type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// A thread's function and its argument, and whether the function is C11's, which returns an `int`.
struct Work(Start, *mut c_void, bool);
// SAFETY: C hands them to the new thread.
unsafe impl Send for Work {}

/// libc's `__pthread_unwind_buf_t`, or longer: the longest has 216 bytes.
#[repr(C, align(16))]
struct CancelBuffer([usize; 32]);

#[repr(C)]
struct Ended {
    returned: usize,
    by_exit: usize,
}

thread_local! {
    /// What the thread has given to `pthread_exit`. A thread that ends in another way, before its function has, is cancelled.
    static GIVEN: Cell<usize> = const { Cell::new(CANCELED) };
}
/// pthread.h's `PTHREAD_CANCELED`.
const CANCELED: usize = usize::MAX;

#[unsafe(naked)]
unsafe extern "C" fn call(start: Start, argument: *mut c_void, buffer: *mut CancelBuffer) -> Ended {
    arch::call_as_pthread!()
}

/// Calls the function of a pthread; returns the thread's result.
///
/// # Safety
/// The function may be called so.
unsafe fn run(Work(start, argument, is_c11): Work) -> Value {
    let mut buffer = CancelBuffer([0; 32]);
    // SAFETY: the caller's promise; the buffer stays for the length of the call.
    let ended = unsafe { call(start, argument, &mut buffer) };
    let result = match ended.by_exit {
        0 if is_c11 => ended.returned as c_int as usize,
        0 => ended.returned,
        _ => GIVEN.get(),
    };
    Value(result as *mut c_void)
}

// ==== the calls ====

/// Makes a green thread, if the thread that calls this from `caller` is to make such. `None`: libc makes the thread.
///
/// # Safety
/// As `pthread_create`.
unsafe fn create_green(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    work: Work,
    caller: usize,
) -> Option<c_int> {
    let is_exempt = || modules::stay_kernel_threads(caller);
    let cluster = is_on().then(|| pthread::cluster_here(is_exempt))??;
    // SAFETY: C's promises.
    unsafe {
        let attributes = read(attributes)?;
        let created = pthread::create(cluster, &attributes, thread, move || run(work));
        // Threads that have not run yet have the memory: the caller may try again.
        let failed = |_| {
            crate::thread::Thread::yield_now();
            libc::EAGAIN
        };
        Some(created.map_or_else(failed, |()| 0))
    }
}

libc_functions! {
    fn pthread_create(
        thread: *mut pthread_t, attributes: *const pthread_attr_t, start: Start, argument: *mut c_void,
    ) -> c_int;
}

when_loaded!({
    pthread_create::REAL.find();
    // SAFETY: no attributes are the default ones.
    if let Some(common) = unsafe { read(null()) }.filter(|_| pthread::are_all()) {
        pthread::COMMON_SIZE.store(common.stack_size, Relaxed);
    }
    pthread::IS_OURS.store(
        libc::pthread_create as *const () == greenthread_pthread_create as *const (),
        Relaxed,
    );
    let _said = pthread::prepare(); // the start of the runtime says why not
});

/// `pthread_create`, by another name, too: see `with_caller`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C-unwind" fn greenthread_pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    unsafe extern "C-unwind" fn create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        start: Start,
        argument: *mut c_void,
        caller: usize,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let green = create_green(thread, attributes, Work(start, argument, false), caller);
            green.unwrap_or_else(|| {
                #[cfg(sim)]
                crate::sim::goes(crate::sim::KERNEL_THREAD);
                pthread_create::real(thread, attributes, start, argument)
            })
        }
    }
    arch::with_caller!(create)
}

/// Joins a green pthread until `deadline`, and gives `tell` the result. This is a cancellation point, which no signal ends.
fn join(thread: pthread_t, deadline: u64, tell: impl FnOnce(*mut c_void)) -> c_int {
    loop {
        if directed::pending() != 0 {
            heed(!0);
        }
        match directed::during(Interruption::Returns, || pthread::join(thread, deadline)) {
            Err(libc::EINTR) => {}
            Err(error) => return error,
            Ok(Value(result)) => {
                tell(result);
                return 0;
            }
        }
    }
}

/// Writes the result to the place, if there is one.
pub(super) fn to<T>(place: *mut T) -> impl FnOnce(T) {
    // SAFETY: the place of a caller of `pthread_join` or its kin.
    move |result| unsafe {
        if !place.is_null() {
            place.write(result);
        }
    }
}

/// Joins until `clock` shows `time`.
fn join_until(
    thread: pthread_t,
    place: *mut *mut c_void,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    let limit = Limit(clock, (!time.is_null()).then_some(time));
    match limit.deadline() {
        _ if !limit.has_clock() => libc::EINVAL,
        _ if time.is_null() => join(thread, NEVER, to(place)),
        // A time that has passed is none: the thread may have ended.
        Some(deadline) => join(thread, deadline.max(1), to(place)),
        // It is no time; libc looks at it when it has to wait.
        None => match join(thread, 0, to(place)) {
            libc::EBUSY => libc::EINVAL,
            answer => answer,
        },
    }
}

/// What `gettid` returns.
pub(in crate::libc) fn number() -> pid_t {
    pthread::own_number().map_or_else(kernel_thread::id, |number| number as pid_t)
}

#[cfg(not(sim))]
exported! {
    fn gettid() -> pid_t {
        number()
    }
}

// C11's types are those of pthreads; libc's functions of C11 call its own ones of pthreads.
choosing! {
    fn pthread_join(thread: pthread_t, place: *mut *mut c_void) -> c_int {
        pthread::is_ours(thread) => join(thread, NEVER, to(place)),
        // SAFETY: the caller's arguments.
        is_hooked() => loop {
            // SAFETY: the caller's arguments.
            let real = || unsafe { pthread_join::real(thread, place) };
            match directed::during(Interruption::Returns, || announced::join(thread, place, real)) {
                -1 => _ = heed(!0), // EINTR
                answer => break answer,
            }
        },
    }

    fn pthread_tryjoin_np(thread: pthread_t, place: *mut *mut c_void) -> c_int {
        pthread::is_ours(thread) => join(thread, 0, to(place)),
    }

    fn pthread_timedjoin_np(thread: pthread_t, place: *mut *mut c_void, time: *const timespec) -> c_int {
        pthread::is_ours(thread) => join_until(thread, place, CLOCK_REALTIME, time),
    }

    fn pthread_clockjoin_np(
        thread: pthread_t, place: *mut *mut c_void, clock: clockid_t, time: *const timespec,
    ) -> c_int {
        pthread::is_ours(thread) => join_until(thread, place, clock, time),
    }

    fn pthread_exit(value: *mut c_void) -> () {
        goes_on(value as usize) => (),
    }

    fn thrd_create(thread: *mut pthread_t, start: Start, argument: *mut c_void) -> c_int {
        // SAFETY: the caller's arguments.
        is_on() => unsafe {
            match create_green(thread, null(), Work(start, argument, true), 0) {
                Some(errno) => as_c11(errno),
                None => thrd_create::real(thread, start, argument),
            }
        },
    }

    fn thrd_join(thread: pthread_t, place: *mut c_int) -> c_int {
        pthread::is_ours(thread) => {
            as_c11(join(thread, NEVER, |result| to(place)(result as usize as c_int)))
        },
    }

    fn thrd_detach(thread: pthread_t) -> c_int {
        pthread::is_ours(thread) => as_c11(pthread::detach(thread)),
    }

    fn thrd_exit(result: c_int) -> () {
        goes_on(result as usize) => (),
    }

    fn thrd_yield() -> () {
        is_hooked() => crate::thread::Thread::yield_now(),
    }

    fn thrd_sleep(time: *const timespec, left: *mut timespec) -> c_int {
        // SAFETY: the caller's arguments.
        is_hooked() => match unsafe { announced::clock_nanosleep(CLOCK_REALTIME, 0, time, left) } {
            0 => 0,
            libc::EINTR => -1,
            _ => -2,
        },
    }
}

/// The calling thread is about to exit, with this value. False: in libc's function.
fn goes_on(value: usize) -> bool {
    match owner() {
        Some(_) if pthread::is_own() => GIVEN.set(value),
        Some(_) => die("pthread_exit in a thread that C has not made"),
        None if kernel_thread::id() == kernel_thread::process() => pthread::main_exits(),
        None => {}
    }
    false
}
