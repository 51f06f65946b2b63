//! Cuts out of the library's files the parts that are compiled here, where the rest stands in.

#[path = "../../tests/models/parts.rs"]
mod parts;

use std::{env, fs, path::Path};

const PARTS: [(&str, &[&str]); 4] = [
    (
        "processor.rs",
        &["owning one as a value", "the ownership word"],
    ),
    ("cluster.rs", &["how many live"]),
    ("park.rs", &["lists"]),
    (
        "events.rs",
        &["the turn", "the threads that events make ready"],
    ),
];

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    for (file, names) in PARTS {
        let original = Path::new("../../src/engine/sched").join(file);
        println!("cargo::rerun-if-changed={}", original.display());
        let text = fs::read_to_string(&original).unwrap();
        fs::write(Path::new(&out).join(file), parts::cut(&text, names)).unwrap();
    }
}
