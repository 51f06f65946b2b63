//! Where green threads meet the process: fork, programs started, C's large frames, libraries loaded
//! late.
//!
//! The idea: a forked child consists of the thread that forked and of nothing else, and it can go
//! on with the same API; a frame that jumps over a page still hits the guard; a library loaded
//! while threads exist finds its thread-locals right in all of them.
//!
//! The C library is compiled at test time with the `cc` that Rust links with.

use crate::checking_allocator::{HELD_SIZE, HOLDS};
use crate::common::*;
use greenthread as thread;
use greenthread::Builder;
use greenthread::runtime::{Mode, Runtime};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Counters that parent and child see alike.
fn shared_counter() -> &'static AtomicUsize {
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a fresh zeroed mapping of a page that is never unmapped, aligned for any counter.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*page.cast::<AtomicUsize>()
    }
}

fn getpid() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getpid() }
}

/// How many seconds a child has before it counts as hanging. Each generation has less than the one
/// that waits for it: so the first to stop is the one that hangs.
static PATIENCE: AtomicU32 = AtomicU32::new(50);

/// Forks; the child runs `part` and exits with its code, without unwinding into the test. If it
/// hangs, it stops, for `wait` to look at it.
fn fork(part: impl FnOnce() -> i32) -> i32 {
    unsafe extern "C" fn stop(_: i32) {
        // SAFETY: both are async-signal-safe.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
    // SAFETY: the child only uses what must work after a fork, and leaves by `_exit` or `exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: plain calls, and a handler of the right type.
        unsafe {
            libc::signal(libc::SIGALRM, stop as *const () as libc::sighandler_t);
            libc::alarm(PATIENCE.fetch_sub(10, Relaxed));
            libc::_exit(part())
        }
    }
    pid
}

fn wait(pid: i32) -> ExitStatus {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    while unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) } < 0 {
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::EINTR)
        );
    }
    let status = ExitStatus::from_raw(status);
    if status.stopped_signal().is_none() {
        return status;
    }
    // SAFETY: a plain call. We may be a child ourselves, and are not to be stopped over this.
    unsafe { libc::alarm(0) };
    // Past the test's capture, which a forked child does not have.
    let _ = std::io::stderr().write_all(state_of(pid).as_bytes());
    let _ = std::io::stderr().write_all(backtraces_of(pid).as_bytes());
    // SAFETY: a plain call, about our own child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    wait(pid)
}

/// What the threads of a stopped child are at: for whoever reads why a test failed.
fn state_of(pid: i32) -> String {
    let mut text = format!("child {pid} hangs:\n");
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (name, call) = (read("comm"), read("syscall"));
        let _ = writeln!(text, "{name:?} in system call {call:?}");
    }
    text
}

/// The same in more detail, which takes longer.
fn backtraces_of(pid: i32) -> String {
    let backtraces = Command::new("gdb")
        .args(["-batch", "-ex", "thread apply all backtrace", "-p"])
        .arg(pid.to_string())
        .stdin(Stdio::null())
        .output();
    match backtraces {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("no backtraces, for there is no gdb: {error}\n"),
    }
}

/// What a forked child must still be able to do; returns a code that says how far it came.
fn life_of_a_child(generation: usize) -> i32 {
    let map: HashMap<usize, Vec<u8>> = (0..1000).map(|i| (i, vec![i as u8; i])).collect();
    if map.values().map(Vec::len).sum::<usize>() != 499_500 {
        return 1;
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(3) {
        black_box(&map); // gives intruders the time to show
    }
    (0..20).for_each(|_| thread::yield_now());
    let me = gettid();
    match Builder::new()
        .name("of the child".into())
        .spawn(move || (gettid() != me, 6 * 7))
    {
        Err(_) => return 2,
        Ok(handle) if handle.thread().name() != Some("of the child") => return 3,
        Ok(handle) => match handle.join() {
            Ok((true, 42)) => (),
            _ => return 4,
        },
    }
    let mut sum = [0; 4];
    thread::scope(|s| {
        sum.iter_mut()
            .enumerate()
            .for_each(|(i, n)| drop(s.spawn(move || *n = i)))
    });
    if sum.iter().sum::<usize>() != 6 {
        return 5;
    }
    thread::sleep(Duration::from_micros(100));
    thread::park_timeout(Duration::from_micros(100));
    thread::current().unpark();
    thread::park();
    let parked = thread::spawn(thread::park);
    parked.thread().unpark();
    if parked.join().is_err() || thread::blocking(|| 5) != 5 {
        return 6;
    }
    // A runtime of its own has kernel threads: the queues and descriptors of green ones are the parent's.
    let Ok(own) = Runtime::builder().processors(1).build() else {
        return 9;
    };
    if own.mode() != Mode::Kernel || own.spawn(|| 7).join().ok() != Some(7) {
        return 10;
    }
    own.shutdown();
    if Runtime::builder().mode(Mode::Green).build().is_ok()
        || Runtime::global().mode() != Mode::Kernel
    {
        return 11;
    }
    if generation < 2 && wait(fork(|| life_of_a_child(generation + 1))).code() != Some(7) {
        return 8;
    }
    if generation == 2 {
        // With all that runs at exit, but for std's part, which takes the lock that its threads
        // take. SAFETY: no other thread runs any more.
        unsafe { libc::exit(7) }
    }
    7
}

#[track_caller]
fn assert_life(status: ExitStatus) {
    assert_eq!(status.code(), Some(7), "the child's end: {status}");
}

/// Sixteen threads, busy in different ways, that count every step one of them takes outside this
/// process.
fn with_busy_threads(body: impl FnOnce()) {
    let (intruders, home) = (shared_counter(), getpid());
    let (stop, started) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let busy = |i: usize| {
        let (stop, started) = (stop.clone(), started.clone());
        move || {
            started.fetch_add(1, SeqCst);
            while !stop.load(Relaxed) {
                if getpid() != home {
                    intruders.fetch_add(1, SeqCst);
                }
                match i % 4 {
                    0 => thread::yield_now(),
                    1 => thread::sleep(Duration::from_micros(50)),
                    2 => drop(black_box(vec![i; 100])), // a hog, often within malloc
                    _ => thread::park_timeout(Duration::from_micros(50)),
                }
            }
        }
    };
    let threads: Vec<_> = (0..16).map(|i| thread::spawn(busy(i))).collect();
    wait_until(|| started.load(SeqCst) == 16);
    body();
    stop.store(true, Relaxed);
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(
        intruders.load(SeqCst),
        0,
        "green threads ran in a forked child"
    );
}

#[test]
fn a_fork_in_a_green_thread_takes_only_that_thread() {
    alone!();
    let _w = watchdog("edges::a_fork_in_a_green_thread_takes_only_that_thread");
    with_busy_threads(|| {
        let fork_some = || {
            for _ in 0..5 {
                assert_life(wait(fork(|| life_of_a_child(1))));
                thread::yield_now();
            }
        };
        let forkers: Vec<_> = (0..4).map(|_| thread::spawn(fork_some)).collect();
        forkers.into_iter().for_each(|f| f.join().unwrap());
    });
}

#[test]
fn a_fork_in_a_kernel_thread_takes_no_green_ones() {
    alone!();
    let _w = watchdog("edges::a_fork_in_a_kernel_thread_takes_no_green_ones");
    with_busy_threads(|| {
        for _ in 0..10 {
            assert_life(wait(fork(|| life_of_a_child(1))));
        }
    });
}

/// std takes a lock of the whole process at the start and at the end of each of its threads. If
/// one of them holds it at the fork, the child inherits a lock that nobody will release.
#[test]
fn a_fork_while_a_kernel_thread_ends_can_spawn() {
    alone!();
    const SIZE: usize = 98_765;
    let _w = watchdog("edges::a_fork_while_a_kernel_thread_ends_can_spawn");
    // A helper of the runtime's starts at the first wait for a child; it is a thread of std's, too.
    let first = thread::spawn(|| wait(fork(|| life_of_a_child(1))));
    assert_life(first.join().unwrap());
    let flag = || Arc::new(AtomicBool::new(false));
    let (runs, go, id) = (flag(), flag(), Arc::new(AtomicI32::new(0)));
    let forker = thread::spawn({
        let (go, runs) = (go.clone(), runs.clone());
        move || {
            runs.store(true, Relaxed);
            wait_until(|| go.load(Relaxed));
            wait(fork(|| life_of_a_child(1)))
        }
    });
    // In kernel-thread mode it needs the lock itself, to start and to end.
    wait_until(|| runs.load(Relaxed));
    HELD_SIZE.store(SIZE, Relaxed);
    // std keeps a copy of the name, and releases it under that lock.
    let builder = std::thread::Builder::new().name("x".repeat(SIZE));
    let its_id = id.clone();
    let ending = builder
        .spawn(move || its_id.store(gettid(), Relaxed))
        .unwrap();
    wait_until(|| {
        let started = id.load(Relaxed) != 0;
        let lives = || std::fs::exists(format!("/proc/self/task/{}", id.load(Relaxed))).unwrap();
        HOLDS.load(Relaxed) || started && !lives()
    });
    println!("a kernel thread is held: {}", HOLDS.load(Relaxed));
    go.store(true, Relaxed);
    wait_until(|| forker.is_finished());
    HELD_SIZE.store(0, Relaxed);
    ending.join().unwrap();
    assert_life(forker.join().unwrap());
}

#[test]
fn green_threads_run_programs() {
    alone!();
    let _w = watchdog("edges::green_threads_run_programs");
    thread::scope(|s| {
        for i in 0..8 {
            s.spawn(move || {
                for n in 0..5 {
                    let mut echo = Command::new("echo");
                    if n % 2 == 0 {
                        // SAFETY: the closure only touches memory of its own. It makes std fork,
                        // not posix_spawn.
                        unsafe {
                            echo.pre_exec(|| {
                                drop(black_box(vec![1u8; 100]));
                                Ok(())
                            })
                        };
                    }
                    let out = echo.arg(format!("{i} {n}")).output().unwrap();
                    assert!(out.status.success());
                    assert_eq!(String::from_utf8_lossy(&out.stdout), format!("{i} {n}\n"));
                }
                assert!(Command::new("/nonexistent/program").spawn().is_err());
                let mut cat = Command::new("cat")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap();
                assert!(cat.try_wait().unwrap().is_none());
                cat.kill().unwrap();
                assert_eq!(cat.wait().unwrap().signal(), Some(libc::SIGKILL));
                assert_eq!(
                    Command::new("sh")
                        .args(["-c", "exit 9"])
                        .status()
                        .unwrap()
                        .code(),
                    Some(9)
                );
            });
        }
    });
}

const C_SOURCE: &str = r"
#include <alloca.h>
static __thread int counter = 42;
static __thread char zeros[200];
int get(void) { for (int i = 0; i < 200; i++) if (zeros[i]) return -1; return counter; }
void set(int value) { counter = value; zeros[100] = 0; }
void *place(void) { return &counter; }
void touch_below(long size) { volatile char *frame = alloca(size); frame[0] = 1; }
";

/// The C source above as a shared object with the given TLS model.
struct Library {
    get: extern "C" fn() -> i32,
    set: extern "C" fn(i32),
    place: extern "C" fn() -> *mut c_void,
    touch_below: extern "C" fn(i64),
}

fn compile(name: &str, tls_model: &str) -> CString {
    let path = format!(
        "{}/{name}-{}",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    let (source, object) = (format!("{path}.c"), format!("{path}.so"));
    std::fs::write(&source, C_SOURCE).unwrap();
    let flags = [
        "-shared",
        "-fPIC",
        "-O1",
        "-fno-stack-clash-protection",
        "-fno-stack-protector",
    ];
    let mut cc = Command::new("cc");
    cc.args(flags)
        .arg(format!("-ftls-model={tls_model}"))
        .args(["-o", &object, &source]);
    assert!(cc.status().expect("the C compiler").success());
    CString::new(object).unwrap()
}

fn load(object: &CStr) -> Library {
    // SAFETY: loading runs nothing but the loader; the symbols are those of `C_SOURCE`, never
    // unloaded.
    unsafe {
        let handle = libc::dlopen(object.as_ptr(), libc::RTLD_NOW);
        assert!(
            !handle.is_null(),
            "dlopen: {:?}",
            CStr::from_ptr(libc::dlerror())
        );
        let symbol = |name: &CStr| {
            let symbol = libc::dlsym(handle, name.as_ptr().cast::<c_char>());
            assert!(!symbol.is_null(), "{name:?}");
            symbol
        };
        Library {
            get: std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(symbol(c"get")),
            set: std::mem::transmute::<*mut c_void, extern "C" fn(i32)>(symbol(c"set")),
            place: std::mem::transmute::<*mut c_void, extern "C" fn() -> *mut c_void>(symbol(
                c"place",
            )),
            touch_below: std::mem::transmute::<*mut c_void, extern "C" fn(i64)>(symbol(
                c"touch_below",
            )),
        }
    }
}

#[test]
fn a_large_frame_of_c_hits_the_guard() {
    const NAME: &str = "edges::a_large_frame_of_c_hits_the_guard";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        let library = load(&compile(NAME, "global-dynamic"));
        let (parked, turn) = (Arc::new(AtomicUsize::new(0)), 8);
        let neighbour = |i: usize| {
            let (parked, touch_below) = (parked.clone(), library.touch_below);
            move || {
                parked.fetch_add(1, SeqCst);
                loop {
                    thread::park();
                    if i == turn {
                        touch_below(48 << 10);
                        std::process::exit(3) // reached only if that went unnoticed
                    }
                }
            }
        };
        let builder = |i| {
            Builder::new()
                .name(format!("neighbour {i}"))
                .stack_size(32 << 10)
        };
        let threads: Vec<_> = (0..16)
            .map(|i| builder(i).spawn(neighbour(i)).unwrap())
            .collect();
        wait_until(|| parked.load(SeqCst) == 16);
        threads[turn].thread().unpark();
        wait_until(|| threads.iter().any(|t| t.is_finished())); // never: the process ends
    }
    if !green() {
        return println!("skipped: kernel threads have the guard of one page that libc gives them");
    }
    let out = child(NAME, "");
    assert_signal(&out, libc::SIGABRT);
    line_with(&out, &["thread 'neighbour 8'", "has overflowed its stack"]);
}

#[test]
fn a_library_loaded_late_has_its_thread_locals_everywhere() {
    alone!();
    let _w = watchdog("edges::a_library_loaded_late_has_its_thread_locals_everywhere");
    let name = "edges::a_library_loaded_late_has_its_thread_locals_everywhere";
    let object = compile(name, "global-dynamic");
    static LIBRARY: std::sync::OnceLock<Library> = std::sync::OnceLock::new();
    let places = Arc::new(Mutex::new(HashSet::new()));
    let use_it = |i: i32| {
        let places = places.clone();
        move || {
            wait_until(|| LIBRARY.get().is_some());
            let library = LIBRARY.get().unwrap();
            assert_eq!(
                (library.get)(),
                42,
                "thread {i} does not find the initial value"
            );
            let place = (library.place)() as usize;
            assert!(
                places.lock().unwrap().insert(place),
                "two live threads share a thread-local"
            );
            for n in 0..50 {
                (library.set)(i * n);
                thread::yield_now();
                assert_eq!((library.get)(), i * n);
                assert_eq!((library.place)() as usize, place);
            }
            assert!(places.lock().unwrap().remove(&place));
        }
    };
    let before: Vec<_> = (0..20).map(|i| thread::spawn(use_it(i))).collect();
    let loader = thread::spawn(move || LIBRARY.set(load(&object)).is_ok()); // loaded by a green thread
    assert!(loader.join().unwrap());
    before.into_iter().for_each(|b| b.join().unwrap());
    for _ in 0..5 {
        // fresh threads, later on recycled blocks
        let after: Vec<_> = (0..50).map(|i| thread::spawn(use_it(i))).collect();
        after.into_iter().for_each(|a| a.join().unwrap());
    }
    use_it(100)();
    std::thread::spawn(use_it(101)).join().unwrap();
}

/// Initial-exec thread-locals of a late library sit in every thread's static block, which the
/// loader cannot find in green threads: the runtime brings them up to date, or says on stderr that
/// it cannot.
#[test]
fn a_library_with_static_thread_locals_is_served_or_reported() {
    const NAME: &str = "edges::a_library_with_static_thread_locals_is_served_or_reported";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        let object = compile(NAME, "initial-exec");
        static LIBRARY: std::sync::OnceLock<Library> = std::sync::OnceLock::new();
        let read = || {
            wait_until(|| LIBRARY.get().is_some());
            (LIBRARY.get().unwrap().get)()
        };
        let before: Vec<_> = (0..20).map(|_| thread::spawn(read)).collect();
        (0..20).for_each(|_| thread::spawn(|| ()).join().unwrap()); // leave recycled blocks about
        assert!(LIBRARY.set(load(&object)).is_ok());
        let after: Vec<_> = (0..50).map(|_| thread::spawn(read)).collect();
        let values = before.into_iter().chain(after).map(|h| h.join().unwrap());
        println!("stale: {}", values.filter(|value| *value != 42).count());
        return;
    }
    let out = child(NAME, "");
    assert_code(&out, 0);
    if !said(&out).contains("stale: 0\n") {
        line_with(&out, &["greenthread", "thread-local"]);
    }
}
