//! A green thread that changes its kernel thread keeps it: no other thread finds itself changed. What libc's functions
//! answer about a green thread is so, or an error.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::{Mode, Runtime};
use std::ffi::{CStr, c_int};
use std::mem::{MaybeUninit, zeroed};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// A call that changes the calling kernel thread, and a way to see that.
struct Change {
    name: &'static str,
    /// False: it may not be made here.
    make: fn() -> bool,
    look: fn() -> i64,
}

fn cpus() -> i64 {
    // SAFETY: the kernel fills the set in.
    unsafe {
        let mut cpus: libc::cpu_set_t = zeroed();
        libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus);
        libc::CPU_COUNT(&cpus).into()
    }
}

fn one_cpu() -> libc::cpu_set_t {
    // SAFETY: as above.
    unsafe {
        let (mut all, mut one): (libc::cpu_set_t, libc::cpu_set_t) = zeroed();
        libc::sched_getaffinity(0, size_of_val(&all), &mut all);
        let cpu = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &all));
        libc::CPU_SET(cpu.unwrap(), &mut one);
        one
    }
}

fn bind(id: libc::pid_t) -> bool {
    // SAFETY: a valid set.
    unsafe { libc::sched_setaffinity(id, size_of::<libc::cpu_set_t>(), &one_cpu()) == 0 }
}

fn prctl(option: c_int, value: usize) -> i64 {
    // SAFETY: options whose arguments are numbers.
    unsafe { libc::prctl(option, value, 0_usize, 0_usize, 0_usize).into() }
}

fn priority() -> i64 {
    // SAFETY: numbers.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0).into() }
}

fn policy() -> i64 {
    // SAFETY: a number.
    unsafe { libc::sched_getscheduler(0).into() }
}

fn namespace() -> i64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/thread-self/ns/uts").unwrap().ino() as i64
}

fn batch() -> bool {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: a valid parameter.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameter) == 0 }
}

const NOBODY: u32 = 65_534;

/// libc's functions of the kinds that there are; what each does to the calling kernel thread.
const CHANGES: [Change; 14] = [
    Change {
        name: "sched_setaffinity",
        make: || bind(0),
        look: cpus,
    },
    Change {
        name: "sched_setaffinity by number",
        make: || {
            let _lock = thread::lock_kernel_thread(); // so that the number stays right
            bind(gettid())
        },
        look: cpus,
    },
    Change {
        name: "pthread_setaffinity_np",
        // SAFETY: a valid set.
        make: || unsafe {
            let (own, one) = (libc::pthread_self(), one_cpu());
            libc::pthread_setaffinity_np(own, size_of_val(&one), &one) == 0
        },
        look: cpus,
    },
    Change {
        name: "setpriority",
        // SAFETY: numbers.
        make: || unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 3) == 0 },
        look: priority,
    },
    Change {
        name: "nice",
        // SAFETY: a number.
        make: || unsafe { libc::nice(2) == 2 },
        look: priority,
    },
    Change {
        name: "sched_setscheduler",
        make: batch,
        look: policy,
    },
    Change {
        name: "pthread_setschedparam",
        // SAFETY: a valid parameter.
        make: || unsafe {
            let parameter = libc::sched_param { sched_priority: 0 };
            libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_BATCH, &parameter) == 0
        },
        look: policy,
    },
    Change {
        name: "timer slack",
        make: || prctl(libc::PR_SET_TIMERSLACK, 77_000) == 0,
        look: || prctl(libc::PR_GET_TIMERSLACK, 0),
    },
    Change {
        name: "no new privileges",
        make: || prctl(libc::PR_SET_NO_NEW_PRIVS, 1) == 0,
        look: || prctl(libc::PR_GET_NO_NEW_PRIVS, 0),
    },
    Change {
        name: "a capability",
        make: || prctl(libc::PR_CAPBSET_DROP, 13) == 0,
        look: || prctl(libc::PR_CAPBSET_READ, 13),
    },
    Change {
        name: "unshare",
        // SAFETY: a flag.
        make: || unsafe { libc::unshare(libc::CLONE_NEWUTS) == 0 },
        look: namespace,
    },
    Change {
        name: "setfsuid",
        // SAFETY: numbers.
        make: || unsafe {
            libc::setfsuid(NOBODY);
            libc::setfsuid(u32::MAX) as u32 == NOBODY
        },
        // SAFETY: a number.
        look: || unsafe { libc::setfsuid(u32::MAX).into() },
    },
    Change {
        name: "personality",
        // SAFETY: a flag.
        make: || unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as u64) != -1 },
        // SAFETY: a question.
        look: || unsafe { libc::personality(0xffff_ffff).into() },
    },
    Change {
        name: "the parent's end",
        make: || prctl(libc::PR_SET_PDEATHSIG, libc::SIGCHLD as usize) == 0,
        look: || {
            let mut signal: c_int = 0;
            prctl(libc::PR_GET_PDEATHSIG, &raw mut signal as usize);
            signal.into()
        },
    },
];

/// The same by `syscall(2)`, and what has no function.
#[cfg(feature = "unmodified")]
const BY_NUMBER: [Change; if cfg!(target_arch = "x86_64") { 5 } else { 4 }] = [
    #[cfg(target_arch = "x86_64")]
    Change {
        name: "SYS_arch_prctl",
        // SAFETY: nobody uses the segment.
        make: || unsafe { libc::syscall(libc::SYS_arch_prctl, 0x1001, 0x7777_0000_usize) == 0 },
        look: || {
            let mut base = 0_usize;
            // SAFETY: a valid place.
            unsafe { libc::syscall(libc::SYS_arch_prctl, 0x1004, &raw mut base) };
            base as i64
        },
    },
    Change {
        name: "SYS_sched_setaffinity",
        // SAFETY: a valid set.
        make: || unsafe {
            let one = one_cpu();
            libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&one), &one) == 0
        },
        look: cpus,
    },
    Change {
        name: "SYS_ioprio_set",
        // SAFETY: numbers: the calling thread, idle.
        make: || unsafe { libc::syscall(libc::SYS_ioprio_set, 1, 0, 3 << 13) == 0 },
        // SAFETY: numbers.
        look: || unsafe { libc::syscall(libc::SYS_ioprio_get, 1, 0) },
    },
    Change {
        name: "SYS_setresuid",
        // SAFETY: numbers; the effective one alone.
        make: || unsafe { libc::syscall(libc::SYS_setresuid, -1, NOBODY, -1) == 0 },
        // SAFETY: it has no arguments.
        look: || unsafe { libc::geteuid().into() },
    },
    Change {
        name: "SYS_capset",
        // SAFETY: a header of version 3 and two records.
        make: || unsafe {
            let mut header = [0x2008_0522_u32, 0];
            let mut data = [0_u32; 6];
            let (header, data) = (header.as_mut_ptr(), data.as_mut_ptr());
            libc::syscall(libc::SYS_capget, header, data) == 0 && {
                *data &= !1; // CAP_CHOWN, of those that are effective
                libc::syscall(libc::SYS_capset, header, data) == 0
            }
        },
        // SAFETY: as above.
        look: || unsafe {
            let mut header = [0x2008_0522_u32, 0];
            let mut data = [0_u32; 6];
            libc::syscall(libc::SYS_capget, header.as_mut_ptr(), data.as_mut_ptr());
            i64::from(data[0] & 1)
        },
    },
];

fn gives_way(i: usize) {
    match i % 3 {
        0 => thread::yield_now(),
        1 => thread::sleep(std::time::Duration::from_micros(50)),
        _ => drop(thread::spawn(|| ()).join()),
    }
}

fn nobody_else_is_changed_by(change: &'static Change, runtime: &Runtime) {
    let (make, look) = (change.make, change.look);
    let before = runtime.spawn(look).join().unwrap();
    let changer = runtime.spawn(move || {
        let is_made = make();
        let (own, after) = (gettid(), look());
        for i in 0..6 {
            gives_way(i);
            assert!(
                !is_made || (gettid(), look()) == (own, after),
                "it has lost its kernel thread"
            );
        }
        (is_made, after)
    });
    let (is_made, after) = changer.join().unwrap();
    if !is_made || after == before {
        println!("{}: not possible here", change.name);
        return;
    }
    for i in 0..10 {
        let body = move || {
            let first = look();
            gives_way(i);
            [first, look()]
        };
        let seen = runtime.spawn(body).join().unwrap();
        assert_eq!(
            seen, [before; 2],
            "{}: a change was left behind",
            change.name
        );
    }
}

#[test]
fn a_change_of_the_kernel_thread_is_its_threads_own() {
    alone!();
    let _w = watchdog("kernel_changes::a_change_of_the_kernel_thread_is_its_threads_own");
    for processors in [1, 2] {
        let runtime = Runtime::builder().processors(processors).build().unwrap();
        let all = CHANGES.iter();
        #[cfg(feature = "unmodified")]
        let all = all.chain(&BY_NUMBER);
        all.for_each(|change| nobody_else_is_changed_by(change, &runtime));
        runtime.shutdown();
    }
}

/// What a handler changes that interrupts a thread's own code is that thread's.
#[test]
fn what_a_handler_changes_is_the_interrupted_threads() {
    const NAME: &str = "kernel_changes::what_a_handler_changes_is_the_interrupted_threads";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    extern "C" fn handler(_: c_int) {
        // SAFETY: a number.
        unsafe { libc::nice(2) };
    }
    static BY_A_HANDLER: Change = Change {
        name: "nice in a handler",
        // SAFETY: a handler of the right type.
        make: || unsafe {
            libc::signal(libc::SIGUSR1, handler as extern "C" fn(c_int) as usize);
            libc::raise(libc::SIGUSR1) == 0
        },
        look: priority,
    };
    for processors in [1, 2] {
        let runtime = Runtime::builder().processors(processors).build().unwrap();
        nobody_else_is_changed_by(&BY_A_HANDLER, &runtime);
        runtime.shutdown();
    }
}

/// A thread that only asks, or fails, is not bound to its kernel thread: others run there after it.
#[test]
fn questions_and_failures_change_nothing() {
    alone!();
    let _w = watchdog("kernel_changes::questions_and_failures_change_nothing");
    const CALLS: [fn(); 5] = [
        // SAFETY: the set is not there, and the kernel says so.
        || unsafe { assert_eq!(libc::sched_setaffinity(0, 8, std::ptr::null()), -1) },
        || assert_eq!(prctl(libc::PR_SET_NO_NEW_PRIVS, 2), -1),
        || assert!(prctl(libc::PR_GET_TIMERSLACK, 0) > 0),
        // SAFETY: questions.
        || unsafe { assert!(libc::personality(0xffff_ffff) >= 0 && libc::setfsuid(u32::MAX) >= 0) },
        // SAFETY: there is no such process.
        || unsafe { assert_eq!(libc::setpriority(libc::PRIO_PROCESS, 1 << 30, 1), -1) },
    ];
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let green = runtime.mode() == Mode::Green;
    for call in CALLS {
        let asker = runtime.spawn(move || {
            call();
            // (Not with every try: the processor may be handed to another kernel thread.)
            wait_until(|| {
                let own = gettid();
                !green || greenthread::spawn(gettid).join().unwrap() == own
            });
        });
        asker.join().unwrap();
    }
    runtime.shutdown();
}

/// A handler that makes such a call may have interrupted anything, the scheduler as well.
#[test]
fn handlers_make_such_calls() {
    const NAME: &str = "kernel_changes::handlers_make_such_calls";
    let Some(_) = child_case(NAME) else {
        return assert_code(&child(NAME, "handler"), 0);
    };
    static CAUGHT: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: c_int) {
        // SAFETY: the calls are async-signal-safe; the priority is the one that is set.
        unsafe {
            let errno = *libc::__errno_location();
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
            libc::pthread_kill(libc::pthread_self(), 0);
            *libc::__errno_location() = errno;
        }
        CAUGHT.fetch_add(1, Relaxed);
    }
    let runtime = Runtime::builder()
        .processors(2)
        .time_slice(std::time::Duration::from_micros(200))
        .build()
        .unwrap();
    // SAFETY: a handler of the right type, and a timer of the process.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut());
        let often = libc::timeval {
            tv_sec: 0,
            tv_usec: 500,
        };
        let timer = libc::itimerval {
            it_interval: often,
            it_value: often,
        };
        libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut());
    }
    let rounds = || CAUGHT.load(Relaxed) >= 200;
    let threads: Vec<_> = (0..8)
        .map(|i| {
            runtime.spawn(move || {
                let mut n = i;
                while !rounds() {
                    std::hint::black_box((0..1_000).fold(0, |sum, n| sum ^ n));
                    gives_way(n);
                    n += 1;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    std::process::exit(0);
}

/// What libc says about a thread, asked by another one.
#[test]
fn another_threads_pthread() {
    alone!();
    let _w = watchdog("kernel_changes::another_threads_pthread");
    both(|| {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let body = move || {
            let here = 0_u8;
            // SAFETY: it has no arguments.
            let own = unsafe { libc::pthread_self() };
            tell.send((own as usize, (&raw const here).addr())).unwrap();
            let _ = stopped.recv();
        };
        let other = thread::Builder::new().name("asked about".into());
        let other = other.spawn(body).unwrap();
        let (pthread, place) = told.recv().unwrap();
        let pthread = pthread as libc::pthread_t;
        let is_green = green();
        // SAFETY: the thread lives, and the places are valid.
        unsafe {
            assert_eq!(libc::pthread_kill(pthread, 0), 0, "it lives");
            assert_eq!(libc::pthread_kill(pthread, 1_000), libc::EINVAL);
            let nothing = libc::sigval {
                sival_ptr: std::ptr::null_mut(),
            };
            assert_eq!(libc::pthread_sigqueue(pthread, 0, nothing), 0, "it lives");
            if is_green {
                assert_eq!(libc::pthread_kill(pthread, libc::SIGURG), libc::ENOTSUP);
                let answer = libc::pthread_sigqueue(pthread, libc::SIGURG, nothing);
                assert_eq!(answer, libc::ENOTSUP);
            }

            let mut attributes = MaybeUninit::uninit();
            let answer = libc::pthread_getattr_np(pthread, attributes.as_mut_ptr());
            assert_eq!(answer, 0);
            let (mut bottom, mut size) = (std::ptr::null_mut(), 0);
            libc::pthread_attr_getstack(attributes.as_ptr(), &mut bottom, &mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            assert!((bottom.addr()..bottom.addr() + size).contains(&place));

            let mut name = [0; 16];
            assert_eq!(libc::pthread_getname_np(pthread, name.as_mut_ptr(), 16), 0);
            assert_eq!(CStr::from_ptr(name.as_ptr()), c"asked about");
            let answer = libc::pthread_getname_np(pthread, name.as_mut_ptr(), 15);
            assert_eq!(answer, libc::ERANGE);

            let (mut policy, mut parameter) = (-1, libc::sched_param { sched_priority: -1 });
            let answer = libc::pthread_getschedparam(pthread, &mut policy, &mut parameter);
            assert_eq!((answer, policy, parameter.sched_priority), (0, 0, 0));
            let mut set: libc::cpu_set_t = zeroed();
            let answer = libc::pthread_getaffinity_np(pthread, size_of_val(&set), &mut set);
            assert_eq!((answer, i64::from(libc::CPU_COUNT(&set))), (0, cpus()));

            let answers = [
                libc::pthread_setaffinity_np(pthread, size_of_val(&set), &set),
                libc::pthread_setschedparam(pthread, policy, &parameter),
                libc::pthread_setschedprio(pthread, 0),
            ];
            assert_eq!(answers, [if is_green { libc::ENOTSUP } else { 0 }; 3]);
        }
        drop(stop);
        other.join().unwrap();
    });
}

/// Those of threads that have ended, and addresses that are nobody's, are looked up safely.
#[test]
fn pthreads_of_threads_that_come_and_go() {
    alone!();
    let _w = watchdog("kernel_changes::pthreads_of_threads_that_come_and_go");
    if !green() {
        return;
    }
    let known: Arc<[AtomicUsize; 8]> = Arc::default();
    let threads = (0..400).map(|i| {
        let known = known.clone();
        thread::spawn(move || {
            // SAFETY: it has no arguments.
            known[i % 8].store(unsafe { libc::pthread_self() } as usize, Relaxed);
            gives_way(i);
            for other in known.iter().map(|other| other.load(Relaxed)) {
                if other != 0 {
                    // SAFETY: the control block of a green thread that lives or has lived: its memory stays.
                    let answer = unsafe { libc::pthread_kill(other as libc::pthread_t, 0) };
                    assert!([0, libc::ESRCH].contains(&answer), "{answer}");
                }
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// The kernel knows the kernel thread that has attached itself as the tracer, and no other.
#[test]
fn a_tracer_stays_where_it_is() {
    alone!();
    let _w = watchdog("kernel_changes::a_tracer_stays_where_it_is");
    static WORD: AtomicUsize = AtomicUsize::new(0x1234_5678_9abc);
    both(|| {
        // SAFETY: the child waits for its end; the parent asks the kernel for it.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                loop {
                    libc::pause();
                }
            }
            let none = std::ptr::null_mut::<libc::c_void>();
            let place = WORD.as_ptr();
            if libc::ptrace(libc::PTRACE_ATTACH, child, none, none) == 0 {
                let mut status: c_int = 0;
                let waited = libc::syscall(libc::SYS_wait4, child, &mut status, libc::__WALL, none);
                assert_eq!(waited, libc::c_long::from(child));
                for i in 0..10 {
                    gives_way(i);
                    let word = libc::ptrace(libc::PTRACE_PEEKDATA, child, place, none);
                    assert_eq!(word as usize, WORD.load(Relaxed), "turn {i}");
                }
                assert_eq!(libc::ptrace(libc::PTRACE_DETACH, child, none, none), 0);
            }
            assert_eq!(libc::ptrace(libc::PTRACE_PEEKDATA, child, place, none), -1);
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    });
}
