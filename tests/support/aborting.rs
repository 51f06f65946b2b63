//! The Rust part of `aborting.cpp`.

unsafe extern "C" {
    safe fn start() -> i32;
}

fn main() {
    // The crate is in the program, and no runtime runs.
    assert!(greenthread::available_parallelism().is_ok());
    std::process::exit(start());
}
