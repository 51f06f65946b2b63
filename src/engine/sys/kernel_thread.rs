//! Kernel threads: how one is started, its id, its name, its clock, the call that it is blocked in, and
//! barriers between them. [`observer`](super::observer) tells whether one is blocked.

use core::ffi::{c_int, c_void};
use core::fmt::Arguments;
use core::mem::MaybeUninit;
use std::io::Write;

use super::mm::page;
use super::{Plain, call, plain};
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
    // SAFETY: the attributes are initialised first and destroyed last; the caller's promise.
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
    set(Attribute::Name(&name));
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

/// An attribute of a kernel thread, kept by the system.
enum Attribute<'a> {
    /// It ends with a NUL; the system reads 16 bytes at most.
    Name(&'a [u8; 32]),
    /// In nanoseconds.
    TimerSlack(usize),
}

/// Sets an attribute of the calling kernel thread.
fn set(attribute: Attribute<'_>) {
    let (option, value) = match attribute {
        Attribute::Name(name) => (libc::PR_SET_NAME, name.as_ptr() as usize),
        Attribute::TimerSlack(nanos) => (libc::PR_SET_TIMERSLACK, nanos),
    };
    // SAFETY: of a name the kernel reads 16 bytes at most; the other is a number.
    let _ = unsafe { call(libc::SYS_prctl, &[option as usize, value]) };
}

/// The calling kernel thread's id.
pub(crate) fn id() -> i32 {
    plain(Plain::GETTID, &[]).unwrap_or(0) as i32 // it cannot fail
}

/// The calling kernel thread rests for `nanos`.
pub(crate) fn rest(nanos: u64) {
    super::clock::sleep(nanos);
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

/// The clock of CPU time used by kernel thread `id` (the kernel's encoding: per-thread, scheduler's
/// count).
pub(crate) fn cpu_clock(id: i32) -> libc::clockid_t {
    const SCHEDULER: i32 = 2;
    (!id << 3) | PER_THREAD | SCHEDULER
}

/// The clock of the CPU time that it used in user mode.
pub(crate) fn user_clock(id: i32) -> libc::clockid_t {
    const USER: i32 = 1;
    (!id << 3) | PER_THREAD | USER
}

const PER_THREAD: i32 = 4;

/// A system call that a kernel thread is blocked in.
pub(crate) struct SystemCall {
    pub(crate) number: i64,
    arguments: [u64; 6],
    stack_pointer: u64,
    program_counter: u64,
}

impl SystemCall {
    /// From the text in `/proc`: the number, six arguments, the stack pointer and the program counter,
    /// all but the first in hexadecimal. Not from `running`, nor from `-1` and the latter two.
    pub(crate) fn parse(text: &[u8]) -> Option<SystemCall> {
        let mut words = core::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
        let mut values = [0; 8];
        for value in &mut values {
            *value = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        let [arguments @ .., stack_pointer, program_counter] = values;
        Some(SystemCall {
            number,
            arguments,
            stack_pointer,
            program_counter,
        })
    }

    /// One that is about to be made.
    pub(crate) fn new(number: i64, arguments: [u64; 6]) -> SystemCall {
        SystemCall {
            number,
            arguments,
            stack_pointer: 0,
            program_counter: 0,
        }
    }

    /// Where the thread goes on: its program counter and its stack pointer.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.program_counter as usize, self.stack_pointer as usize)
    }

    /// Whether it waits for as long as it takes, on a futex, for a lock on a file, for the other end of
    /// a FIFO or for a child, and begins anew if a signal interrupts it: nothing has come of it then.
    /// (A call that transfers data begins anew, too; but so would the time-out of its descriptor.)
    pub(crate) fn begins_anew(&self) -> bool {
        let [_, operation, _, timeout, ..] = self.arguments;
        match self.number {
            libc::SYS_futex => {
                let operation = operation as i32 & libc::FUTEX_CMD_MASK;
                matches!(operation, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) && timeout == 0
            }
            libc::SYS_fcntl => {
                matches!(operation as i32, libc::F_SETLKW | libc::F_OFD_SETLKW)
            }
            libc::SYS_flock | libc::SYS_openat | libc::SYS_wait4 | libc::SYS_waitid => true,
            _ => false,
        }
    }
}

/// The fewest system interruptions: timers of this thread fire when due, not up to 50 µs later.
pub(crate) fn set_precise_timers() {
    set(Attribute::TimerSlack(1));
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

#[cfg(test)]
mod tests {
    use super::SystemCall;

    fn parse(text: &str) -> Option<SystemCall> {
        SystemCall::parse(text.as_bytes())
    }

    #[test]
    fn a_system_call_is_read() {
        let number = |number: i64| format!("{number} ");
        let futex = &number(libc::SYS_futex);
        let (read, flock) = (&number(libc::SYS_read), &number(libc::SYS_flock));
        let fcntl = &number(libc::SYS_fcntl);
        let wait = format!("{futex}0x7f01 0x80 0x2 0x0 0x5 0x6 0x7ffe 0x55\n");
        let call = parse(&wait).unwrap();
        assert!(call.begins_anew() && call.number == libc::SYS_futex);
        for (other, waits) in [
            (wait.replace("0x80 ", "0x189 "), true), // FUTEX_WAIT_BITSET by the real clock
            (wait.replace("0x80 ", "0x81 "), false), // FUTEX_WAKE
            (wait.replace("0x80 ", "0x86 "), false), // FUTEX_LOCK_PI
            (wait.replace("0x0 ", "0x7ffd "), false), // until then
            (wait.replace(futex, read), false),
            (wait.replace(futex, flock), true),
            (wait.replace(futex, fcntl), false), // but not this one
            (wait.replace(futex, fcntl).replace("0x80 ", "0x7 "), true), // F_SETLKW
        ] {
            assert_eq!(parse(&other).unwrap().begins_anew(), waits, "{other}");
        }
        for nothing in ["running\n", "-1 0x7ffe 0x55\n", "202 0x1 0x80\n", ""] {
            assert!(parse(nothing).is_none(), "{nothing}");
        }
    }
}
