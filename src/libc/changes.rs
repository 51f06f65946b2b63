//! Calls that change the kernel thread that makes them: its CPUs, priority, credentials, namespaces, filters.
//!
//! On a green thread such a change would come to every thread that runs there later. So the thread stays on its kernel
//! thread from the call on, and the two end together ([`for_good`]). [`changes`] is the
//! table of these calls. Those with a function of libc's are here: the function is the system call alone (or
//! little more), so ours makes that, and looks for no function of libc's. The others come by `syscall(2)`, which the
//! feature `unmodified` interposes.
//!
//! Calls for another thread or process go through as they are, and so do those that set nothing. The name of a thread is the
//! green thread's own.

use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use super::macros::exported;
use super::{answered, fail, set_errno};
use crate::engine::hooks::{for_good, name, owner};
use crate::sys::{call as kernel_call, kernel_thread::id as kernel_thread_id, word};

/// Makes `call`, which is this system call; the thread that changes its kernel thread by it stays there.
pub(super) fn guard<T, E>(
    number: libc::c_long,
    arguments: &[usize],
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    match owner().is_some() && changes(number, arguments) {
        true => for_good(call),
        false => call(),
    }
}

/// Whether this system call changes the calling kernel thread, if it succeeds.
fn changes(number: libc::c_long, arguments: &[usize]) -> bool {
    const IOPRIO_WHO_PROCESS: usize = 1;
    const PTRACE_OF_OWN: [usize; 3] = [0, 16, 0x4206]; // TRACEME, ATTACH, SEIZE: the tracer is the kernel thread
    const SECCOMP_SETS: usize = 2; // modes strict and filter; above are questions
    const SESSION_KEYRINGS: [usize; 2] = [1, 14]; // KEYCTL_JOIN_SESSION_KEYRING, KEYCTL_SET_REQKEY_KEYRING
    const NONE: u32 = u32::MAX; // asks for the value that is set
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
        // A header that cannot be read is the kernel's to refuse.
        libc::SYS_capset => {
            word::look(argument(0) + size_of::<u32>()).is_ok_and(|process| is_own(process as usize))
        }
        libc::SYS_setfsuid | libc::SYS_setfsgid | libc::SYS_personality => {
            argument(0) as u32 != NONE
        }
        libc::SYS_prctl => sets(argument(0), argument(1)),
        libc::SYS_seccomp => {
            argument(0) < SECCOMP_SETS
                && argument(1) & libc::SECCOMP_FILTER_FLAG_TSYNC as usize == 0
        }
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
    const GET: usize = 0; // PR_SCHED_CORE_GET
    match option as i32 {
        libc::PR_CAP_AMBIENT => first != libc::PR_CAP_AMBIENT_IS_SET as usize,
        libc::PR_SCHED_CORE => first != GET,
        option => OPTIONS.contains(&option),
    }
}

/// lsm_set_self_attr.
const SET_LABELS: libc::c_long = 460;

/// By asm/prctl.h: GS, FS, CPUID, and the shadow stack (ENABLE, DISABLE, LOCK, UNLOCK).
#[cfg(target_arch = "x86_64")]
const SETS: [usize; 7] = [0x1001, 0x1002, 0x1012, 0x5001, 0x5002, 0x5003, 0x5004];

/// By linux/prctl.h, where libc's crate does not have them on all architectures.
const OPTIONS: [i32; 19] = [
    libc::PR_SET_PDEATHSIG,
    libc::PR_SET_KEEPCAPS,
    libc::PR_SET_SECCOMP,
    libc::PR_CAPBSET_DROP,
    libc::PR_SET_TSC,
    libc::PR_SET_SECUREBITS,
    libc::PR_SET_TIMERSLACK,
    libc::PR_MCE_KILL,
    libc::PR_SET_NO_NEW_PRIVS,
    53, // PR_SET_SPECULATION_CTRL
    50, // PR_SVE_SET_VL
    54, // PR_PAC_RESET_KEYS
    55, // PR_SET_TAGGED_ADDR_CTRL
    57, // PR_SET_IO_FLUSHER
    59, // PR_SET_SYSCALL_USER_DISPATCH
    60, // PR_PAC_SET_ENABLED_KEYS
    63, // PR_SME_SET_VL
    75, // PR_SET_SHADOW_STACK_STATUS
    76, // PR_LOCK_SHADOW_STACK_STATUS
];

/// Makes this system call, as libc's function of that name does.
///
/// # Safety
/// As the system call demands.
unsafe fn guarded(number: c_long, arguments: &[usize]) -> c_int {
    // SAFETY: the caller's promise.
    answered(guard(number, arguments, || unsafe {
        kernel_call(number, arguments)
    }))
}

/// Declares functions of libc's that are one system call each, of the same arguments.
macro_rules! changing {
    ($(fn $name:ident($($argument:ident: $Type:ty),*) = $number:ident;)*) => {
        exported! {
            $(fn $name($($argument: $Type),*) -> c_int {
                // SAFETY: the caller's arguments, of the system call that libc's function makes.
                unsafe { guarded(libc::$number, &[$($argument as usize),*]) }
            })*
        }
    };
}

changing! {
    fn sched_setaffinity(id: libc::pid_t, size: usize, cpus: *const libc::cpu_set_t) = SYS_sched_setaffinity;
    fn sched_setscheduler(id: libc::pid_t, policy: c_int, parameter: *const libc::sched_param) = SYS_sched_setscheduler;
    fn sched_setparam(id: libc::pid_t, parameter: *const libc::sched_param) = SYS_sched_setparam;
    fn sched_setattr(id: libc::pid_t, attributes: *mut c_void, flags: c_uint) = SYS_sched_setattr;
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
        let set = |now: c_int| {
            let arguments = [own[0], own[1], now.saturating_add(change) as usize];
            // SAFETY: numbers.
            guard(libc::SYS_setpriority, &arguments, || unsafe {
                kernel_call(libc::SYS_setpriority, &arguments)
            })
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
        let arguments = [request as usize, id, address, place];
        // SAFETY: the caller's arguments, and a word of ours.
        let call = || unsafe { kernel_call(libc::SYS_ptrace, &arguments) };
        match guard(libc::SYS_ptrace, &arguments, call) {
            Ok(_) if peeks => {
                set_errno(0);
                word
            }
            Ok(result) => result as c_long,
            Err(errno) => fail(errno).into(),
        }
    }

    // libc's has any number of arguments, and hands on four after the first.
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
        let number = option as usize;
        match name::prctl(number, a) {
            Some(answer) => answered(answer),
            // SAFETY: the caller's arguments, of the system call that libc's function makes.
            None => unsafe { guarded(libc::SYS_prctl, &[number, a, b, c, d]) },
        }
    }
}
