//! What tests ask of Linux itself: limits, users, the number of a kernel thread, signals that end processes.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

/// A `RLIMIT_…`: the libcs differ in its type.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// Sets a limit of this process, as far as it may be raised.
pub fn set_limit(which: Resource, soft: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls on a place that outlives them.
    unsafe {
        assert_eq!(libc::getrlimit(which, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(soft as libc::rlim_t);
        assert_eq!(libc::setrlimit(which, &limit), 0);
    }
}

/// Becomes a user whose number of kernel threads can be limited. Root's is not.
pub fn become_nobody() {
    // SAFETY: plain system calls; this process has one purpose.
    unsafe {
        if libc::geteuid() == 0 && libc::setresuid(65534, 65534, 65534) != 0 {
            return println!(
                "skipped: cannot leave root: {}",
                std::io::Error::last_os_error()
            );
        }
        libc::prctl(libc::PR_SET_DUMPABLE, 1); // keeps /proc/self readable
    }
}

pub fn gettid() -> i32 {
    // SAFETY: gettid takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// Whether there is an io_uring that waits for children (Linux 6.7).
pub fn ring_waits_for_children() -> bool {
    use greenthread::runtime::{Driver, Runtime};
    let ring = Runtime::builder().driver(Driver::IoUring).build();
    let has_ring = ring.is_ok_and(|runtime| runtime.driver() == Some(Driver::IoUring));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let is_new = (numbers.next(), numbers.next()) >= (Some(6), Some(7));
    let is_allowed = std::env::var_os("GREENTHREAD_DRIVER").is_none_or(|driver| driver != "epoll");
    has_ring && is_new && is_allowed
}

/// Leaves no core file, and ends the process after a while.
pub(super) fn die_quietly() {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // Before the test that waits for it gives up.
    let patience = super::patience().as_secs() as u32 / 6 * 5;
    // SAFETY: plain system calls; the limit outlives its call.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::alarm(patience);
    }
}

#[track_caller]
pub fn assert_signal(out: &Output, signal: i32) {
    assert_eq!(
        out.status.signal(),
        Some(signal),
        "signal: {}",
        super::said(out)
    );
}
