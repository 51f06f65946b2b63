//! The shared library of `tests/plugin/`, which has a copy of the crate.

use std::path::PathBuf;
use std::process::Command;

/// Builds it as this test was built (`cargo test` has done so before) and returns its path.
pub fn build() -> PathBuf {
    let has = [
        ("default", cfg!(feature = "default")),
        ("io-uring", cfg!(feature = "io-uring")),
        ("net", cfg!(feature = "net")),
        ("unmodified", cfg!(feature = "unmodified")),
        ("metrics", cfg!(feature = "metrics")),
        ("tracing", cfg!(feature = "tracing")),
    ];
    let features: Vec<_> = has
        .iter()
        .filter_map(|&(name, is_on)| is_on.then_some(name))
        .collect();
    let program = std::env::current_exe().unwrap();
    // target/PROFILE/deps/TEST
    let place = program.ancestors().nth(2).unwrap();
    let profile = match place.file_name().unwrap().to_str().unwrap() {
        "debug" => "test",
        profile => profile,
    };
    let built = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--example", "plugin", "--profile"])
        .args([profile, "--no-default-features", "--features"])
        .arg(features.join(","))
        .status()
        .expect("cargo");
    assert!(built.success());
    place.join("examples/libplugin.so")
}
