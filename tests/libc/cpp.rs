//! A shared library of C++, compiled here if there is a compiler: its locks, conditions and `call_once` reach the hooks.

#![cfg(all(
    feature = "unmodified",
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use crate::common::directory::Directory;
use crate::common::pthread::*;
use crate::common::*;
use std::ffi::CString;

/// C++ in a shared library that knows nothing of green threads.
const LIBRARY: &str = r#"
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>

static std::mutex lock;
static std::condition_variable changed;
static std::condition_variable_any changed_any;
static std::shared_mutex shared;
static std::once_flag once;
static long turn, tries;

extern "C" long pass(long who, long all, long turns) {
    long waited = 0;
    for (long i = 0; i < turns; i++) {
        std::unique_lock<std::mutex> guard(lock);
        while (turn % all != who) { waited++; changed.wait(guard); }
        turn++;
        changed.notify_all();
    }
    return waited;
}

extern "C" long hold(long (*wait)()) {
    std::unique_lock<std::shared_mutex> guard(shared);
    return wait();
}

extern "C" long look(void) {
    std::shared_lock<std::shared_mutex> guard(shared);
    return turn;
}

extern "C" long times_out(void) {
    std::unique_lock<std::mutex> guard(lock);
    return changed_any.wait_for(guard, std::chrono::milliseconds(2)) == std::cv_status::timeout;
}

extern "C" long begin(void) {
    try {
        std::call_once(once, [] { if (++tries < 4) throw std::runtime_error("not yet"); });
    } catch (std::runtime_error &) {
        return 1;
    }
    return 0;
}
"#;

#[test]
fn a_library_of_cpp_parks() {
    let _w = watchdog("cpp::a_library_of_cpp_parks");
    let directory = Directory::new();
    let source = directory.file("library.cpp", LIBRARY.as_bytes());
    let library = directory.path("library.so");
    let compiled = std::process::Command::new("c++")
        .args(["-std=c++17", "-O1", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        return println!("skipped: no C++ compiler");
    }
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: a library with functions of these types.
    unsafe {
        let library = dlopen(path.as_ptr(), RTLD_NOW);
        assert!(!library.is_null());
        let find = |name: &std::ffi::CStr| {
            let found = dlsym(library, name.as_ptr());
            assert!(!found.is_null());
            found
        };
        type Pass = extern "C" fn(c_long, c_long, c_long) -> c_long;
        type Hold = extern "C" fn(extern "C" fn() -> c_long) -> c_long;
        type Plain = extern "C" fn() -> c_long;
        let pass = std::mem::transmute::<*mut c_void, Pass>(find(c"pass"));
        let hold = std::mem::transmute::<*mut c_void, Hold>(find(c"hold"));
        let look = std::mem::transmute::<*mut c_void, Plain>(find(c"look"));
        let times_out = std::mem::transmute::<*mut c_void, Plain>(find(c"times_out"));
        let begin = std::mem::transmute::<*mut c_void, Plain>(find(c"begin"));

        let runtime = runtime(2);
        let passing: Vec<_> = (0..100)
            .map(|i| runtime.spawn(move || pass(i, 100, 10)))
            .collect();
        let waited: i64 = passing
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        let metrics = runtime.metrics();
        if hooked() {
            let parked = metrics.parked_calls as i64;
            assert!(parked >= waited, "{parked} of {waited}");
        }
        static HELD: AtomicBool = AtomicBool::new(false);
        static STOP: AtomicBool = AtomicBool::new(false);
        extern "C" fn wait() -> c_long {
            HELD.store(true, SeqCst);
            wait_until(|| STOP.load(SeqCst));
            1
        }
        let holder = runtime.spawn(move || hold(wait));
        wait_until(|| HELD.load(SeqCst));
        let before = runtime.metrics().parked_calls;
        let looking: Vec<_> = (0..100).map(|_| runtime.spawn(move || look())).collect();
        if hooked() {
            wait_until(|| runtime.metrics().parked_calls - before >= 100);
            hold_no_kernel_thread(&runtime);
        }
        STOP.store(true, SeqCst);
        assert_eq!(holder.join().unwrap(), 1);
        for thread in looking {
            assert_eq!(thread.join().unwrap(), 1_000);
        }
        assert_eq!(runtime.spawn(move || times_out()).join().unwrap(), 1);
        let beginning: Vec<_> = (0..50).map(|_| runtime.spawn(move || begin())).collect();
        let failed: i64 = beginning
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        assert_eq!(failed, 3);
        runtime.shutdown();
    }
}

/// Kernel threads are cancelled in each call that may be cancelled, and exceptions leave `pthread_once`, in a program with
/// `panic = "abort"`, where a frame of Rust's lets nobody through. The crate is built for it once more.
#[test]
fn threads_are_cancelled_in_a_program_that_aborts() {
    let directory = Directory::new();
    let object = directory.path("aborting.o");
    let run = |command: &mut std::process::Command| {
        let output = command.output().expect("a command");
        assert!(output.status.success(), "{command:?}: {}", said(&output));
    };
    let support = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support");
    let compiled = std::process::Command::new("c++")
        .args(["-std=c++17", "-O1", "-c", "-o"])
        .arg(&object)
        .arg(format!("{support}/aborting.cpp"))
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        return println!("skipped: no C++ compiler");
    }
    let target = concat!(env!("CARGO_TARGET_TMPDIR"), "/aborting");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    run(std::process::Command::new(env!("CARGO"))
        .args(["rustc", "--lib", "--manifest-path", manifest])
        .args([
            "--target-dir",
            target,
            "--config",
            "profile.dev.panic=\"abort\"",
        ]));
    let program = directory.path("aborting");
    run(std::process::Command::new(rustc())
        .args([
            "--edition=2024",
            "-Cpanic=abort",
            "-Clink-arg=-lstdc++",
            "-o",
        ])
        .arg(&program)
        .arg(format!("-Clink-arg={}", object.display()))
        .arg(format!("-Ldependency={target}/debug/deps"))
        .arg(format!(
            "--extern=greenthread={target}/debug/libgreenthread.rlib"
        ))
        .arg(format!("{support}/aborting.rs")));
    run(std::process::Command::new("timeout").arg("60").arg(program));
}

/// The compiler beside this cargo.
fn rustc() -> std::ffi::OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}
