//! Systems that lack calls, or refuse them: old kernels, gVisor, sandboxes. For each call that the runtime, std or libc
//! can miss, the same program runs under a real seccomp filter that refuses it, either from the first instruction
//! on or once the runtime is at work. A table says what becomes of the runtime: green threads with another way to
//! the same end, or kernel threads and a line that says why.

#![cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    feature = "net",
    feature = "observe"
))]

use crate::common::directory::Directory;
use crate::common::*;
use crate::filter::Filter;
use crate::mixture::{Extent, Mixture, Shown, ask_for_the_same_mode, asked_for_kernel_threads};
use greenthread::observe;
use greenthread::runtime::{Mode, Runtime};
use libc::*;
use std::os::fd::AsRawFd;
use std::process::Output;

/// What the table expects.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// Green threads, preempted by signals, whose blocking calls give their processors away.
    Green,
    /// Green threads that no signal reaches: those that compute share the CPUs as the system likes.
    GreenWithoutSignals,
    /// Kernel threads, and this word in the line that says why.
    Kernel(&'static str),
}

use Then::*;

/// One line of the table: the name of the case, the refused calls, their error, and what becomes of it.
struct Row(&'static str, Refused, c_int, Then);

enum Refused {
    Calls(&'static [c_long]),
    /// A call with that value in the argument of that index.
    With(c_long, u32, c_int),
}

use Refused::*;

impl Row {
    fn filter(&self) -> Filter {
        let Row(_, refused, errno, _) = self;
        match refused {
            Calls(calls) => Filter::new().refuse_all(calls, *errno),
            With(call, index, value) => {
                Filter::new().refuse_if(*call, *index, *value as u32, *errno)
            }
        }
    }
}

const MADV_GUARD_INSTALL: c_int = 102;
const FUTEX2: &[c_long] = &[SYS_futex_waitv, 454, 455, 456];

#[rustfmt::skip]
const TABLE: &[Row] = &[
    // Barriers, restartable sequences, guards of stacks.
    Row("membarrier, which is not there", Calls(&[SYS_membarrier]), ENOSYS, Kernel("membarrier")),
    Row("membarrier", Calls(&[SYS_membarrier]), EPERM, Kernel("membarrier")),
    Row("rseq, which is not there", Calls(&[SYS_rseq]), ENOSYS, Green),
    Row("rseq", Calls(&[SYS_rseq]), EPERM, Green),
    Row("guards, which are not there", With(SYS_madvise, 2, MADV_GUARD_INSTALL), EINVAL, Green),
    Row("guards", With(SYS_madvise, 2, MADV_GUARD_INSTALL), EPERM, Green),
    Row("madvise", Calls(&[SYS_madvise]), ENOSYS, Green),
    // Signals.
    Row("rt_tgsigqueueinfo, which is not there", Calls(&[SYS_rt_tgsigqueueinfo]), ENOSYS, GreenWithoutSignals),
    Row("rt_tgsigqueueinfo", Calls(&[SYS_rt_tgsigqueueinfo]), EPERM, GreenWithoutSignals),
    Row("stacks for signal handlers", Calls(&[SYS_sigaltstack]), EPERM, Kernel("sigaltstack")),
    Row("timer_create", Calls(&[SYS_timer_create]), EPERM, Green),
    Row("tgkill", Calls(&[SYS_tgkill]), EPERM, Green),
    // Events.
    Row("epoll_pwait", Calls(&[SYS_epoll_pwait]), EPERM, Green),
    Row("epoll_pwait2, which is not there", Calls(&[SYS_epoll_pwait2]), ENOSYS, Green),
    Row("epoll_pwait2", Calls(&[SYS_epoll_pwait2]), EPERM, Green),
    Row("io_uring, which is not there", Calls(&[SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register]), ENOSYS, Green),
    Row("io_uring", Calls(&[SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register]), EPERM, Green),
    Row("eventfd2", Calls(&[SYS_eventfd2, SYS_eventfd]), EPERM, Green),
    Row("epoll", Calls(&[SYS_epoll_create, SYS_epoll_create1]), EPERM, Green),
    Row("newer futexes", Calls(FUTEX2), ENOSYS, Green),
    // Kernel threads.
    Row("clone3, which is not there", Calls(&[SYS_clone3]), ENOSYS, Green),
    Row("names", With(SYS_prctl, 0, PR_SET_NAME), EPERM, Green),
    Row("prctl", Calls(&[SYS_prctl]), ENOSYS, Green),
    Row("affinity", Calls(&[SYS_sched_getaffinity, SYS_sched_setaffinity]), EPERM, Green),
    Row("getcpu", Calls(&[SYS_getcpu]), ENOSYS, Green),
    Row("nanosleep", Calls(&[SYS_nanosleep]), EPERM, Green),
    Row("sched_yield", Calls(&[SYS_sched_yield]), EPERM, Green),
    Row("set_robust_list", Calls(&[SYS_set_robust_list, SYS_get_robust_list]), ENOSYS, Green),
    Row("prlimit64", Calls(&[SYS_prlimit64]), EPERM, Green),
    // Looking at memory and processes.
    Row("process_vm_readv", Calls(&[SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace]), EPERM, Green),
    Row("process_vm_readv, which is not there", Calls(&[SYS_process_vm_readv]), ENOSYS, Green),
    Row("waitid", Calls(&[SYS_waitid]), EPERM, Green),
    Row("pidfd_open, which is not there", Calls(&[SYS_pidfd_open, SYS_pidfd_send_signal]), ENOSYS, Green),
    Row("pidfd_open", Calls(&[SYS_pidfd_open, SYS_pidfd_send_signal]), EPERM, Green),
    // Files.
    Row("statx, which is not there", Calls(&[SYS_statx]), ENOSYS, Green),
    Row("statx", Calls(&[SYS_statx]), EPERM, Green),
    Row("newer files", Calls(&[SYS_openat2, SYS_close_range, SYS_copy_file_range, SYS_faccessat2]), ENOSYS, Green),
    Row("copying of files", Calls(&[SYS_copy_file_range, SYS_sendfile, SYS_splice]), EPERM, Green),
    Row("preadv2, which is not there", Calls(&[SYS_preadv2, SYS_pwritev2]), ENOSYS, Green),
    Row("preadv2", Calls(&[SYS_preadv2, SYS_pwritev2]), EPERM, Green),
    Row("RWF_NOWAIT", Calls(&[SYS_preadv2, SYS_pwritev2]), EOPNOTSUPP, Green),
    Row("getrandom, which is not there", Calls(&[SYS_getrandom]), ENOSYS, Green),
    Row("getrandom", Calls(&[SYS_getrandom]), EPERM, Green),
];

fn row(name: &str) -> &'static Row {
    let found = TABLE.iter().find(|Row(case, ..)| *case == name);
    found.expect("a row of the table")
}

/// The child: runs the mixture, under the filter that it was given at its start or that it imposes upon itself.
fn run(case: &str) {
    let (when, name) = case.split_once(": ").unwrap();
    let row = row(name);
    let directory = Directory::new();
    // Finding them takes the longest; it is refused what is refused from now on, too.
    let names = when == "after";
    let mixture = Mixture::begin(Extent {
        names,
        ..Extent::all(&directory.0)
    });
    mixture.round();
    let (mut rounds, mut preemptions) = (1, 0);
    if when == "after" {
        assert!(row.filter().impose(), "no filter can be had");
        preemptions = mixture.preemptions();
        mixture.round();
        rounds = 2;
    }
    if row.3 != GreenWithoutSignals {
        rounds += mixture.until_preempted(preemptions);
    }
    let mut shown = mixture.end(rounds);
    shown.preemptions -= preemptions;
    eprintln!("{case}: {shown:?}");
    check(&shown, row.3);
}

fn check(shown: &Shown, then: Then) {
    if matches!(then, Kernel(_)) || asked_for_kernel_threads() {
        return assert_eq!(shown.mode, Mode::Kernel);
    }
    assert_eq!(shown.mode, Mode::Green);
    assert!(shown.hand_offs > 0);
    // Without signals there may be some, too: of threads that look whether their slice is over.
    assert!(shown.preemptions > 0 || then == GreenWithoutSignals);
}

/// Whether a child has ended well, and has said on standard error what is to be known of its mode, and no more.
fn is_right(out: &Output, then: Then) -> bool {
    let stderr = String::from_utf8_lossy(&out.stderr);
    let notices = stderr
        .lines()
        .filter(|line| line.starts_with("greenthread: "));
    let expected = match then {
        Kernel(why) => Some(("every thread is a kernel thread", why)),
        GreenWithoutSignals => Some(("not preempted", "rt_tgsigqueueinfo")),
        Green => None,
    };
    let expected = expected.filter(|_| green());
    let is_said = match expected {
        None => notices.count() == 0,
        Some((what, why)) => {
            notices
                .filter(|notice| notice.contains(what) && notice.contains(why))
                .count()
                == 1
        }
    };
    out.status.code() == Some(0) && is_said
}

/// Runs the rows that are `meant`; all of them, before it complains.
fn run_table(name: &'static str, when: &str, is_meant: impl Fn(&Row) -> bool) {
    if let Some(case) = child_case(name) {
        return run(&case);
    }
    let mut wrong = Vec::new();
    for row in TABLE.iter().filter(|row| is_meant(row)) {
        let _w = watchdog(name);
        let case = format!("{when}: {}", row.0);
        let mut command = child_command(name, &case);
        ask_for_the_same_mode(&mut command);
        if when == "before" {
            row.filter().impose_on(&mut command);
        }
        let out = command.output().expect("the test's own executable");
        match is_right(&out, row.3) {
            true => eprintln!("{}", line_with(&out, &[&case])),
            false => wrong.push(format!("{case}: {}", said(&out))),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn calls_that_were_never_there() {
    alone!();
    run_table(
        "missing_calls::calls_that_were_never_there",
        "before",
        |_| true,
    );
}

/// A program that sandboxes itself while the runtime is at work.
#[test]
fn calls_that_are_refused_from_now_on() {
    alone!();
    let is_meant = |Row(name, _, _, then): &Row| {
        // libc ends a process one of whose threads has no rseq while others have; std asks for statx once.
        !matches!(then, Kernel(_)) && !name.starts_with("rseq") && *name != "statx"
    };
    run_table(
        "missing_calls::calls_that_are_refused_from_now_on",
        "after",
        is_meant,
    );
}

/// Green threads cannot go on without barriers once they rely on them, so the process ends and says why; it does
/// not go on unsoundly. Kernel threads need none.
#[test]
fn no_barrier_from_now_on() {
    const NAME: &str = "missing_calls::no_barrier_from_now_on";
    let Some(case) = child_case(NAME) else {
        let is_kernel = !green();
        for case in ["hand-off", "dump", "shutdown"] {
            let _w = watchdog(NAME);
            let out = child(NAME, case);
            if is_kernel {
                assert_code(&out, 0);
                continue;
            }
            assert_signal(&out, SIGABRT);
            let advice = "GREENTHREAD_MODE=kernel";
            line_with(&out, &["greenthread: ", "refuses membarrier", advice]);
            line_with(&out, &[case, "begins"]);
            assert!(!said(&out).contains("goes on"), "{}", said(&out));
        }
        // A change of the number of processors needs no barrier.
        assert_code(&child(NAME, "resize"), 0);
        return;
    };
    let runtime = Runtime::builder().processors(2).build().unwrap();
    runtime.spawn(|| ()).join().unwrap();
    let filter = Filter::new().refuse(SYS_membarrier, EPERM);
    assert!(filter.impose(), "no filter can be had");
    eprintln!("{case} begins");
    match &*case {
        "hand-off" => {
            let (reader, writer) = std::io::pipe().unwrap();
            let blocks = move || {
                let mut byte = 0u8;
                // SAFETY: one byte, and a descriptor that is open.
                unsafe { syscall(SYS_read, reader.as_raw_fd(), &mut byte, 1) }
            };
            if runtime.mode() == Mode::Green {
                runtime.spawn(blocks).join().unwrap();
            }
            drop(writer);
        }
        "dump" => drop(observe::dump()),
        "resize" => runtime.set_processors(3).unwrap(),
        _ => runtime.shutdown(),
    }
    eprintln!("{case} goes on");
}
