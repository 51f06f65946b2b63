//! A library can be unloaded while other threads resolve symbols: `dlclose` waits for them.
//!
//! The idea: a kernel thread loads a library into the global scope and unloads it again, all the
//! time. Green threads call functions for the first time, which the loader must look up. The names
//! all have the same hash value, and so have thousands of names in that library: a look-up is in it
//! nearly always, and finds itself in unmapped memory if nobody waits for it.
//!
//! And whoever waits may hold the loader's lock, which it does in constructors and destructors: who
//! helps it must not need that lock, nor keep a CPU busy for as long as a destructor takes.

use crate::common::*;
use greenthread as thread;
use std::ffi::{CStr, CString, c_void};
use std::fmt::Write;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

const NAME: &str = "unloading::who_resolves_symbols_is_waited_for";
const THREADS: usize = 4;
/// Names are so many pairs of letters that count the same, and one more.
const PAIRS: u32 = 11;
const CALLS: u32 = 64;

/// Name `n` of those that end in `last`.
fn name(n: u32, last: &str) -> String {
    let pair = |i| ["ar", "bb"][(n >> i & 1) as usize];
    (0..PAIRS).map(pair).collect::<String>() + last
}

fn path(what: &str) -> String {
    format!("{}/unloading-{what}", env!("CARGO_TARGET_TMPDIR"))
}

fn compile(what: &str, text: &str, more: &[&str]) {
    let (source, object) = (path(what) + ".c", path(what) + ".so");
    std::fs::write(&source, text).unwrap();
    let flags = ["-shared", "-fPIC", "-Wl,--hash-style=sysv,-z,lazy"];
    let mut cc = Command::new("cc");
    cc.args(flags).args(["-o", &object, &source]).args(more);
    assert!(cc.status().expect("the C compiler").success());
}

fn compile_all() {
    let mut text = String::new();
    (0..1 << PAIRS).for_each(|n| writeln!(text, "void {}(void) {{}}", name(n, "ar")).unwrap());
    compile("global", &text, &[]);
    text.clear();
    (0..CALLS).for_each(|n| writeln!(text, "void {}(void) {{}}", name(n, "bb")).unwrap());
    compile("needed", &text, &[]);
    text.clear();
    for n in 0..CALLS {
        writeln!(text, "void {}(void);", name(n, "bb")).unwrap();
    }
    writeln!(text, "void call_all(void) {{").unwrap();
    (0..CALLS).for_each(|n| writeln!(text, "{}();", name(n, "bb")).unwrap());
    writeln!(text, "}}").unwrap();
    for i in 0..THREADS {
        compile(&format!("caller{i}"), &text, &[&(path("needed") + ".so")]);
    }
}

fn open(what: &str, flags: i32) -> *mut c_void {
    let object = CString::new(path(what) + ".so").unwrap();
    // SAFETY: the constructors of these libraries may run anywhere.
    let handle = unsafe { libc::dlopen(object.as_ptr(), libc::RTLD_LAZY | flags) };
    // SAFETY: the message is there, since the call failed.
    assert!(!handle.is_null(), "{:?}", unsafe {
        CStr::from_ptr(libc::dlerror())
    });
    handle
}

fn close(handle: *mut c_void) {
    // SAFETY: a handle of `open`; nothing of the library is used any more.
    assert_eq!(unsafe { libc::dlclose(handle) }, 0);
}

#[test]
fn who_resolves_symbols_is_waited_for() {
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        compile_all();
        let out = child(NAME, "only");
        assert_code(&out, 0);
        return println!("{}", said(&out));
    }
    let end = Instant::now() + stress_time();
    let resolved = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let caller = |i: usize| {
        let (stop, resolved) = (stop.clone(), resolved.clone());
        let what = format!("caller{i}");
        move || {
            while !stop.load(Relaxed) {
                let library = open(&what, libc::RTLD_LOCAL);
                // SAFETY: the function's type is that in `compile_all`.
                unsafe {
                    let call_all = libc::dlsym(library, c"call_all".as_ptr());
                    std::mem::transmute::<*mut c_void, extern "C" fn()>(call_all)();
                }
                resolved.fetch_add(CALLS as usize, Relaxed);
                close(library);
            }
        }
    };
    let callers: Vec<_> = (0..THREADS).map(|i| thread::spawn(caller(i))).collect();
    let mut unloaded = 0;
    while Instant::now() < end || resolved.load(Relaxed) == 0 {
        close(open("global", libc::RTLD_GLOBAL));
        unloaded += 1;
    }
    stop.store(true, Relaxed);
    callers.into_iter().for_each(|c| c.join().unwrap());
    let resolved = resolved.load(Relaxed);
    println!("{unloaded} times unloaded, {resolved} symbols resolved");
    assert!(unloaded > 0 && resolved > 0);
}

/// Runs `case` in a process of its own, after a green thread has run there.
fn run(name: &'static str, case: fn()) {
    let _w = watchdog(name);
    if child_case(name).is_some() {
        thread::spawn(|| ()).join().unwrap();
        return case();
    }
    let out = child(name, "");
    println!("{}", said(&out));
    assert_code(&out, 0);
}

#[test]
fn constructors_and_destructors_unload() {
    run("unloading::constructors_and_destructors_unload", || {
        compile("inner", "", &[]);
        let object = path("inner") + ".so";
        let inner = format!("dlopen(\"{object}\", RTLD_LAZY)");
        let first = "__attribute__((constructor)) void first(void)";
        let last = "__attribute__((destructor)) void last(void)";
        let texts = [
            (
                "keeps",
                format!("void *l; {first} {{ l = {inner}; }} {last} {{ dlclose(l); }}"),
            ),
            ("closes", format!("{first} {{ dlclose({inner}); }}")),
            ("ends", format!("{last} {{ dlclose({inner}); }}")),
        ];
        for (what, text) in texts {
            compile(what, &format!("#include <dlfcn.h>\n{text}\n"), &["-ldl"]);
        }
        both(|| {
            for what in ["keeps", "closes", "ends"] {
                close(open(what, libc::RTLD_LOCAL));
            }
        });
    });
}

/// A thread that ends while a library is unloaded leaves its memory behind, since its name may be looked at. It is
/// freed, though nobody asks for a report.
#[test]
fn what_threads_leave_behind_meanwhile_is_freed() {
    run(
        "unloading::what_threads_leave_behind_meanwhile_is_freed",
        || {
            const TIMES: usize = 3_000;
            compile("empty", "", &[]);
            let unload = || close(open("empty", libc::RTLD_GLOBAL));
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = stop.clone();
            let spawner = thread::spawn(move || {
                while !stopped.load(Relaxed) {
                    let kept = [1u8; 3_000];
                    thread::spawn(move || _ = black_box(&kept)).join().unwrap();
                }
            });
            (0..TIMES / 10).for_each(|_| unload());
            let before = resident();
            (0..TIMES).for_each(|_| unload());
            let more = resident().saturating_sub(before);
            stop.store(true, Relaxed);
            spawner.join().unwrap();
            println!("{more} bytes more after {TIMES} times");
            assert!(more < 2 << 20, "{more} bytes more");
        },
    );
}

/// The kernel threads of this process that stand in for green ones.
fn proxies() -> impl Iterator<Item = String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let read = |task: &std::path::Path, what| std::fs::read_to_string(task.join(what));
    tasks.filter_map(move |task| {
        let task = task.unwrap().path();
        let is_proxy = read(&task, "comm").is_ok_and(|name| name.starts_with("gt-unload"));
        is_proxy.then(|| read(&task, "status").ok())?
    })
}

/// How long a destructor takes, in milliseconds, and how often the proxy has slept since it began.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static SLEPT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn take_long() {
    let sleeps = || {
        let count = |status: String| -> usize {
            let line = status.lines().find(|line| line.starts_with("voluntary"));
            line.unwrap().rsplit('\t').next().unwrap().parse().unwrap()
        };
        proxies().map(count).sum::<usize>()
    };
    let (start, before) = (Instant::now(), sleeps());
    std::thread::sleep(Duration::from_millis(300));
    SLEPT.store(sleeps() - before, Relaxed);
    TAKEN.store(start.elapsed().as_millis() as usize, Relaxed);
}

/// It waits ever longer, up to a millisecond.
#[test]
fn a_long_destructor_is_waited_for_quietly() {
    run("unloading::a_long_destructor_is_waited_for_quietly", || {
        let text = "void (*last)(void); __attribute__((destructor)) void out(void) { last(); }";
        compile("long", text, &[]);
        let library = open("long", libc::RTLD_LOCAL);
        // SAFETY: the variable's type is that in `text`.
        unsafe { *libc::dlsym(library, c"last".as_ptr()).cast() = take_long as extern "C" fn() };
        close(library);
        let (taken, slept) = (TAKEN.load(Relaxed), SLEPT.load(Relaxed));
        println!("{taken} ms, in which the proxy slept {slept} times");
        assert!(taken > 0 && (slept > 0 || !green()));
        assert!(slept <= taken + 10, "{slept} times in {taken} ms");
    });
}
