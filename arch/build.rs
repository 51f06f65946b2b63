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
//! `cfg(sim)`: the crate has `sim`, and what that needs in the engine. With `--cfg greenthread_points` it has the functions that the
//! compiler then calls at atomic operations (`src/sim/atomics.rs`).
//!
//! With GREENTHREAD_PERTURB it is a perturbed build (`src/engine/sys/perturb.rs`), as with
//! `--cfg greenthread_perturb`, but nothing that the crate depends on is compiled again.

use std::env::{var, var_os};

fn main() {
    println!("cargo::rerun-if-changed=arch/build.rs");
    let sanitizers = var("CARGO_CFG_SANITIZE").unwrap_or_default();
    let sanitizes = |name| sanitizers.split(',').any(|one| one == name);
    set("sanitized", !sanitizers.is_empty());
    println!("cargo::rustc-check-cfg=cfg(sanitized, values(\"address\", \"leak\", \"thread\"))");
    for sanitizer in sanitizers.split(',').filter(|name| !name.is_empty()) {
        println!("cargo::rustc-cfg=sanitized={sanitizer:?}");
    }

    let is = |key: &str, value: &str| var(key).is_ok_and(|found| found == value);
    let is_elsewhere = has_variable("GREENTHREAD_ELSEWHERE");
    let is_x86_64 = is("CARGO_CFG_TARGET_ARCH", "x86_64");
    let has_green_threads = is("CARGO_CFG_TARGET_OS", "linux")
        && (is_x86_64 || is("CARGO_CFG_TARGET_ARCH", "aarch64"))
        && is("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
        && is("CARGO_CFG_TARGET_ENDIAN", "little")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && var_os("CARGO_CFG_GREENTHREAD_PORTABLE").is_none()
        && !is_elsewhere
        && var_os("CARGO_CFG_MIRI").is_none()
        && !sanitizes("memory");
    set("green", has_green_threads);
    let is_told = |sanitizer| has_green_threads && is_x86_64 && sanitizers == sanitizer;
    set("asan", is_told("address"));
    set("tsan", is_told("thread"));

    // Functions with libc's names reach the program's calls where the linker has a choice.
    let is_static = var("CARGO_CFG_TARGET_FEATURE")
        .is_ok_and(|all| all.split(',').any(|one| one == "crt-static"));
    let is_seen = sanitizers.is_empty() || is_told("address") || is_told("thread");
    let interposes = has_green_threads && !is_static && is_seen;
    let answers = interposes && !sanitizes("thread");
    set("interposes", interposes);
    set("answers", answers);
    let hooks = answers && var_os("CARGO_FEATURE_UNMODIFIED").is_some();
    set("hooks", hooks);
    set("sim", hooks && var_os("CARGO_FEATURE_SIM").is_some());
    // Schedule points at atomic operations (`src/sim/atomics.rs`): the same flags have the compiler make them.
    println!("cargo::rustc-check-cfg=cfg(greenthread_points)");
    set("greenthread_perturb", has_variable("GREENTHREAD_PERTURB"));
}

/// Sets `cfg(name)` if `is_so`.
fn set(name: &str, is_so: bool) {
    println!("cargo::rustc-check-cfg=cfg({name})");
    if is_so {
        println!("cargo::rustc-cfg={name}");
    }
}

/// Whether the environment has the variable, now and whenever that changes.
fn has_variable(name: &str) -> bool {
    println!("cargo::rerun-if-env-changed={name}");
    var_os(name).is_some()
}
