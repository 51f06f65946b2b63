//! Go programs as peers. `benches/peers` and `benches/servers` use this file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `main.go` of the directory `source` as `program`; `None`, with a word why, if that fails.
pub fn build(source: &str, program: PathBuf) -> Option<PathBuf> {
    let status = Command::new("go")
        .args(["build", "-o"])
        .args([program.as_path(), Path::new("main.go")])
        .current_dir(source)
        .envs([("GOFLAGS", "-mod=mod"), ("GOTOOLCHAIN", "local")])
        .status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("no `go` on PATH, or it fails to build: going on without Go");
        return None;
    }
    Some(program)
}
