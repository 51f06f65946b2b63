//! Children that stop, go on, and are traced: what a thread is told that waits for them is what the kernel
//! tells, whatever it has asked for.
//!
//! All is done in processes of their own: the waits for any child must not meet other tests' children.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use crate::{alike, common};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::alike::{Scene, alike};
use crate::common::watchdog;
use libc::{c_int, pid_t};

/// A forked child, which waits for a byte in its pipe before it does anything.
struct Child {
    id: pid_t,
    pipe: c_int,
}

/// What the child does.
#[derive(Clone, Copy)]
enum Life {
    /// Asks to be traced, and stops.
    Traced,
    /// Stops by itself; once it goes on, it waits for another byte.
    Stops,
    /// Ends with code 7.
    Ends,
}

impl Child {
    fn new(life: Life) -> Child {
        let mut ends = [0; 2];
        // SAFETY: plain calls; the child makes only such as are allowed after a fork.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            let id = libc::fork();
            if id == 0 {
                libc::setpgid(0, 0);
                libc::alarm(50);
                libc::close(ends[1]);
                let mut byte = 0_u8;
                libc::read(ends[0], (&raw mut byte).cast(), 1);
                match life {
                    Life::Traced => {
                        libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                        libc::raise(libc::SIGUSR1);
                    }
                    Life::Stops => {
                        libc::raise(libc::SIGSTOP);
                        libc::read(ends[0], (&raw mut byte).cast(), 1);
                    }
                    Life::Ends => {}
                }
                libc::_exit(7);
            }
            assert!(id > 0);
            libc::setpgid(id, id);
            libc::close(ends[0]);
            Child { id, pipe: ends[1] }
        }
    }

    fn go(&self) {
        // SAFETY: a valid byte.
        let written = unsafe { libc::write(self.pipe, [1_u8].as_ptr().cast(), 1) };
        assert_eq!(written, 1);
    }
}

/// A status in words that do not depend on the child's number.
fn told(child: pid_t, (got, status): (pid_t, c_int)) -> String {
    let who = if got == child { "the child" } else { "another" };
    match () {
        () if got <= 0 => format!("{got}, errno {}", alike::errno()),
        () if libc::WIFSTOPPED(status) => format!("{who} stopped by {}", libc::WSTOPSIG(status)),
        () if libc::WIFCONTINUED(status) => format!("{who} goes on"),
        () if libc::WIFEXITED(status) => format!("{who} ended with {}", libc::WEXITSTATUS(status)),
        () => format!("{who}: {status:x}"),
    }
}

fn waitpid(child: pid_t, options: c_int) -> (pid_t, c_int) {
    let mut status = 0;
    // SAFETY: a valid place.
    (
        unsafe { libc::waitpid(child, &mut status, options) },
        status,
    )
}

unsafe extern "C" {
    fn wait3(status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> pid_t;
}

/// `waitid`, as a status of `waitpid`.
fn waitid(kind: libc::idtype_t, id: u32, options: c_int) -> (pid_t, c_int) {
    // SAFETY: a zeroed record is valid, and read as far as the call fills it in.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        match libc::waitid(kind, id, &mut info, options) {
            0 => {}
            failed => return (failed, 0),
        }
        let status = match info.si_code {
            libc::CLD_STOPPED | libc::CLD_TRAPPED => info.si_status() << 8 | 0x7f,
            libc::CLD_CONTINUED => 0xffff,
            libc::CLD_EXITED => info.si_status() << 8,
            _ => info.si_status(),
        };
        (info.si_pid(), status)
    }
}

/// All ways to wait for the end of a child.
const WAYS: usize = 14;

fn wait_in(way: usize, child: &Child) -> (pid_t, c_int) {
    let (id, mut status) = (child.id, 0);
    // SAFETY: valid places.
    unsafe {
        let got = match way {
            0 => return waitpid(id, 0),
            1 => return waitpid(-1, 0),
            2 => return waitpid(-id, 0), // it leads a group of its own
            3 => return waitpid(id, libc::__WALL),
            4 => return waitpid(id, libc::__WNOTHREAD),
            5 => return waitpid(id, libc::WUNTRACED | libc::WCONTINUED),
            6 => libc::wait4(id, &mut status, 0, null_mut()),
            7 => wait3(&mut status, 0, null_mut()),
            8 => libc::wait(&mut status),
            9 => return waitid(libc::P_PID, id as u32, libc::WEXITED),
            10 => return waitid(libc::P_ALL, 0, libc::WEXITED),
            11 => return waitid(libc::P_PGID, id as u32, libc::WEXITED | libc::WSTOPPED),
            12 => return waitid(libc::P_PID, id as u32, libc::WEXITED | libc::__WALL),
            _ => {
                let fd = libc::syscall(libc::SYS_pidfd_open, id, 0) as c_int;
                let answer = waitid(libc::P_PIDFD, fd as u32, libc::WEXITED);
                libc::close(fd);
                return answer;
            }
        };
        (got, status)
    }
}

/// Waits for what the child does when it is told to go on, and writes that down.
fn hears(s: &mut Scene, child: &Child, how: impl FnOnce(&Child) -> (pid_t, c_int)) {
    s.waits(|| child.go(), |s| s.note(told(child.id, how(child))));
}

fn request(request: libc::c_uint, child: &Child) -> libc::c_long {
    // SAFETY: requests without addresses.
    unsafe { libc::ptrace(request as _, child.id, 0, 0) }
}

fn in_a_process(test: &'static str, scene: fn(&mut Scene)) {
    let _w = watchdog(test);
    match common::child_case(test) {
        None => common::assert_code(&common::child(test, ""), 0),
        Some(_) => alike(scene),
    }
}

/// A child that asks to be traced while its parent waits.
#[test]
fn a_tracer_hears_of_stops() {
    in_a_process("children::a_tracer_hears_of_stops", |s| {
        // The tracer is a kernel thread.
        let _locked = greenthread::lock_kernel_thread();
        for way in 0..WAYS {
            let child = Child::new(Life::Traced);
            hears(s, &child, |child| wait_in(way, child));
            s.note(request(libc::PTRACE_CONT as _, &child));
            s.note(told(child.id, wait_in(way, &child)));
            s.note(told(child.id, waitpid(child.id, libc::WNOHANG)));
            // SAFETY: it is open.
            unsafe { libc::close(child.pipe) };
        }
        // It asks for stops alone.
        let child = Child::new(Life::Traced);
        let stops = |child: &Child| waitid(libc::P_PID, child.id as u32, libc::WSTOPPED);
        hears(s, &child, stops);
        s.note(request(libc::PTRACE_CONT as _, &child));
        s.note(told(child.id, waitpid(child.id, 0)));
    });
}

/// A kernel thread begins to trace the child, while another thread waits.
#[test]
fn a_child_that_is_traced_later() {
    in_a_process("children::a_child_that_is_traced_later", |s| {
        for way in [0, 1, 3, 6, 8, 9] {
            let (child, heard) = (Child::new(Life::Ends), AtomicBool::new(false));
            s.waits(
                || {
                    assert_eq!(request(libc::PTRACE_ATTACH as _, &child), 0);
                    common::wait_until(|| heard.load(SeqCst));
                    assert_eq!(request(libc::PTRACE_DETACH as _, &child), 0);
                    child.go();
                },
                |s| {
                    s.note(told(child.id, wait_in(way, &child)));
                    heard.store(true, SeqCst);
                },
            );
            s.note(told(child.id, waitpid(child.id, 0)));
        }
    });
}

/// Stops that are asked for.
#[test]
fn stops_and_goes_on() {
    in_a_process("children::stops_and_goes_on", |s| {
        for way in 0..2 {
            let wait = move |child: &Child, what: c_int| match way {
                0 => waitpid(child.id, what),
                _ => waitid(libc::P_PID, child.id as u32, what),
            };
            let ends = if way == 0 { 0 } else { libc::WEXITED };
            let child = Child::new(Life::Stops);
            hears(s, &child, |child| wait(child, libc::WSTOPPED));
            // SAFETY: a plain call.
            let goes_on = || assert_eq!(unsafe { libc::kill(child.id, libc::SIGCONT) }, 0);
            s.waits(goes_on, |s| {
                s.note(told(child.id, wait(&child, libc::WCONTINUED | ends)))
            });
            hears(s, &child, |child| wait(child, ends));
            s.note(told(child.id, wait(&child, ends)));
        }
        s.note(told(0, waitpid(-1, 0)));
        s.note(told(0, waitpid(0, 0x1000)));
        s.note(told(0, waitid(libc::P_ALL, 0, 0)));
    });
}
