//! Functions of libc's that ask about a thread, or change it, where the kernel would mean the kernel thread.
//!
//! **Pthreads.** A pthread is the address of a control block, and a green thread has one; but the kernel does not know the
//! thread id in it. libc's functions that ask the kernel about that id fail, or mean another thread. Here are those that say
//! something else; [`Who`] knows whose pthread one is. (`docs/unmodified.md` has the table.)
//!
//! | function | on a green thread |
//! |---|---|
//! | `pthread_getattr_np` | has its own stack |
//! | `pthread_getname_np`, `pthread_setname_np` | are about its own name, not its kernel thread's |
//! | `pthread_getcpuclockid` | gives a clock of its own |
//! | `pthread_setaffinity_np`, `pthread_setschedparam`, `pthread_setschedprio` | change its kernel thread, where it stays; of another thread they change nothing |
//! | `pthread_getaffinity_np`, `pthread_getschedparam` | answer for the kernel thread that ran it last |
//! | `pthread_detach` | leaves one that detaches itself as it is: libc would note it in a control block that other threads have later |
//! | `pthread_kill`, `pthread_sigqueue` | signal its kernel thread when it signals itself. Another green thread is alive (signal 0); one that C has made gets the signal (`pthread::signals`) |
//! | `pthread_mutexattr_setprotocol` | refuses priority inheritance and ceilings: the kernel finds a mutex's owner by its id |
//!
//! **Changes** of the kernel thread that makes the call: its CPUs, priority, credentials, namespaces, filters. Such a change
//! would come to every green thread that runs there later. So the green thread stays on its kernel thread from the call on, and
//! the two end together ([`for_good`]). [`changes`] is the table of these calls. Those with a function of libc's are here: the
//! function is the system call alone (or little more), so ours makes the system call, and looks for no function of libc's. The
//! others come by `syscall(2)`, which the feature `unmodified` interposes. Calls for another thread or process go through as
//! they are, and so do those that set nothing. The name of a thread is the green thread's own.
//!
//! **Children**: `vfork`, `_Fork`, `clone`. A child with a copy of the memory is told that it has one thread, and in a child that
//! shares the memory the thread is hidden (`sched::fork`). `fork` calls the handlers of `pthread_atfork`, so it is libc's own.
//!
//! **CPU time** of a green thread: `clock_gettime`, `clock_getres`, `getrusage`. How it is measured: `sched::cpu_time`.
//! `clock_gettime` is on the way of every `Instant`: for another clock than a thread's, ours compares the number and goes on to
//! libc's (`sys::clock`), which the runtime's own questions come to at once.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{clockid_t, cpu_set_t, pid_t, pthread_attr_t, pthread_t, sched_param, timespec};

use super::{Answer, answered, errno, fail, set_errno};
use crate::atomic::Ordering::Relaxed;
use crate::engine::facade::{is_forked_child, preemption_off};
#[cfg(hooks)]
use crate::engine::hooks::pthread;
use crate::engine::hooks::{
    GUARD_SIZE, Who, after_vfork, before_vfork, for_good, owner, prctl_of_green, reveal_all,
    thread_clock,
};
use crate::sys::{
    call as kernel_call, clock, kernel_thread::id as kernel_thread_id, signal::queue_to_self, word,
};

/// Sends a signal: to the calling green thread by `to_self`, to a kernel thread by `real`.
fn send(
    thread: pthread_t,
    signal: c_int,
    to_self: impl FnOnce() -> c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    const LIBCS_OWN: [c_int; 2] = [32, 33];
    match Who::is(thread) {
        _ if LIBCS_OWN.contains(&signal) => real(),
        // One that has ended, and was not joined yet.
        #[cfg(hooks)]
        Who::Libcs if pthread::is_ours(thread) => match signal {
            0..=64 => 0,
            _ => libc::EINVAL,
        },
        Who::Libcs => real(),
        Who::Own(_) => to_self(),
        // The thread lives.
        Who::Other(_) if signal == 0 => 0,
        Who::Other(_) if (1..=libc::SIGRTMAX()).contains(&signal) => {
            #[cfg(hooks)]
            if pthread::is_ours(thread) {
                super::pthread::signals::send(thread, signal);
                return 0;
            }
            libc::ENOTSUP
        }
        Who::Other(_) => libc::EINVAL,
    }
}

/// The system call's result as the functions of pthreads give it.
fn answer(result: Answer) -> c_int {
    result.err().unwrap_or(0)
}

/// A change of the kernel thread of `thread`, by a system call that has the kernel thread as its first argument; `real`
/// makes libc's call.
///
/// # Safety
/// As the system call demands.
unsafe fn change(
    thread: pthread_t,
    number: c_long,
    [first, second]: [usize; 2],
    real: impl FnOnce() -> c_int,
) -> c_int {
    const CALLING: usize = 0;
    match Who::is(thread) {
        // SAFETY: the arguments are those that the caller vouches for; they are made about the calling thread.
        Who::Own(_) => answer(unsafe { guarded(number, &[CALLING, first, second]) }),
        // Another thread cannot be kept on its kernel thread from here.
        Who::Other(_) => libc::ENOTSUP,
        Who::Libcs => real(),
    }
}

interposed! {
    fn pthread_getattr_np(thread: pthread_t, attributes: *mut pthread_attr_t) -> c_int
    where real() {
        let Some(stack) = Who::is(thread).green().and_then(|green| green.stack()) else {
            return real();
        };
        let (bounds, is_detached) = (stack.bounds, stack.joinable.is_detached());
        // SAFETY: the caller's place for attributes, which are initialised before they are filled in.
        unsafe {
            libc::pthread_attr_init(attributes);
            libc::pthread_attr_setguardsize(attributes, GUARD_SIZE);
            libc::pthread_attr_setdetachstate(attributes, c_int::from(is_detached));
            let bottom = bounds.bottom as *mut c_void;
            libc::pthread_attr_setstack(attributes, bottom, bounds.top - bounds.bottom)
        }
    }

    fn pthread_getname_np(thread: pthread_t, buffer: *mut c_char, length: usize) -> c_int
    where real() {
        Who::is(thread).tell_name(buffer.addr(), length).unwrap_or_else(real)
    }

    fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int where real() {
        // SAFETY: the caller's text, which ends with a NUL.
        let length = || unsafe { libc::strlen(name) };
        Who::is(thread).set_name(name.addr(), length).unwrap_or_else(real)
    }

    fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int where real() {
        let Some(found) = Who::is(thread).clock() else {
            return real();
        };
        // SAFETY: the caller's place.
        unsafe { *clock = found };
        0
    }

    fn pthread_detach(thread: pthread_t) -> c_int where real() {
        match Who::is(thread) {
            #[cfg(hooks)]
            _ if pthread::is_ours(thread) => pthread::detach(thread),
            // libc would note it in a control block that other threads have later.
            Who::Own(_) => 0,
            _ => real(),
        }
    }

    fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int where real() {
        let raise = || {
            let before = errno();
            // SAFETY: a number. In libc the thread stays on its kernel thread.
            let failed = unsafe { libc::raise(signal) } != 0;
            let after = errno();
            set_errno(before);
            if failed { after } else { 0 }
        };
        send(thread, signal, raise, real)
    }

    fn pthread_sigqueue(thread: pthread_t, signal: c_int, value: libc::sigval) -> c_int
    where real() {
        let queue = || {
            let _off = preemption_off();
            queue_to_self(signal, value).err().unwrap_or(0)
        };
        send(thread, signal, queue, real)
    }

    fn pthread_mutexattr_setprotocol(
        attributes: *mut libc::pthread_mutexattr_t, protocol: c_int,
    ) -> c_int where real() {
        let is_for_green = owner().is_some();
        #[cfg(hooks)]
        let is_for_green = is_for_green || pthread::are_all();
        if protocol != libc::PTHREAD_PRIO_NONE && is_for_green { libc::ENOTSUP } else { real() }
    }

    fn pthread_setaffinity_np(thread: pthread_t, size: usize, cpus: *const cpu_set_t) -> c_int
    where real() {
        // SAFETY: the caller's set is of that size.
        unsafe { change(thread, libc::SYS_sched_setaffinity, [size, cpus as usize], real) }
    }

    fn pthread_setschedparam(
        thread: pthread_t, policy: c_int, parameter: *const sched_param,
    ) -> c_int where real() {
        let arguments = [policy as usize, parameter as usize];
        // SAFETY: the caller's parameter.
        unsafe { change(thread, libc::SYS_sched_setscheduler, arguments, real) }
    }

    fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int where real() {
        let parameter = sched_param { sched_priority: priority };
        // SAFETY: a parameter of ours.
        unsafe { change(thread, libc::SYS_sched_setparam, [&raw const parameter as usize, 0], real) }
    }

    fn pthread_getaffinity_np(thread: pthread_t, size: usize, cpus: *mut cpu_set_t) -> c_int
    where real() {
        let Some(asked) = Who::is(thread).kernel_thread() else {
            return real();
        };
        let arguments = [asked, size.min(c_int::MAX as usize), cpus as usize];
        // SAFETY: the caller's set is of that size, and the kernel has checked the part of the set that it has written.
        unsafe {
            let written = kernel_call(libc::SYS_sched_getaffinity, &arguments);
            if let Ok(written) = written {
                cpus.cast::<u8>().add(written).write_bytes(0, size - written);
            }
            answer(written)
        }
    }

    fn pthread_getschedparam(
        thread: pthread_t, policy: *mut c_int, parameter: *mut sched_param,
    ) -> c_int where real() {
        let Some(asked) = Who::is(thread).kernel_thread() else {
            return real();
        };
        // SAFETY: the caller's places.
        unsafe {
            let found = kernel_call(libc::SYS_sched_getparam, &[asked, parameter as usize])
                .and_then(|_| kernel_call(libc::SYS_sched_getscheduler, &[asked]));
            if let Ok(found) = found {
                *policy = found as c_int;
            }
            answer(found)
        }
    }
}

/// Makes `call`, which is this system call; the thread that changes its kernel thread by it stays there.
pub(super) fn guard(number: c_long, arguments: &[usize], call: impl FnOnce() -> Answer) -> Answer {
    match owner().is_some() && changes(number, arguments) {
        true => for_good(call),
        false => call(),
    }
}

/// Makes this system call; see [`guard`].
///
/// # Safety
/// As the system call demands.
unsafe fn guarded(number: c_long, arguments: &[usize]) -> Answer {
    // SAFETY: the caller vouches for the arguments.
    guard(number, arguments, || unsafe {
        kernel_call(number, arguments)
    })
}

/// Whether this system call changes the calling kernel thread, if it succeeds.
fn changes(number: c_long, arguments: &[usize]) -> bool {
    const IOPRIO_WHO_PROCESS: usize = 1;
    const PTRACE_OF_OWN: [usize; 3] = [0, 16, 0x4206]; // TRACEME, ATTACH, SEIZE: the tracer is the kernel thread
    const SECCOMP_SETS: usize = 2; // modes strict and filter; above are questions
    const TSYNC: usize = libc::SECCOMP_FILTER_FLAG_TSYNC as usize;
    const SESSION_KEYRINGS: [usize; 2] = [1, 14]; // KEYCTL_JOIN_SESSION_KEYRING, KEYCTL_SET_REQKEY_KEYRING
    const NONE: u32 = u32::MAX; // asks for the value that is set
    /// By asm/prctl.h: GS, FS, CPUID, and the shadow stack (ENABLE, DISABLE, LOCK, UNLOCK).
    #[cfg(target_arch = "x86_64")]
    const SETS: [usize; 7] = [0x1001, 0x1002, 0x1012, 0x5001, 0x5002, 0x5003, 0x5004];
    const SET_LABELS: c_long = 460; // lsm_set_self_attr
    let argument = |i: usize| arguments.get(i).copied().unwrap_or(0);
    let is_own = |id: usize| id as i32 == 0 || id as i32 == kernel_thread_id();
    match number {
        libc::SYS_sched_setaffinity
        | libc::SYS_sched_setscheduler
        | libc::SYS_sched_setparam
        | libc::SYS_sched_setattr => is_own(argument(0)),
        libc::SYS_setpriority => argument(0) as u32 == libc::PRIO_PROCESS && is_own(argument(1)),
        libc::SYS_ioprio_set => argument(0) == IOPRIO_WHO_PROCESS && is_own(argument(1)),
        libc::SYS_perf_event_open => argument(1) as i32 == 0,
        // If the header cannot be read, the kernel refuses the call, and nothing changes.
        libc::SYS_capset => word::look(argument(0) + size_of::<u32>())
            .is_some_and(|process| is_own(process as usize)),
        libc::SYS_setfsuid | libc::SYS_setfsgid | libc::SYS_personality => {
            argument(0) as u32 != NONE
        }
        libc::SYS_prctl => sets(argument(0), argument(1)),
        libc::SYS_seccomp => argument(0) < SECCOMP_SETS && argument(1) & TSYNC == 0,
        libc::SYS_ptrace => PTRACE_OF_OWN.contains(&argument(0)),
        libc::SYS_keyctl => SESSION_KEYRINGS.contains(&argument(0)),
        // libc's functions of these names change the whole process.
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setgroups => true,
        libc::SYS_unshare
        | libc::SYS_setns
        | libc::SYS_landlock_restrict_self
        | libc::SYS_set_mempolicy
        | SET_LABELS => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_arch_prctl => SETS.contains(&argument(0)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_ioperm | libc::SYS_iopl | libc::SYS_set_thread_area => true,
        _ => false,
    }
}

/// Whether this `prctl` sets something of the calling kernel thread's.
fn sets(option: usize, first: usize) -> bool {
    // By linux/prctl.h; libc's crate does not have all of these on all architectures.
    // PR_SET_PDEATHSIG, _KEEPCAPS, _SECCOMP, _TSC, _SECUREBITS, _TIMERSLACK, _NO_NEW_PRIVS, _SPECULATION_CTRL,
    // _TAGGED_ADDR_CTRL, _IO_FLUSHER, _SYSCALL_USER_DISPATCH, _SHADOW_STACK_STATUS
    const PR_SET: [i32; 12] = [1, 8, 22, 26, 28, 29, 38, 53, 55, 57, 59, 75];
    // PR_CAPBSET_DROP, MCE_KILL, SVE_SET_VL, PAC_RESET_KEYS, PAC_SET_ENABLED_KEYS, SME_SET_VL, LOCK_SHADOW_STACK_STATUS
    const OTHERS: [i32; 7] = [24, 33, 50, 54, 60, 63, 76];
    const SCHED_CORE_GET: usize = 0;
    match option as i32 {
        libc::PR_CAP_AMBIENT => first != libc::PR_CAP_AMBIENT_IS_SET as usize,
        libc::PR_SCHED_CORE => first != SCHED_CORE_GET,
        option => PR_SET.contains(&option) || OTHERS.contains(&option),
    }
}

/// Declares functions of libc's that are one system call each, of the same arguments.
macro_rules! changing {
    ($(fn $name:ident($($argument:ident: $Type:ty),*) = $number:ident;)*) => {
        exported! {
            $(fn $name($($argument: $Type),*) -> c_int {
                // SAFETY: the caller's arguments, of the system call that libc's function makes.
                answered(unsafe { guarded(libc::$number, &[$($argument as usize),*]) }) as c_int
            })*
        }
    };
}

changing! {
    fn sched_setaffinity(id: pid_t, size: usize, cpus: *const cpu_set_t) = SYS_sched_setaffinity;
    fn sched_setscheduler(id: pid_t, policy: c_int, parameter: *const sched_param) = SYS_sched_setscheduler;
    fn sched_setparam(id: pid_t, parameter: *const sched_param) = SYS_sched_setparam;
    fn sched_setattr(id: pid_t, attributes: *mut c_void, flags: c_uint) = SYS_sched_setattr;
    fn setpriority(which: c_uint, id: libc::id_t, nice: c_int) = SYS_setpriority;
    fn unshare(flags: c_int) = SYS_unshare;
    fn setns(descriptor: c_int, kind: c_int) = SYS_setns;
    fn setfsuid(id: libc::uid_t) = SYS_setfsuid;
    fn setfsgid(id: libc::gid_t) = SYS_setfsgid;
    fn capset(header: *mut c_void, data: *const c_void) = SYS_capset;
    fn personality(persona: c_ulong) = SYS_personality;
}

#[cfg(target_arch = "x86_64")]
changing! {
    fn arch_prctl(code: c_int, address: c_ulong) = SYS_arch_prctl;
    fn ioperm(from: c_ulong, count: c_ulong, is_on: c_int) = SYS_ioperm;
    fn iopl(level: c_int) = SYS_iopl;
}

exported! {
    fn nice(change: c_int) -> c_int {
        let own = [libc::PRIO_PROCESS as usize, 0];
        // The kernel answers with a number that is never negative.
        // SAFETY: numbers.
        let now = || unsafe { kernel_call(libc::SYS_getpriority, &own) }.map(|found| 20 - found as c_int);
        // SAFETY: numbers.
        let set = |now: c_int| unsafe {
            guarded(libc::SYS_setpriority, &[own[0], own[1], now.saturating_add(change) as usize])
        };
        match now().and_then(set).and_then(|_| now()) {
            Ok(priority) => priority,
            Err(libc::EACCES) => fail(libc::EPERM), // as libc says
            Err(errno) => fail(errno),
        }
    }

    fn ptrace(request: c_uint, id: usize, address: usize, data: usize) -> c_long {
        /// PTRACE_PEEKTEXT, PTRACE_PEEKDATA and PTRACE_PEEKUSER: libc's return the word that the kernel writes.
        const PEEKS: core::ops::RangeInclusive<c_uint> = 1..=3;
        let mut word: c_long = 0;
        let peeks = PEEKS.contains(&request);
        let place = if peeks { &raw mut word as usize } else { data };
        // SAFETY: the caller's arguments, and a word of ours.
        match unsafe { guarded(libc::SYS_ptrace, &[request as usize, id, address, place]) } {
            Ok(_) if peeks => {
                set_errno(0);
                word
            }
            result => answered(result),
        }
    }

    // libc's function takes any number of arguments, and hands on four after the first.
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
        let number = option as usize;
        // SAFETY: the caller's arguments, of the system call that libc's function makes.
        let kernels = || unsafe { guarded(libc::SYS_prctl, &[number, a, b, c, d]) };
        answered(prctl_of_green(number, a).unwrap_or_else(kernels)) as c_int
    }
}

/// The system call, or the answer for a green thread in its place, as libc's functions return it.
///
/// # Safety
/// As the system call demands.
unsafe fn time_of(number: c_long, first: c_int, place: usize) -> c_int {
    let arguments = [first as usize, place];
    // SAFETY: the caller vouches for the place.
    unsafe {
        let green = thread_clock(number, &arguments);
        answered(green.unwrap_or_else(|| kernel_call(number, &arguments))) as c_int
    }
}

libc_functions! {
    fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int;
}

when_loaded!(clock::GETTIME.store(clock_gettime::REAL.find(), Relaxed));

exported! {
    fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
        let is_of_thread = clock == libc::CLOCK_THREAD_CPUTIME_ID || clock < 0;
        #[cfg(sim)]
        let is_of_thread = is_of_thread && !crate::sim::is_simulated();
        // SAFETY: the caller's place.
        unsafe {
            match is_of_thread {
                false => clock::get(clock, time),
                true => time_of(libc::SYS_clock_gettime, clock, time as usize),
            }
        }
    }

    fn clock_getres(clock: clockid_t, time: *mut timespec) -> c_int {
        // SAFETY: the caller's place.
        unsafe { time_of(libc::SYS_clock_getres, clock, time as usize) }
    }

    fn getrusage(whose: c_int, usage: *mut libc::rusage) -> c_int {
        // SAFETY: the caller's place.
        unsafe { time_of(libc::SYS_getrusage, whose, usage as usize) }
    }
}

type Start = extern "C" fn(*mut c_void) -> c_int;

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn vfork() -> libc::pid_t {
    crate::arch::vfork!(before_vfork, after_vfork)
}

interposed! {
    fn _Fork() -> libc::pid_t where real() {
        #[cfg(sim)]
        crate::sim::goes("starts a process");
        let pid = real();
        if pid == 0 {
            is_forked_child();
        }
        pid
    }

    // The last three arguments may be missing. Then libc's function does not look at them.
    fn clone(
        start: Start, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent: *mut libc::pid_t, thread_pointer: *mut c_void, child: *mut libc::pid_t,
    ) -> c_int where real(start, argument) {
        if flags & libc::CLONE_VM == 0 {
            // The child reads its own copy of this pair.
            let mut begin = (start, argument);
            return real(begin_copy, (&raw mut begin).cast());
        }
        if flags & (libc::CLONE_THREAD | libc::CLONE_SETTLS) != 0 {
            return real(start, argument);
        }
        let was_seen = before_vfork();
        let pid = real(start, argument);
        if was_seen && (pid < 0 || flags & libc::CLONE_VFORK != 0) {
            reveal_all();
        }
        pid
    }
}

extern "C" fn begin_copy(begin: *mut c_void) -> c_int {
    is_forked_child();
    // SAFETY: the child's copy of what `clone` has put there.
    let (start, argument) = unsafe { *begin.cast::<(Start, *mut c_void)>() };
    start(argument)
}
