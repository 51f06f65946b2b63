//! Where a thread is nobody's green thread for a while: in a child that shares the memory or has copied it, and in a
//! signal handler, until that ends or is left by a jump.
//!
//! The idea: such a child calls what would park a thread. None of the parent's threads may run there, and the
//! child's code may not go on in the parent. A thread that has jumped out of a handler parks again as before. And what
//! libc says of actions is what the program has said.

#![cfg(all(feature = "unmodified", target_os = "linux", target_env = "gnu"))]

use crate::common::*;
use greenthread::runtime::Runtime;
use std::ffi::{CStr, CString, c_char, c_void};
use std::hint::black_box;
use std::mem::{transmute, zeroed};
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::*};
use std::time::Duration;

const C_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>
/* Runs `child` in a child of vfork; returns its number. */
int by_vfork(int (*child)(void *)) {
    int pid = vfork();
    if (pid == 0) _exit(child(0));
    return pid;
}
static __thread sigjmp_buf back;
static void jump(int signal) { siglongjmp(back, 1); }
/* Leaves a handler by a jump, `times` times. */
int leave(int flags, int times) {
    struct sigaction action = { .sa_handler = jump, .sa_flags = flags };
    if (sigaction(SIGUSR1, &action, 0)) return -1;
    for (volatile int i = 0; i < times; i++)
        if (!sigsetjmp(back, 1)) { raise(SIGUSR1); return -1; }
    return 0;
}
"#;

type Child = extern "C" fn(*mut c_void) -> i32;

struct Library {
    by_vfork: extern "C" fn(Child) -> i32,
    leave: extern "C" fn(i32, i32) -> i32,
}

fn library(name: &str) -> Library {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let path = format!("{directory}/{name}-{}", std::process::id());
    let (source, object) = (format!("{path}.c"), format!("{path}.so"));
    std::fs::write(&source, C_SOURCE).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o", &object, &source]);
    assert!(cc.status().expect("the C compiler").success());
    let object = CString::new(object).unwrap();
    // SAFETY: loading runs nothing but the loader; the symbols are those above, never unloaded.
    unsafe {
        let handle = libc::dlopen(object.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "{:?}", CStr::from_ptr(libc::dlerror()));
        let symbol = |name: &CStr| {
            let symbol = libc::dlsym(handle, name.as_ptr().cast::<c_char>());
            assert!(!symbol.is_null(), "{name:?}");
            symbol
        };
        Library {
            by_vfork: transmute::<*mut c_void, extern "C" fn(Child) -> i32>(symbol(c"by_vfork")),
            leave: transmute::<*mut c_void, extern "C" fn(i32, i32) -> i32>(symbol(c"leave")),
        }
    }
}

static HOME: AtomicI32 = AtomicI32::new(0);
static TARGET: AtomicI32 = AtomicI32::new(-1);

fn getpid() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getpid() }
}

/// What a child calls: it would park, or enter the scheduler, if it were the green thread.
extern "C" fn call_much(_: *mut c_void) -> i32 {
    for _ in 0..20 {
        // SAFETY: an open descriptor and a byte; a time; plain calls.
        unsafe {
            libc::write(TARGET.load(Relaxed), b"x".as_ptr().cast(), 1);
            let moment = libc::timespec {
                tv_sec: 0,
                tv_nsec: 1,
            };
            libc::nanosleep(&moment, null_mut());
            libc::sched_yield();
            if getpid() == HOME.load(Relaxed) {
                libc::abort(); // its code goes on in the parent
            }
        }
    }
    7
}

fn by_clone(flags: i32) -> i32 {
    let mut stack = vec![0_u8; 256 << 10].into_boxed_slice();
    let top = stack.as_mut_ptr_range().end.map_addr(|top| top & !15);
    // The child may still use it.
    std::mem::forget(stack);
    // SAFETY: the child's own stack, and a function that returns.
    unsafe { libc::clone(call_much, top.cast(), flags | libc::SIGCHLD, null_mut()) }
}

/// Makes a child, in one of the ways.
fn make(case: &str, library: &Library) -> i32 {
    unsafe extern "C" {
        fn _Fork() -> libc::pid_t;
    }
    // SAFETY: the child calls what is async-signal-safe, and leaves by `_exit`.
    let in_child = |pid: i32| unsafe {
        if pid == 0 {
            libc::_exit(call_much(null_mut()));
        }
        pid
    };
    match case {
        "vfork" => (library.by_vfork)(call_much),
        "shares and suspends" => by_clone(libc::CLONE_VM | libc::CLONE_VFORK),
        "shares" => by_clone(libc::CLONE_VM),
        "copies" => by_clone(0),
        // SAFETY: above.
        "_Fork" => in_child(unsafe { _Fork() }),
        // SAFETY: as `fork`, which it is.
        _ => in_child(unsafe {
            libc::syscall(
                libc::SYS_clone,
                libc::SIGCHLD,
                0usize,
                0usize,
                0usize,
                0usize,
            ) as i32
        }),
    }
}

#[test]
fn a_childs_code_stays_in_the_child() {
    const NAME: &str = "hidden::a_childs_code_stays_in_the_child";
    let _w = watchdog(NAME);
    let Some(case) = child_case(NAME) else {
        let shares = ["vfork", "shares and suspends", "shares"];
        for case in [&shares[..], &["copies", "_Fork", "by number"]].concat() {
            println!("{case}");
            assert_code(&child(NAME, case), 0);
        }
        return;
    };
    let library = library(NAME);
    HOME.store(getpid(), SeqCst);
    // SAFETY: a valid path.
    TARGET.store(
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY) },
        SeqCst,
    );
    let slice = Duration::from_millis(1);
    let runtime = Runtime::builder().processors(1).time_slice(slice);
    let runtime = runtime.build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = |i: usize| {
        let stop = stop.clone();
        move || {
            while !stop.load(Relaxed) {
                if getpid() != HOME.load(Relaxed) {
                    // SAFETY: a plain call.
                    unsafe { libc::kill(HOME.load(Relaxed), libc::SIGKILL) };
                }
                match i % 2 {
                    0 => greenthread::yield_now(),
                    _ => drop(black_box(i)),
                }
            }
        }
    };
    let others: Vec<_> = (0..4).map(|i| runtime.spawn(busy(i))).collect();
    let parent = runtime.spawn(move || {
        for _ in 0..4 {
            let pid = make(&case, &library);
            assert!(pid > 0, "{}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: a place for the status.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert!(libc::WIFEXITED(status), "{case}: {status:x}");
            assert_eq!(libc::WEXITSTATUS(status), 7);
            greenthread::yield_now();
            assert_eq!(getpid(), HOME.load(Relaxed));
        }
    });
    parent.join().unwrap();
    stop.store(true, Relaxed);
    others.into_iter().for_each(|thread| thread.join().unwrap());
    runtime.shutdown();
}

#[test]
fn a_thread_that_jumps_out_of_a_handler_parks() {
    const NAME: &str = "hidden::a_thread_that_jumps_out_of_a_handler_parks";
    let _w = watchdog(NAME);
    let Some(case) = child_case(NAME) else {
        for case in ["own stack", "alternate stack"] {
            assert_code(&child(NAME, case), 0);
        }
        return;
    };
    if !hooked() {
        return;
    }
    let flags = match case.as_str() {
        "own stack" => 0,
        _ => libc::SA_ONSTACK,
    };
    let library = library(NAME);
    let leave = library.leave;
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let woken = Arc::new(AtomicBool::new(false));
    // Far more than there are processors: were they kernel threads' from then on, there would be as many of those.
    let threads: Vec<_> = (0..100)
        .map(|_| {
            let woken = woken.clone();
            runtime.spawn(move || {
                assert_eq!(leave(flags, 3), 0);
                assert!(greenthread::current().name().is_none());
                while !woken.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(20));
                    assert_eq!(leave(flags, 1), 0);
                }
            })
        })
        .collect();
    wait_until(|| runtime.metrics().parked_calls > 500);
    let metrics = runtime.metrics();
    let kernel_threads = metrics.kernel_threads - metrics.parked_kernel_threads;
    woken.store(true, SeqCst);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(kernel_threads <= 20, "{kernel_threads} kernel threads");
    runtime.shutdown();
}

static SAW: AtomicUsize = AtomicUsize::new(0);

extern "C" fn plain(signal: i32) {
    assert_eq!(signal, libc::SIGUSR2);
    SAW.fetch_add(1, SeqCst);
}

extern "C" fn informed(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the handler's argument.
    assert_eq!(unsafe { (*info).si_signo }, signal);
    assert!(!context.is_null());
    SAW.fetch_add(100, SeqCst);
}

/// The handler and the flags that libc tells.
fn told(signal: i32) -> (usize, i32) {
    // SAFETY: zeroes are a valid action; a valid place.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        assert_eq!(libc::sigaction(signal, null(), &mut action), 0);
        const RESTORER: i32 = 0x0400_0000;
        (action.sa_sigaction, action.sa_flags & !RESTORER)
    }
}

#[test]
fn libc_tells_the_programs_own_handlers() {
    const NAME: &str = "hidden::libc_tells_the_programs_own_handlers";
    let _w = watchdog(NAME);
    let Some(_) = child_case(NAME) else {
        return assert_code(&child(NAME, ""), 0);
    };
    unsafe extern "C" {
        fn sigset(signal: i32, handler: usize) -> usize;
        fn siginterrupt(signal: i32, interrupts: i32) -> i32;
    }
    const HOLD: usize = 2;
    both(|| {
        let signal = libc::SIGUSR2;
        let (first, second) = (plain as *const () as usize, informed as *const () as usize);
        // SAFETY: handlers of these types; valid places.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            let mut old: libc::sigaction = zeroed();
            action.sa_sigaction = second;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(signal, &action, null_mut()), 0);
            assert_eq!(told(signal), (second, libc::SA_SIGINFO));
            assert_eq!(libc::signal(signal, first), second);
            assert_eq!(told(signal), (first, libc::SA_RESTART));
            assert_eq!(siginterrupt(signal, 1), 0);
            assert_eq!(told(signal), (first, 0));
            assert_eq!(libc::signal(signal, first), first);
            assert_eq!(told(signal), (first, 0));
            assert_eq!(siginterrupt(signal, 0), 0);
            assert_eq!(told(signal), (first, libc::SA_RESTART));
            assert_eq!(sigset(signal, HOLD), first);
            let before = SAW.load(SeqCst);
            libc::raise(signal);
            assert_eq!(SAW.load(SeqCst), before);
            // It was pending until then.
            assert_eq!(sigset(signal, first), HOLD);
            assert_eq!(SAW.load(SeqCst), before + 1);
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
            assert_eq!(libc::sigaction(signal, &action, &mut old), 0);
            assert_eq!(old.sa_sigaction, first);
            let before = SAW.load(SeqCst);
            libc::raise(signal);
            assert_eq!(SAW.load(SeqCst), before + 100);
            assert_eq!(told(signal).0, libc::SIG_DFL);
            assert_eq!(libc::signal(signal, libc::SIG_IGN), libc::SIG_DFL);
            assert_eq!(libc::signal(signal, libc::SIG_DFL), libc::SIG_IGN);
            assert_eq!(libc::signal(0, first), libc::SIG_ERR);
        }
    });
}

/// The signal that preempts is taken: libc says so of its own signals, too.
#[test]
fn the_preemption_signal_keeps_its_handler() {
    const NAME: &str = "hidden::the_preemption_signal_keeps_its_handler";
    let _w = watchdog(NAME);
    let Some(_) = child_case(NAME) else {
        return assert_code(&child(NAME, ""), 0);
    };
    if !green() {
        return;
    }
    let slice = Duration::from_millis(1);
    let runtime = Runtime::builder().processors(1).time_slice(slice);
    let runtime = runtime.build().unwrap();
    let refused = (libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|&signal| {
        let (before, _) = told(signal);
        unsafe extern "C" {
            fn sigignore(signal: i32) -> i32;
            fn siginterrupt(signal: i32, interrupts: i32) -> i32;
        }
        // SAFETY: a handler of the right type, for a signal that nobody sends.
        let refused = unsafe { libc::signal(signal, plain as *const () as usize) } == libc::SIG_ERR;
        if refused {
            let error = std::io::Error::last_os_error().raw_os_error();
            assert_eq!(error, Some(libc::EINVAL));
            assert_ne!(before, libc::SIG_DFL);
            // SAFETY: it is asked only.
            let ignored = unsafe { libc::signal(signal, libc::SIG_IGN) };
            assert_eq!(ignored, libc::SIG_ERR);
            // SAFETY: it is refused.
            assert_eq!(unsafe { sigignore(signal) }, -1);
            // SAFETY: the same.
            assert_eq!(unsafe { siginterrupt(signal, 1) }, -1);
            #[cfg(feature = "unmodified")]
            // SAFETY: the kernel's record of an action.
            unsafe {
                let ignores = [libc::SIG_IGN; 4];
                let number = libc::SYS_rt_sigaction;
                let answer = libc::syscall(number, signal, ignores.as_ptr(), 0_usize, 8_usize);
                assert_eq!(answer, -1);
            }
        }
        refused
    });
    assert_eq!(refused.count(), 1);
    let stop = Arc::new(AtomicBool::new(false));
    let hog = || {
        let stop = stop.clone();
        move || {
            while !stop.load(Relaxed) {
                black_box(&stop);
            }
        }
    };
    let hogs = [runtime.spawn(hog()), runtime.spawn(hog())];
    let before = runtime.metrics().preemptions;
    wait_until(|| runtime.metrics().preemptions > before + 20);
    stop.store(true, Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    runtime.shutdown();
}
