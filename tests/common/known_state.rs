//! The state in which every test process begins, whoever has started it: a shell that runs a script in the background
//! lets its children ignore SIGINT and SIGQUIT, `nohup` SIGHUP; other tests of the same program block signals, lower
//! limits, and leave descriptors open for children.
//!
//! The first process enters it before `main`, and keeps its limits and niceness as those of all its children, which
//! enter it between fork and exec. A test that means a child to differ adds its own `pre_exec`: it runs later.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

struct Begin {
    /// By the resource's number.
    limits: Vec<libc::rlimit>,
    niceness: libc::c_int,
}

static BEGIN: OnceLock<Begin> = OnceLock::new();

#[used]
#[unsafe(link_section = ".init_array")]
static ENTER: extern "C" fn() = begin;

extern "C" fn begin() {
    let resources = 0..=libc::RLIMIT_RTTIME as i32;
    let limits = resources.map(|resource| {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the place outlives the call.
        unsafe { libc::getrlimit(resource as _, &mut limit) };
        limit
    });
    // SAFETY: plain call.
    let niceness = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let limits = limits.collect();
    let begin = BEGIN.get_or_init(|| Begin { limits, niceness });
    // SAFETY: there is one thread yet; valid strings.
    let is_first = unsafe {
        let mark = c"GT_STATE_IS_KNOWN".as_ptr();
        libc::getenv(mark).is_null() && libc::setenv(mark, c"1".as_ptr(), 1) == 0
    };
    if is_first {
        begin.enter();
    }
}

/// `command` starts in the known state.
pub fn of_child(command: &mut Command) {
    let begin = BEGIN.get().expect("a process that has begun");
    let enter = move || {
        begin.enter();
        // SAFETY: plain call. Where the kernel lacks it, descriptors stay open.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, CLOSE_RANGE_CLOEXEC) };
        Ok(())
    };
    // SAFETY: it makes system calls alone.
    unsafe { command.pre_exec(enter) };
}

/// They are closed by exec, not before: std's own is among them.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;

impl Begin {
    /// Makes system calls alone. What a process may not have back (a hard limit, its niceness) it lacks.
    fn enter(&self) {
        for (resource, limit) in self.limits.iter().enumerate() {
            // SAFETY: a valid place.
            unsafe { libc::setrlimit(resource as _, limit) };
        }
        // SAFETY: plain calls with valid places.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, self.niceness);
            libc::umask(0o022);
            for signal in 1..=libc::SIGRTMAX() {
                let mut action: libc::sigaction = std::mem::zeroed();
                let asked = libc::sigaction(signal, std::ptr::null(), &mut action) == 0;
                if asked && action.sa_sigaction == libc::SIG_IGN {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        }
    }
}
