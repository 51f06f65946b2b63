//! Cuts out of the library's files the parts that are compiled here, where the rest stands in.

#[path = "../../tests/models/parts.rs"]
mod parts;

use std::{env, fs, path::Path};

const PARTS: [(&str, &[&str]); 4] = [
    (
        "sched/processor.rs",
        &["owning one as a value", "counts", "the ownership word"],
    ),
    ("sched/start.rs", &["how many live"]),
    (
        "sys/shared.rs",
        &[
            "the lock",
            "the fence",
            "the atomic static",
            "a stack of records",
            "the table",
            "random numbers",
        ],
    ),
    (
        "sched/events.rs",
        &["the turn", "the threads that events make ready"],
    ),
];

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    for (file, names) in PARTS {
        let original = Path::new("../../src/engine").join(file);
        println!("cargo::rerun-if-changed={}", original.display());
        let text = fs::read_to_string(&original).unwrap();
        let part = Path::new(&out).join(original.file_name().unwrap());
        fs::write(part, parts::cut(&text, names)).unwrap();
    }
}
