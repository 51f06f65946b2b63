//! Says whether the target can have green threads: `cfg(green)`. Elsewhere every thread is a kernel
//! thread, on std alone (`src/engine/elsewhere`). With GREENTHREAD_ELSEWHERE in the environment that is so
//! on any target: to test it, and to see how much a program owes to green threads.
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
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
        && var_os("GREENTHREAD_ELSEWHERE").is_none();
    if has_green_threads {
        println!("cargo::rustc-cfg=green");
    }
    println!("cargo::rerun-if-env-changed=GREENTHREAD_PERTURB");
    if var_os("GREENTHREAD_PERTURB").is_some() {
        println!("cargo::rustc-cfg=greenthread_perturb");
    }
}
