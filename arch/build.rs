//! Says whether the target can have green threads: `cfg(green)`. Elsewhere every thread is a kernel
//! thread, on std alone (`src/elsewhere`). With `--cfg greenthread_portable`, or with
//! GREENTHREAD_ELSEWHERE in the environment (nothing that the crate depends on is compiled again), that is so
//! on any target: to test it, and to see how much a program owes to green threads.
//!
//! So it is in Miri, which cannot run assembly, and with MemorySanitizer, which does not see what the kernel writes in
//! answer to system calls of our own.
//!
//! `cfg(asan)`, `cfg(tsan)`: the crate is built with AddressSanitizer or ThreadSanitizer, and tells it of green threads.
//!
//! `cfg(interposes)`: the crate has functions with libc's names (`src/libc`), those without which green threads are not sound
//! (`sys::libraries`). A sanitizer has functions with these names too, by
//! which it learns what a program does, and one program has room for one of each. So they are its own where every
//! thread is a kernel thread for its sake: with any sanitizer but those two (`src/engine/sys/sanitizer.rs`).
//!
//! `cfg(answers)`: and those by which libc tells of threads, and changes them. ThreadSanitizer calls some of these itself, before it is ready
//! for a call by code that it sees.
//!
//! `cfg(sanitized)`: with which sanitizer, for tests.
//!
//! `cfg(hooks)`: calls of libc that block can park green threads (those modules of `src/libc` that need it).
//!
//! With GREENTHREAD_PERTURB it is a perturbed build (`src/engine/sys/perturb.rs`), as with
//! `--cfg greenthread_perturb`, but nothing that the crate depends on is compiled again.

use std::env::{var, var_os};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(green)");
    println!("cargo::rerun-if-changed=arch/build.rs");
    println!("cargo::rerun-if-env-changed=GREENTHREAD_ELSEWHERE");
    let sanitizers = var("CARGO_CFG_SANITIZE").unwrap_or_default();
    let sanitizes = |name| sanitizers.split(',').any(|one| one == name);
    println!("cargo::rustc-check-cfg=cfg(sanitized)");
    println!("cargo::rustc-check-cfg=cfg(sanitized, values(\"address\", \"leak\", \"thread\"))");
    for sanitizer in sanitizers.split(',').filter(|name| !name.is_empty()) {
        println!("cargo::rustc-cfg=sanitized");
        println!("cargo::rustc-cfg=sanitized={sanitizer:?}");
    }
    let is = |key: &str, value: &str| var(key).is_ok_and(|found| found == value);
    let has_green_threads = is("CARGO_CFG_TARGET_OS", "linux")
        && ["x86_64", "aarch64"]
            .iter()
            .any(|arch| is("CARGO_CFG_TARGET_ARCH", arch))
        && is("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
        && is("CARGO_CFG_TARGET_ENDIAN", "little")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && var_os("CARGO_CFG_GREENTHREAD_PORTABLE").is_none()
        && var_os("GREENTHREAD_ELSEWHERE").is_none()
        && var_os("CARGO_CFG_MIRI").is_none()
        && !sanitizes("memory");
    if has_green_threads {
        println!("cargo::rustc-cfg=green");
    }
    println!("cargo::rustc-check-cfg=cfg(asan, tsan)");
    let mut is_told = false;
    for (sanitizer, cfg) in [("address", "asan"), ("thread", "tsan")] {
        let has_alone = is("CARGO_CFG_SANITIZE", sanitizer);
        if has_green_threads && has_alone && is("CARGO_CFG_TARGET_ARCH", "x86_64") {
            println!("cargo::rustc-cfg={cfg}");
            is_told = true;
        }
    }
    // Functions with libc's names reach the program's calls where the linker has a choice.
    println!("cargo::rustc-check-cfg=cfg(interposes)");
    println!("cargo::rustc-check-cfg=cfg(hooks)");
    let is_static = var("CARGO_CFG_TARGET_FEATURE")
        .is_ok_and(|all| all.split(',').any(|one| one == "crt-static"));
    let interposes = has_green_threads && !is_static && (is_told || sanitizers.is_empty());
    if interposes {
        println!("cargo::rustc-cfg=interposes");
    }
    println!("cargo::rustc-check-cfg=cfg(answers)");
    let answers = interposes && !sanitizes("thread");
    if answers {
        println!("cargo::rustc-cfg=answers");
    }
    if answers && var_os("CARGO_FEATURE_UNMODIFIED").is_some() {
        println!("cargo::rustc-cfg=hooks");
    }
    println!("cargo::rerun-if-env-changed=GREENTHREAD_PERTURB");
    if var_os("GREENTHREAD_PERTURB").is_some() {
        println!("cargo::rustc-cfg=greenthread_perturb");
    }
}
