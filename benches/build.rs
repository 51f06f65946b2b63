//! Cuts the local queue out of the library's source, for its own bench.

#[path = "../tests/models/parts.rs"]
mod parts;

use std::{env, fs, path::Path};

fn main() {
    let original = "../src/engine/policy/work_stealing.rs";
    println!("cargo::rerun-if-changed={original}");
    let text = fs::read_to_string(original).unwrap();
    let part = parts::cut(&text, &["the local queue"]);
    let out = env::var("OUT_DIR").unwrap();
    fs::write(Path::new(&out).join("local_queue.rs"), part).unwrap();
}
