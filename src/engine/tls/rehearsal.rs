//! A trial that happens in a child process first: if it crashes or hangs, the child does.
//!
//! The child writes a byte once the trial is over, whatever came of it. The parent trusts the byte alone, not the exit
//! status: the program may ignore its children, or wait for all of them.

use std::io::{PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// It takes some milliseconds on an idle machine.
const MOST_SECONDS: u32 = 5;

/// Tries it out in a child process. An error: this process must not try it.
pub(super) fn rehearse(trial: impl FnOnce()) -> Result<(), String> {
    let failed = |error| format!("no child process to try it in: {error}");
    let (mut reader, writer) = std::io::pipe().map_err(failed)?;
    // SAFETY: the child makes no use of what other threads had under way, but for libc's and the loader's locks.
    // libc's are free in a child; if the loader's is not, the trial hangs, and the child ends.
    match unsafe { libc::fork() } {
        -1 => Err(failed(std::io::Error::last_os_error())),
        0 => in_child(trial, writer),
        child => {
            drop(writer);
            let over = reader.read_exact(&mut [0]);
            // SAFETY: its exit status goes nowhere. An error: the program has waited for it.
            unsafe { while libc::waitpid(child, std::ptr::null_mut(), 0) < 0 && interrupted() {} }
            over.map_err(|_| "a child process that tried it did not come to the end".into())
        }
    }
}

fn interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

/// Ends the process.
fn in_child(trial: impl FnOnce(), mut writer: PipeWriter) -> ! {
    use libc::{SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    // SAFETY: plain calls of libc's. The handlers are the program's, which has not crashed.
    unsafe {
        for signal in [
            SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP,
        ] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::alarm(MOST_SECONDS);
    }
    if catch_unwind(AssertUnwindSafe(trial)).is_ok() {
        let _ = writer.write_all(&[1]);
    }
    // SAFETY: nothing of the program's runs at this process's end.
    unsafe { libc::_exit(0) }
}
