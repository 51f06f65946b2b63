//! On what, with what and when a suite was run: what every table says first.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::suites::Length;

/// One line.
pub fn now(root: &Path, peers: &[&str], length: Length, rounds: usize) -> Result<String> {
    let processors = std::thread::available_parallelism()?;
    let lock = fs::read_to_string(root.join("Cargo.lock"))?;
    let versions = peers.iter().filter_map(|peer| {
        let version = locked(&lock, peer)?;
        Some(format!("{peer} {version}"))
    });
    let mut versions: Vec<String> = versions.collect();
    // "go version go1.27.3 linux/amd64"
    let go = said_by("go", &["version"]);
    let go = go.and_then(|line| Some(line.split_whitespace().nth(2)?.replace("go", "Go ")));
    versions.extend(go);
    let quick = match length {
        Length::Full => "",
        Length::Quick => " of a quick run, which says little",
    };
    let s = if rounds == 1 { "" } else { "s" };
    Ok(format!(
        "{}; {processors} processors of {}, {}, {}; {}; {rounds} round{s}{quick}",
        said_by("date", &["-u", "+%-d %B %Y"]).unwrap_or_default(),
        cpu().unwrap_or_else(|| "an unknown model".to_string()),
        said_by("uname", &["-srm"]).unwrap_or_default(),
        // "rustc 1.95.0 (59807616e 2026-04-14)"
        said_by("rustc", &["--version"])
            .unwrap_or_default()
            .split(" (")
            .next()
            .unwrap_or(""),
        versions.join(", "),
    ))
}

/// A crate's version; of several the last, which is the newest.
pub fn locked<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = lock.rsplit_once(&*begin)?;
    rest.split('"').next()
}

fn cpu() -> Option<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(": ")?.1.trim().to_string())
}

/// The first line that a program writes, if it can be run.
fn said_by(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_string)
}
