//! A program's thread-locals may be larger than a stack.
//!
//! The idea: a C library with that many bytes of them is preloaded into a child, which runs green
//! threads as if nothing were. Each has its own, initialised, also in a block that is used again.

use crate::common::*;
use greenthread as thread;
use std::ffi::{CStr, c_char};
use std::process::Command;

const NAME: &str = "large_thread_locals::threads_have_thread_locals_of_any_size";

/// Compiles a library with `size` bytes of thread-locals.
fn library(size: usize) -> String {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let path = format!("{directory}/large-{size}-{}", std::process::id());
    let (source, object) = (format!("{path}.c"), format!("{path}.so"));
    let text = format!(
        "__thread char large[{size}] = {{ 1, 2, 3 }};
         char *large_place(void) {{ return large; }}
         long large_size(void) {{ return sizeof large; }}"
    );
    std::fs::write(&source, text).unwrap();
    let flags = ["-shared", "-fPIC", "-ftls-model=initial-exec", "-o"];
    let mut cc = Command::new("cc");
    cc.args(flags).args([&object, &source]);
    assert!(cc.status().expect("the C compiler").success());
    std::fs::remove_file(source).unwrap();
    object
}

fn function<F: Copy>(name: &CStr) -> F {
    // SAFETY: a search by name; the callers name the functions' types in the source above.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        assert!(!found.is_null(), "{name:?}");
        std::mem::transmute_copy(&found)
    }
}

#[test]
fn threads_have_thread_locals_of_any_size() {
    let _w = watchdog(NAME);
    let Some(case) = child_case(NAME) else {
        for size in [200 << 10, 248 << 10, 300 << 10, 1 << 20, 3 << 20] {
            let library = library(size);
            let out = child_with(
                NAME,
                if green() { "green" } else { "kernel" },
                // libc takes the thread-locals of std's threads off their stacks.
                &[("LD_PRELOAD", &library), ("RUST_MIN_STACK", "8388608")],
            );
            std::fs::remove_file(&library).unwrap();
            assert_code(&out, 0);
        }
        return;
    };
    assert_eq!(green(), case == "green");
    let place: extern "C" fn() -> *mut c_char = function(c"large_place");
    let size: extern "C" fn() -> i64 = function(c"large_size");
    for _ in 0..3 {
        let body = move |i: usize| {
            // SAFETY: the library's array, of that size, is the calling thread's.
            let mine =
                || unsafe { std::slice::from_raw_parts_mut(place().cast::<u8>(), size() as usize) };
            assert_eq!(mine()[..3], [1, 2, 3]);
            assert!(mine()[3..] == vec![0; size() as usize - 3]);
            mine().fill(i as u8);
            thread::yield_now();
            assert!(mine() == vec![i as u8; size() as usize]);
        };
        let threads: Vec<_> = (0..32).map(|i| thread::spawn(move || body(i))).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
    // Other kinds of kernel threads.
    std::fs::write("/dev/null", "by way of the driver for files").unwrap();
    greenthread::fs::write("/dev/null", "by way of the driver for files").unwrap();
    thread::blocking(|| ());
    thread::sleep(std::time::Duration::from_millis(30));
}
