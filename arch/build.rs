//! Says whether the target can have green threads: `cfg(green)`. Elsewhere every thread is a kernel
//! thread, on std alone (`src/engine/elsewhere`). With `--cfg greenthread_portable`, or with
//! GREENTHREAD_ELSEWHERE in the environment (nothing that the crate depends on is compiled again), that is so
//! on any target: to test it, and to see how much a program owes to green threads.
//!
//! `cfg(hooks)`: calls of libc that block can park green threads (`src/unmodified`).
//!
//! With GREENTHREAD_PERTURB it is a perturbed build (`src/engine/sys/perturb.rs`), as with
//! `--cfg greenthread_perturb`, but nothing that the crate depends on is compiled again.

use std::env::{var, var_os};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(green)");
    println!("cargo::rerun-if-changed=arch/build.rs");
    println!("cargo::rerun-if-env-changed=GREENTHREAD_ELSEWHERE");
    let is = |key: &str, value: &str| var(key).is_ok_and(|found| found == value);
    let has_green_threads = is("CARGO_CFG_TARGET_OS", "linux")
        && ["x86_64", "aarch64"]
            .iter()
            .any(|arch| is("CARGO_CFG_TARGET_ARCH", arch))
        && is("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
        && is("CARGO_CFG_TARGET_ENDIAN", "little")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && var_os("CARGO_CFG_GREENTHREAD_PORTABLE").is_none()
        && var_os("GREENTHREAD_ELSEWHERE").is_none();
    if has_green_threads {
        println!("cargo::rustc-cfg=green");
    }
    // Functions with libc's names reach the program's calls where the linker has a choice.
    println!("cargo::rustc-check-cfg=cfg(hooks)");
    let is_static = var("CARGO_CFG_TARGET_FEATURE")
        .is_ok_and(|all| all.split(',').any(|one| one == "crt-static"));
    if has_green_threads && !is_static && var_os("CARGO_FEATURE_UNMODIFIED").is_some() {
        println!("cargo::rustc-cfg=hooks");
    }
    println!("cargo::rerun-if-env-changed=GREENTHREAD_PERTURB");
    if var_os("GREENTHREAD_PERTURB").is_some() {
        println!("cargo::rustc-cfg=greenthread_perturb");
    }
}
