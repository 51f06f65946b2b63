//! Go programs as peers. `benches/{peers,seeds,servers,latency}` use this file.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Builds the Go files of the directory `source` as `program`; `None`, with a word why, if that
/// fails.
pub fn build(source: &str, program: PathBuf) -> Option<PathBuf> {
    let status = sources(source).and_then(|sources| {
        Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .args(sources)
            .current_dir(source)
            .envs([("GOFLAGS", "-mod=mod"), ("GOTOOLCHAIN", "local")])
            .status()
    });
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("no `go` on PATH, or it fails to build: going on without Go");
        return None;
    }
    Some(program)
}

fn sources(directory: &str) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "go"));
    Ok(files)
}
