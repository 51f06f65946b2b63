//! The names of system calls, as strace has them: of those in which threads are found blocked. Others have a number.

/// Pairs of the number and the constant's name.
macro_rules! calls {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

const NAMED: &[(libc::c_long, &str)] = calls! {
    SYS_futex SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_recvfrom SYS_sendto SYS_recvmsg
    SYS_sendmsg SYS_accept SYS_accept4 SYS_connect SYS_sendfile SYS_splice SYS_openat SYS_fcntl SYS_flock SYS_ppoll
    SYS_pselect6 SYS_epoll_pwait SYS_epoll_pwait2 SYS_nanosleep SYS_clock_nanosleep SYS_wait4 SYS_waitid SYS_fsync
    SYS_fdatasync SYS_newfstatat SYS_getdents64 SYS_ioctl SYS_rt_sigtimedwait SYS_mmap SYS_munmap SYS_madvise
    SYS_sched_yield SYS_io_uring_enter
};

/// Calls that newer ones have superseded: younger architectures have only those.
#[cfg(target_arch = "x86_64")]
const SUPERSEDED: &[(libc::c_long, &str)] = calls! { SYS_poll SYS_select SYS_epoll_wait SYS_open };
#[cfg(not(target_arch = "x86_64"))]
const SUPERSEDED: &[(libc::c_long, &str)] = &[];

/// The name of system call `number`.
pub(crate) fn name(number: i64) -> String {
    let mut all = NAMED.iter().chain(SUPERSEDED);
    match all.find(|(known, _)| *known == number) {
        Some((_, constant)) => constant.trim_start_matches("SYS_").into(),
        None => format!("syscall {number}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn calls_have_names_or_numbers() {
        assert_eq!(super::name(libc::SYS_clock_nanosleep), "clock_nanosleep");
        assert_eq!(
            super::name(libc::SYS_kcmp),
            format!("syscall {}", libc::SYS_kcmp)
        );
    }
}
