//! The system calls in which threads were blocked when the monitor took their processors: a count for
//! each number. A user who reads them sees which calls still hold kernel threads.

use core::fmt;

use crate::engine::atomic::{AtomicU64, Ordering};
use crate::engine::sys::observer::Doing;

/// Numbers of system calls are below this, on all kernels so far.
const NUMBERS: usize = 512;
/// How many of them a user gets to see.
const SHOWN: usize = 10;

/// How often threads were blocked in each call.
pub(crate) struct BlockedCalls([AtomicU64; NUMBERS]);

impl BlockedCalls {
    pub(crate) fn new() -> BlockedCalls {
        BlockedCalls([const { AtomicU64::new(0) }; NUMBERS])
    }

    /// Counts a thread that was seen `doing` this when it lost its processor.
    pub(super) fn note(&self, doing: &Doing) {
        if let Doing::Call(call) = doing
            && let Some(count) = usize::try_from(call.number)
                .ok()
                .and_then(|n| self.0.get(n))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The names of the calls in which threads were blocked most often, and how often, in that order.
    pub(crate) fn most_frequent(&self) -> Vec<(String, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let mut named = Vec::<(String, u64)>::new();
        for (number, count) in counts.enumerate().filter(|(_, count)| *count != 0) {
            // Several numbers have one name.
            let name = Name(number as i64).to_string();
            match named.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += count,
                None => named.push((name, count)),
            }
        }
        named.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        named.truncate(SHOWN);
        named
    }
}

/// A system call's name, of those that block.
pub(super) struct Name(pub(super) i64);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            libc::SYS_futex => "futex",
            libc::SYS_read => "read",
            libc::SYS_write => "write",
            libc::SYS_readv => "readv",
            libc::SYS_writev => "writev",
            libc::SYS_recvfrom => "recvfrom",
            libc::SYS_sendto => "sendto",
            libc::SYS_accept | libc::SYS_accept4 => "accept",
            libc::SYS_connect => "connect",
            libc::SYS_recvmsg => "recvmsg",
            libc::SYS_sendmsg => "sendmsg",
            libc::SYS_sendfile => "sendfile",
            libc::SYS_splice => "splice",
            libc::SYS_openat => "open",
            libc::SYS_fcntl => "fcntl",
            libc::SYS_poll | libc::SYS_ppoll => "poll",
            libc::SYS_select | libc::SYS_pselect6 => "select",
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => "epoll_wait",
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => "nanosleep",
            libc::SYS_wait4 | libc::SYS_waitid => "wait",
            libc::SYS_flock => "flock",
            libc::SYS_fsync | libc::SYS_fdatasync => "fsync",
            libc::SYS_open => "open",
            libc::SYS_stat => "stat",
            libc::SYS_fstat => "fstat",
            libc::SYS_lstat => "lstat",
            libc::SYS_newfstatat => "newfstatat",
            libc::SYS_statx => "statx",
            libc::SYS_access => "access",
            libc::SYS_pread64 => "pread64",
            libc::SYS_pwrite64 => "pwrite64",
            libc::SYS_preadv => "preadv",
            libc::SYS_pwritev => "pwritev",
            libc::SYS_mmap => "mmap",
            libc::SYS_mprotect => "mprotect",
            libc::SYS_munmap => "munmap",
            libc::SYS_mremap => "mremap",
            libc::SYS_madvise => "madvise",
            libc::SYS_msync => "msync",
            libc::SYS_brk => "brk",
            libc::SYS_close => "close",
            libc::SYS_socket => "socket",
            libc::SYS_socketpair => "socketpair",
            libc::SYS_bind => "bind",
            libc::SYS_listen => "listen",
            libc::SYS_shutdown => "shutdown",
            libc::SYS_ioctl => "ioctl",
            libc::SYS_clone => "clone",
            libc::SYS_clone3 => "clone3",
            libc::SYS_fork => "fork",
            libc::SYS_vfork => "vfork",
            libc::SYS_execve => "execve",
            libc::SYS_sched_yield => "sched_yield",
            libc::SYS_rename => "rename",
            libc::SYS_renameat2 => "renameat2",
            libc::SYS_mkdir => "mkdir",
            libc::SYS_unlink => "unlink",
            libc::SYS_unlinkat => "unlinkat",
            libc::SYS_getdents64 => "getdents64",
            libc::SYS_truncate => "truncate",
            libc::SYS_ftruncate => "ftruncate",
            libc::SYS_fallocate => "fallocate",
            libc::SYS_sync => "sync",
            libc::SYS_syncfs => "syncfs",
            libc::SYS_sync_file_range => "sync_file_range",
            libc::SYS_copy_file_range => "copy_file_range",
            libc::SYS_getrandom => "getrandom",
            libc::SYS_pause => "pause",
            libc::SYS_rt_sigtimedwait => "rt_sigtimedwait",
            libc::SYS_rt_sigsuspend => "rt_sigsuspend",
            libc::SYS_semop => "semop",
            libc::SYS_msgsnd => "msgsnd",
            libc::SYS_msgrcv => "msgrcv",
            libc::SYS_mq_timedsend => "mq_timedsend",
            libc::SYS_mq_timedreceive => "mq_timedreceive",
            libc::SYS_io_uring_enter => "io_uring_enter",
            number => return write!(f, "system call {number}"),
        };
        f.write_str(name)
    }
}
