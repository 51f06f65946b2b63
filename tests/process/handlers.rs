//! A program's own signal handlers run at any time, also in the middle of the scheduler. What they
//! find under their thread pointer is theirs alone for as long as they run: no other kernel thread
//! runs under it meanwhile.
//!
//! The idea: signals come all the time, at every kernel thread. The handler stays for a while, and
//! looks at thread-locals that threads change all the time, and so do other handlers. Which thread's they
//! are is not promised: between two green threads the scheduler may run under the last one's thread
//! pointer, until others can get hold of that thread.

use crate::common::*;
use greenthread::runtime::Runtime;
use greenthread::{self as thread, Thread};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

thread_local! {
    /// Counts what this thread does.
    static DONE: AtomicUsize = const { AtomicUsize::new(0) };
    /// The kernel thread with a handler under this thread pointer.
    static HANDLES_ON: AtomicI32 = const { AtomicI32::new(0) };
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);
/// Handlers that interrupted code on a stack far from their thread pointer: the scheduler's.
static BETWEEN: AtomicUsize = AtomicUsize::new(0);
static SHARED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let tid = gettid();
    // SAFETY: the handler's argument.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    #[cfg(target_arch = "x86_64")]
    let sp = context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let sp = context.uc_mcontext.sp as usize;
    DONE.with(|done| {
        HANDLES_ON.with(|handles_on| {
            let far = (&raw const *done as usize).abs_diff(sp) > 8 << 20;
            let mut shared = handles_on.swap(tid, SeqCst) != 0;
            let before = done.load(SeqCst);
            let end = Instant::now() + Duration::from_micros(100);
            while Instant::now() < end {
                shared |= done.load(SeqCst) != before || handles_on.load(SeqCst) != tid;
            }
            handles_on.store(0, SeqCst);
            HANDLED.fetch_add(1, SeqCst);
            BETWEEN.fetch_add(usize::from(far), SeqCst);
            SHARED.fetch_add(usize::from(shared), SeqCst);
        })
    });
}

/// A signal to each kernel thread of the process but this one.
fn signal_all() {
    let process = std::process::id() as i32;
    for entry in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let tid: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
        if tid != gettid() {
            // One after the other: the rest must go on while a handler stays.
            std::thread::sleep(Duration::from_micros(100));
            // SAFETY: a plain system call; the thread may be gone.
            unsafe { libc::syscall(libc::SYS_tgkill, process, tid, libc::SIGUSR1) };
        }
    }
}

#[test]
fn a_handlers_thread_locals_are_its_own() {
    const NAME: &str = "handlers::a_handlers_thread_locals_are_its_own";
    const SIGNALS: usize = 4_000;
    let _w = watchdog(NAME);
    let Some(case) = child_case(NAME) else {
        for case in ["before", "after"] {
            let out = child(NAME, case);
            assert_code(&out, 0);
            println!("{}", said(&out));
        }
        return;
    };
    // SAFETY: all zero is a valid sigaction, then filled in; the handler is async-signal-safe.
    let install = || unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
    };
    if case == "before" {
        install();
    }
    let slice = Duration::from_millis(1);
    let runtime = Runtime::builder().processors(4).time_slice(slice).build();
    let runtime = runtime.expect("a runtime");
    let stop = Arc::new(AtomicBool::new(false));
    let all = Arc::new(OnceLock::<Vec<Thread>>::new());
    let body = |i: usize| {
        let (stop, all) = (stop.clone(), all.clone());
        move || {
            let mut n = i;
            while !stop.load(Relaxed) {
                DONE.with(|done| done.fetch_add(1, SeqCst));
                let somebody = all.get().map(|all| &all[n % all.len()]);
                match n % 50 {
                    0 => thread::sleep(Duration::from_micros(50)),
                    1 => drop(thread::spawn(|| ()).join()),
                    2 => thread::blocking(|| ()),
                    3..25 => thread::yield_now(),
                    _ => {
                        somebody.inspect(|somebody| somebody.unpark());
                        thread::park_timeout(Duration::from_micros(100));
                    }
                }
                n += 7;
            }
        }
    };
    let threads: Vec<_> = (0..16).map(|i| runtime.spawn(body(i))).collect();
    let them = threads.iter().map(|t| t.thread().clone());
    all.set(them.collect()).expect("set once");
    if case == "after" {
        install();
    }
    while HANDLED.load(SeqCst) < SIGNALS {
        signal_all();
    }
    stop.store(true, Relaxed);
    threads.into_iter().for_each(|t| t.join().unwrap());
    runtime.shutdown();
    let [handled, between, shared] = [&HANDLED, &BETWEEN, &SHARED].map(|n| n.load(SeqCst));
    println!("{handled} handlers, {between} between two threads, {shared} not alone");
    assert_eq!(shared, 0);
}
