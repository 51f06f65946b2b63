//! What containers are made of: mounts of one's own, users, process ids, Docker's list of refused calls.
//!
//! A function that says false has met a system that does not allow it: most need root.

#![allow(dead_code)] // every test file uses its own part of this

use crate::filter::Filter;
use libc::*;
use std::ffi::CStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null;

/// From now on this thread's mounts are its own, and those of the threads that it makes; its working directory, too.
pub fn own_mounts() -> bool {
    const ALL: c_ulong = MS_REC | MS_PRIVATE;
    // SAFETY: valid paths.
    unsafe { unshare(CLONE_NEWNS) == 0 && mount(null(), c"/".as_ptr(), null(), ALL, null()) == 0 }
}

/// An empty directory that cannot be written takes the place of `path`, or the mount below it shows if that is none.
pub fn hide(path: &CStr) -> bool {
    let (kind, options) = (c"tmpfs".as_ptr(), c"mode=555".as_ptr().cast());
    // SAFETY: valid paths.
    unsafe {
        umount2(path.as_ptr(), MNT_DETACH);
        mount(kind, path.as_ptr(), kind, MS_RDONLY, options) == 0
    }
}

/// No mount can be written, wherever it is.
pub fn make_read_only() -> bool {
    // The kernel's `mount_attr`: flags to set, to clear, the kind of propagation, a descriptor.
    let attributes: [u64; 4] = [MOUNT_ATTR_RDONLY, 0, 0, 0];
    let size = size_of_val(&attributes);
    let (number, flags) = (SYS_mount_setattr, AT_RECURSIVE);
    // SAFETY: a valid path and record.
    unsafe {
        syscall(
            number,
            AT_FDCWD,
            c"/".as_ptr(),
            flags,
            &raw const attributes,
            size,
        ) == 0
    }
}

/// Becomes a user who is not root, and owns nothing here; without a way back.
pub fn become_nobody() -> bool {
    const NOBODY: uid_t = 65_534;
    // SAFETY: plain calls, which libc makes in every thread.
    unsafe {
        setgroups(0, null()) == 0
            && setresgid(NOBODY, NOBODY, NOBODY) == 0
            && setresuid(NOBODY, NOBODY, NOBODY) == 0
            && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    }
}

/// Confines `command` before its first instruction, or it does not start. The function makes system calls only.
pub fn confine(command: &mut Command, confine: impl Fn() -> bool + Send + Sync + 'static) {
    let done = move || match confine() {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    };
    // SAFETY: system calls, in a process with one thread.
    unsafe { command.pre_exec(done) };
}

/// `command` runs as the first process of its own. With `proc`, it has a `/proc` that knows it by that number; otherwise
/// one that knows it by another.
pub fn as_first_process(command: &mut Command, proc: bool) {
    let first = move || {
        // SAFETY: system calls, in a process with one thread. The middle process only waits.
        unsafe {
            if unshare(CLONE_NEWPID) != 0 {
                return Err(io::Error::last_os_error());
            }
            match fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {}
                child => {
                    let mut status = 0;
                    while waitpid(child, &mut status, 0) != child {}
                    _exit(match WIFEXITED(status) {
                        true => WEXITSTATUS(status),
                        false => 128 + WTERMSIG(status),
                    });
                }
            }
            let kind = c"proc".as_ptr();
            let mounts = || own_mounts() && mount(kind, c"/proc".as_ptr(), kind, 0, null()) == 0;
            match !proc || mounts() {
                true => Ok(()),
                false => Err(io::Error::last_os_error()),
            }
        }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(first) };
}

/// What Docker's default profile refuses on x86-64 to a container with the default capabilities.
pub fn dockers_filter() -> Filter {
    const NAMESPACES: u32 = 0x7E02_0000;
    const AF_VSOCK: u32 = 40;
    Filter::new()
        .refuse(SYS_clone3, ENOSYS)
        .refuse_flags(SYS_clone, 0, NAMESPACES, EPERM)
        .refuse_if(SYS_socket, 0, AF_ALG as u32, EPERM)
        .refuse_if(SYS_socket, 0, AF_VSOCK, EPERM)
        .refuse_all(DOCKERS, EPERM)
}

#[rustfmt::skip]
const DOCKERS: &[c_long] = &[
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    SYS_userfaultfd, SYS_perf_event_open, SYS_bpf, SYS_kcmp, SYS_pidfd_getfd, SYS_process_madvise,
    SYS_add_key, SYS_request_key, SYS_keyctl,
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_mount_setattr, SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsconfig,
    SYS_fsmount, SYS_fspick, SYS_unshare, SYS_setns, SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_quotactl_fd,
    SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_set_mempolicy_home_node, SYS_migrate_pages, SYS_move_pages,
    SYS_clock_settime, SYS_settimeofday, SYS_acct, SYS_reboot, SYS_sethostname, SYS_setdomainname, SYS_syslog,
    SYS_iopl, SYS_ioperm, SYS_vhangup, SYS_ustat, SYS_sysfs, SYS_uselib, SYS__sysctl, SYS_nfsservctl, SYS_vserver,
    SYS_init_module, SYS_finit_module, SYS_delete_module,
    SYS_kexec_load, SYS_kexec_file_load, SYS_lookup_dcookie, SYS_fanotify_init, SYS_open_by_handle_at,
];
