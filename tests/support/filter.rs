//! Seccomp filters: the kernel refuses system calls, with the errors that the test chooses.

#![allow(dead_code)] // every test file uses its own part of this

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Where things lie in what a filter is given: the call's number, and the lower halves of its arguments.
const NUMBER: u32 = 0;
const FIRST_ARGUMENT: u32 = 16;

/// A filter that lets all calls through, except those that it was told to refuse.
#[derive(Clone)]
pub struct Filter(Vec<libc::sock_filter>);

fn step(code: u32, yes: u8, no: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    }
}

fn load(offset: u32) -> libc::sock_filter {
    step(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset)
}

fn fail_with(errno: i32) -> libc::sock_filter {
    let answer = libc::SECCOMP_RET_ERRNO | errno as u32;
    step(BPF_RET | BPF_K, 0, 0, answer)
}

impl Filter {
    pub fn new() -> Filter {
        Filter(vec![load(NUMBER)])
    }

    /// `call` fails with `errno`.
    pub fn refuse(mut self, call: libc::c_long, errno: i32) -> Filter {
        let is_it = step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call as u32);
        self.0.extend([is_it, fail_with(errno)]);
        self
    }

    /// All of `calls` do.
    pub fn refuse_all(self, calls: &[libc::c_long], errno: i32) -> Filter {
        calls
            .iter()
            .fold(self, |filter, &call| filter.refuse(call, errno))
    }

    /// `call` fails if its argument of that index has the value `is`.
    pub fn refuse_if(self, call: libc::c_long, index: u32, is: u32, errno: i32) -> Filter {
        self.refuse_when(call, index, BPF_JEQ, is, errno)
    }

    /// `call` fails if its argument of that index has one of `flags`.
    pub fn refuse_flags(self, call: libc::c_long, index: u32, flags: u32, errno: i32) -> Filter {
        self.refuse_when(call, index, BPF_JSET, flags, errno)
    }

    fn refuse_when(
        mut self,
        call: libc::c_long,
        index: u32,
        test: u32,
        value: u32,
        errno: i32,
    ) -> Filter {
        self.0.extend([
            step(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, call as u32),
            load(FIRST_ARGUMENT + 8 * index),
            step(BPF_JMP | test | BPF_K, 0, 1, value),
            fail_with(errno),
            load(NUMBER),
        ]);
        self
    }

    fn program(&self) -> Vec<libc::sock_filter> {
        let mut steps = self.0.clone();
        steps.push(step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
        steps
    }

    /// From now on, in every thread of this process. False: that cannot be had.
    #[must_use]
    pub fn impose(&self) -> bool {
        const ALL_THREADS: libc::c_ulong = 1;
        impose(&mut self.program(), ALL_THREADS).is_ok()
    }

    /// From the first instruction of `command` on.
    pub fn impose_on(&self, command: &mut Command) {
        let mut steps = self.program();
        // SAFETY: two system calls, on memory that the child has.
        unsafe { command.pre_exec(move || impose(&mut steps, 0)) };
    }
}

fn impose(steps: &mut [libc::sock_filter], flags: libc::c_ulong) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: a valid program, which outlives the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, mode, flags, &program) == 0
    };
    match done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Whether `call`, with these arguments, fails with `errno`.
pub fn fails(call: libc::c_long, arguments: [libc::c_long; 3], errno: i32) -> bool {
    let [a, b, c] = arguments;
    // SAFETY: the caller chooses arguments that do no harm.
    let answer = unsafe { libc::syscall(call, a, b, c, 0, 0, 0) };
    answer == -1 && io::Error::last_os_error().raw_os_error() == Some(errno)
}
