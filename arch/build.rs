//! Says whether green threads can be compiled for the target: `cfg(green)`. Elsewhere every thread is
//! a kernel thread, on std alone (`src/elsewhere`); `--cfg greenthread_elsewhere` asks for that.

use std::env::var;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(green)");
    println!("cargo::rerun-if-changed=arch/build.rs");
    let is = |key: &str, value: &str| var(key).is_ok_and(|found| found == value);
    let has_green_threads = is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
        && var("CARGO_CFG_GREENTHREAD_ELSEWHERE").is_err();
    if has_green_threads {
        println!("cargo::rustc-cfg=green");
    }
}
