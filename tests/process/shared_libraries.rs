//! The crate in a shared library, which a program loads that knows nothing of it (`tests/plugin/`).
//!
//! Where the library comes before libc, as a preloaded one does, or one that the program is linked with, its threads are green. Where it
//! is loaded later, calls of libc go past the crate, and its threads are kernel threads, which it says. Either way it works, alone and
//! beside another copy, and can be unloaded while its threads run.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[path = "../support/plugin.rs"]
mod plugin;

use crate::common::alone;
use crate::common::directory::Directory;
use crate::common::{said, watchdog};
use std::ffi::{CString, c_int};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const SAYS_WHY: &str = "every thread is a kernel thread, because calls of libc go past the crate";

/// The library, a copy of it, and what loads them.
struct Stage {
    folder: Directory,
    library: PathBuf,
    copy: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let folder = Directory::new();
        let (library, copy) = (folder.path("libplugin.so"), folder.path("libcopy.so"));
        let built = plugin::build();
        std::fs::copy(&built, &library).unwrap();
        std::fs::copy(&built, &copy).unwrap();
        Stage {
            folder,
            library,
            copy,
        }
    }

    /// The program in C, linked with `more`.
    fn host(&self, more: &[&str]) -> Command {
        let host = self.folder.path("host");
        let compiled = Command::new("cc")
            .current_dir(&self.folder.0)
            .args(["-O1", "-Wl,-rpath,$ORIGIN", "-o"])
            .arg(&host)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plugin/host.c"))
            .args(more)
            .args(["-lpthread", "-ldl"])
            .status();
        assert!(compiled.expect("the C compiler").success());
        Command::new(host)
    }
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// That it came to its end, after `copies` copies did all they should.
fn check(out: &Output, copies: usize, is_green: bool) {
    let lines = format!(
        "green {}\nsum 4950\ncomputes 1\nwoken 1\nleft 1\n",
        u8::from(is_green)
    );
    let expected = lines.repeat(copies) + "end\n";
    let said_why = String::from_utf8_lossy(&out.stderr)
        .matches(SAYS_WHY)
        .count();
    assert!(
        out.status.success() && out.stdout == expected.as_bytes(),
        "{}",
        said(out)
    );
    let is_silent = std::env::var_os("GREENTHREAD_MODE").is_some();
    if !is_silent {
        assert_eq!(said_why, if is_green { 0 } else { copies }, "{}", said(out));
    }
}

/// Whether green threads are wished.
fn wished() -> bool {
    std::env::var("GREENTHREAD_MODE").as_deref() != Ok("kernel")
}

#[test]
fn a_program_in_c_loads_two_copies_and_unloads_them() {
    alone!();
    let _w = watchdog("shared_libraries::a_program_in_c_loads_two_copies_and_unloads_them");
    let stage = Stage::new();
    for flags in ["local", "global", "deep"] {
        let mut host = stage.host(&[]);
        let host = host.args([
            flags.as_ref(),
            stage.library.as_os_str(),
            stage.copy.as_os_str(),
        ]);
        check(&run(host), 2, false);
    }
}

#[test]
fn a_program_in_c_that_is_linked_with_it_has_green_threads() {
    alone!();
    let _w = watchdog("shared_libraries::a_program_in_c_that_is_linked_with_it_has_green_threads");
    let stage = Stage::new();
    let mut linked = stage.host(&["-Wl,--no-as-needed", "libplugin.so"]);
    check(&run(linked.arg("linked")), 1, wished());
    let mut preloaded = stage.host(&[]);
    preloaded.env("LD_PRELOAD", &stage.library);
    check(&run(preloaded.arg("linked")), 1, wished());
}

/// A program with a copy of its own: the plug-in's is another one.
#[test]
fn green_threads_use_a_plug_in_with_a_copy_of_its_own() {
    alone!();
    let _w = watchdog("shared_libraries::green_threads_use_a_plug_in_with_a_copy_of_its_own");
    let stage = Stage::new();
    let used = greenthread::spawn(move || {
        let name = CString::new(stage.library.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a library of ours, and its functions, which have this type.
        unsafe {
            let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            let call = |name: &std::ffi::CStr| {
                let function = libc::dlsym(library, name.as_ptr());
                std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> c_int>(function)()
            };
            assert_eq!(call(c"plugin_is_green"), 0);
            assert_eq!(call(c"plugin_use"), 4950);
            assert_eq!(call(c"plugin_computes_beside"), 1);
            assert!(call(c"plugin_leaves_threads") >= 3);
            libc::dlclose(library);
        }
        greenthread::sleep(Duration::from_millis(20));
    });
    used.join().unwrap();
}

/// Python, if there is one.
fn python(script: &str, library: &Path) -> Option<Command> {
    let mut python = Command::new("python3");
    if python.arg("--version").output().is_err() {
        println!("skipped: there is no python3");
        return None;
    }
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(library);
    Some(python)
}

#[test]
fn python_loads_uses_and_unloads_it() {
    alone!();
    let _w = watchdog("shared_libraries::python_loads_uses_and_unloads_it");
    let stage = Stage::new();
    let script = r#"
import ctypes, _ctypes, sys, threading, time
library = ctypes.CDLL(sys.argv[1])
print("green", library.plugin_is_green())
print("sum", library.plugin_use())
threads = [threading.Thread(target=library.plugin_use) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("computes", library.plugin_computes_beside())
print("woken 1")
print("left", int(library.plugin_leaves_threads() >= 3), flush=True)
_ctypes.dlclose(library._handle)
time.sleep(0.05)
print("end")
"#;
    if let Some(mut python) = python(script, &stage.library) {
        check(&run(&mut python), 1, false);
    }
}

/// Ctrl-C ends Python's `time.sleep`, however busy the library's threads are.
#[test]
fn an_interruption_ends_pythons_sleep() {
    alone!();
    let _w = watchdog("shared_libraries::an_interruption_ends_pythons_sleep");
    let stage = Stage::new();
    let script = r#"
import ctypes, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
library = ctypes.CDLL(sys.argv[1])
library.plugin_leaves_threads()
threading.Thread(target=library.plugin_computes_beside).start()
threading.Thread(target=lambda: (time.sleep(0.05), os.kill(os.getpid(), signal.SIGINT))).start()
began = time.monotonic()
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - began < 50)
"#;
    for _ in 0..5 {
        let Some(mut python) = python(script, &stage.library) else {
            return;
        };
        let out = run(&mut python);
        let is_right = out.status.success() && out.stdout == b"interrupted True\n";
        assert!(is_right, "{}", said(&out));
    }
}

/// A kernel thread that is entered for a preemption would take all signals that wait for the process. Here the thread that they
/// are for comes to a CPU late: it lost 11 of 40 of them.
#[test]
fn preemption_takes_no_signals_from_the_thread_that_they_are_for() {
    alone!();
    let _w =
        watchdog("shared_libraries::preemption_takes_no_signals_from_the_thread_that_they_are_for");
    let stage = Stage::new();
    let lose = || {
        let mut host = stage.host(&[]);
        let host = host.env("LD_PRELOAD", &stage.library);
        let out = run(host.args(["interrupted", "30"]));
        println!("{}", said(&out));
        let text = String::from_utf8_lossy(&out.stdout);
        let lost = text.lines().find_map(|line| line.strip_prefix("lost "));
        lost.expect("it counts").parse::<u32>().unwrap()
    };
    // Kernel threads that start and end take some, too, as any do; and how late that thread comes is the system's business.
    assert!(
        (0..3).any(|_| lose() <= 4) || !wished(),
        "more than 4 of 30, three times"
    );
}
