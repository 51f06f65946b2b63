//! Kernel threads: how one is started, its id, its name, its clocks, how it gives way or rests, and barriers between
//! kernel threads. [`observer`](super::observer) tells whether one is blocked.

use core::ffi::{c_int, c_void};
use core::fmt::Arguments;
use core::mem::MaybeUninit;
use std::io::Write;

use super::mm::page;
use super::{Plain, call, clock, plain};
use crate::engine::atomic::{AtomicBool, Ordering};

/// Starts a kernel thread that calls `main(argument)`, with libc's means alone. `detach_state` is libc's constant.
///
/// # Safety
/// `main` may be called so, on a thread of its own, and does not unwind.
pub(crate) unsafe fn start(
    stack_size: usize,
    detach_state: c_int,
    main: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> Result<libc::pthread_t, i32> {
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the attributes are initialised first and destroyed last; `main` may be called so.
    unsafe {
        let attributes: *mut libc::pthread_attr_t = attributes.as_mut_ptr();
        libc::pthread_attr_init(attributes);
        libc::pthread_attr_setdetachstate(attributes, detach_state);
        // An absurd size is refused, and the default remains.
        libc::pthread_attr_setstacksize(attributes, stack_size.next_multiple_of(page()));
        let error = libc::pthread_create(thread.as_mut_ptr(), attributes, main, argument);
        libc::pthread_attr_destroy(attributes);
        match error {
            0 => Ok(thread.assume_init()),
            error => Err(error),
        }
    }
}

/// Names the calling kernel thread. The system keeps 15 bytes of the name.
pub(crate) fn set_name(text: Arguments<'_>) {
    let mut name = [0u8; 32];
    let _ = (&mut name[..31]).write_fmt(text);
    let arguments = [libc::PR_SET_NAME as usize, name.as_ptr() as usize];
    // SAFETY: the kernel reads 16 bytes of the name at most, which has 32 and ends with a zero.
    let _ = unsafe { call(libc::SYS_prctl, &arguments) };
}

/// The bytes that [`own_name`] needs.
pub(crate) const NAME: usize = 16;

/// The name of the calling kernel thread, as far as the system keeps it; as std has it, that of the first
/// one is `main`.
pub(crate) fn own_name(buffer: &mut [u8; NAME]) -> &str {
    if plain(Plain::GETTID, &[]) == plain(Plain::GETPID, &[]) {
        return "main";
    }
    let place = buffer.as_mut_ptr() as usize;
    // SAFETY: the kernel writes 16 bytes, the buffer's.
    let _ = unsafe { call(libc::SYS_prctl, &[libc::PR_GET_NAME as usize, place]) };
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(NAME);
    core::str::from_utf8(&buffer[..end]).unwrap_or("")
}

/// The calling kernel thread's id.
pub(crate) fn id() -> i32 {
    plain(Plain::GETTID, &[]).unwrap_or(0) as i32 // it cannot fail
}

/// The calling kernel thread rests for `nanos`, or until a signal comes.
pub(crate) fn rest(nanos: u64) {
    let time = clock::timespec(nanos);
    // SAFETY: the kernel reads a valid time, and is given no place to write to.
    let _ = unsafe { call(libc::SYS_nanosleep, &[&raw const time as usize, 0]) };
}

/// Whether this process has a kernel thread `id`.
pub(crate) fn exists(id: i32) -> bool {
    const NOTHING: usize = 0;
    let process = std::process::id() as usize;
    plain(Plain::TGKILL, &[process, id as usize, NOTHING]) != Err(libc::ESRCH)
}

/// Whether the calling kernel thread has made a process that lives, or that nobody has waited for, however it did so.
/// Such a process may have asked for a signal when this kernel thread ends (PR_SET_PDEATHSIG).
pub(crate) fn has_children() -> bool {
    const ANY: usize = libc::P_ALL as usize;
    // A look at this thread's own children alone, of all kinds.
    const LOOK: i32 =
        libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WNOTHREAD | libc::__WALL;
    // SAFETY: the kernel is given no place to write to. (Where it refuses, nobody waits for a process here.)
    unsafe { call(libc::SYS_waitid, &[ANY, 0, 0, LOOK as usize, 0]) }.is_ok()
}

/// The clock of the CPU time used by kernel thread `id`, in the kernel's encoding.
pub(crate) fn cpu_clock(id: i32) -> libc::clockid_t {
    const PER_THREAD: i32 = 4;
    const SCHEDULER: i32 = 2;
    (!id << 3) | PER_THREAD | SCHEDULER
}

/// The clock of the CPU time that kernel thread `id` used in user mode: the kernel's number before that.
pub(crate) fn user_clock(id: i32) -> libc::clockid_t {
    cpu_clock(id) - 1
}

/// The fewest system interruptions: timers of this thread fire when due, not up to 50 µs later.
pub(crate) fn set_precise_timers() {
    // SAFETY: the kernel takes numbers.
    let _ = unsafe { call(libc::SYS_prctl, &[libc::PR_SET_TIMERSLACK as usize, 1]) };
}

/// Lets other kernel threads have the CPU.
pub(crate) fn give_way() {
    let _ = plain(Plain::SCHED_YIELD, &[]); // it cannot fail
}

/// The kernel has promised [`barrier`] to this process, and to those that it forks.
static HAS_BARRIER: AtomicBool = AtomicBool::new(false);

/// Asks that [`barrier`] be available. The answer is yes from the first yes on: other threads rely on it by then, and
/// must not hear a no because a filter has come meanwhile.
pub(crate) fn register_barrier() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    if !HAS_BARRIER.load(Ordering::Relaxed) {
        let asked = plain(Plain::MEMBARRIER, &[REGISTER_PRIVATE_EXPEDITED, 0, 0]);
        HAS_BARRIER.fetch_or(asked.is_ok(), Ordering::Relaxed);
    }
    HAS_BARRIER.load(Ordering::Relaxed)
}

/// A full memory barrier on every running thread of the process: the heavy half of an asymmetric
/// fence.
///
/// If the system refuses it although it was registered, the process ends: the other threads make the cheap half, and
/// nothing else interrupts each of them without their noticing.
pub(crate) fn barrier() {
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    if plain(Plain::MEMBARRIER, &[PRIVATE_EXPEDITED, 0, 0]).is_err() {
        super::print(
            b"greenthread: the system refuses membarrier, which it has allowed before (a seccomp filter?). Green \
              threads cannot go on without: allow it, or set GREENTHREAD_MODE=kernel\n",
        );
        std::process::abort()
    }
}
