//! Hello world with one thread, the smallest program of each contender: when its thread runs, how
//! large it is, and which crates its code is from.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{child, clock, go};

/// How often a program is started in a round.
const STARTS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(10);
/// How many crates are named.
const LISTED: usize = 12;
/// What the code of a program is divided into, by crates; the rest is that of others.
const PARTS: [(&str, &[&str]); 4] = [
    ("of the runtime", &["greenthread", "tokio"]),
    ("of std", &["std"]),
    ("of core and alloc", &["core", "alloc"]),
    (
        "for backtraces",
        &[
            "gimli",
            "rustc_demangle",
            "addr2line",
            "miniz_oxide",
            "backtrace",
            "object",
        ],
    ),
];

/// The programs, and whose they are.
pub fn build() -> Vec<(&'static str, PathBuf)> {
    let me = env::current_exe().expect("no path to this program");
    let mut programs = vec![
        ("greenthread", me.with_file_name("hello-greenthread")),
        ("tokio", me.with_file_name("hello-tokio")),
        ("std", me.with_file_name("hello-std")),
    ];
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--bins"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("cargo does not build hello world: going on with what is there");
    }
    programs.retain(|(_, program)| program.exists());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/go/hello");
    let program = go::build(source, me.with_file_name("hello-go"));
    programs.extend(program.map(|program| ("Go", program)));
    programs
}

/// The time of the first thread's first instruction, in nanoseconds: since `main` began, and since
/// this process was about to start the program.
pub fn starts(program: &Path) -> Option<Vec<(u64, u64)>> {
    let once = || {
        let exec = clock::now();
        let output = child::output(&mut Command::new(program), PATIENCE).ok()?;
        let (main, thread) = output.trim().split_once(' ')?;
        let (main, thread): (u64, u64) = (main.parse().ok()?, thread.parse().ok()?);
        Some((thread - main, thread - exec))
    };
    (0..STARTS).map(|_| once()).collect()
}

/// In bytes: as the compiler makes it, and stripped.
pub fn sizes(program: &Path) -> Option<(u64, u64)> {
    let stripped = program.with_extension("stripped");
    let strip = Command::new("strip")
        .arg("-o")
        .args([&stripped, program])
        .status();
    strip.ok().filter(|status| status.success())?;
    let size = |program: &Path| Some(fs::metadata(program).ok()?.len());
    Some((size(program)?, size(&stripped)?))
}

/// The code of a program in Rust, in bytes: all of it, and its [`PARTS`].
pub fn code(program: &Path) -> Option<Vec<(&'static str, u64)>> {
    let crates = crates(program)?;
    let all: u64 = crates.iter().map(|(_, size)| size).sum();
    let mut parts = vec![("all", all)];
    parts.extend(PARTS.map(|(part, names)| {
        let of_part = crates
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()));
        (part, of_part.map(|(_, size)| size).sum())
    }));
    let named: u64 = parts[1..].iter().map(|(_, size)| size).sum();
    parts.push(("of others", all - named));
    parts.retain(|&(_, size)| size != 0);
    Some(parts)
}

/// The code of a program in Rust, by crate, the largest first: a function that several crates asked for is
/// the crate's whose name it has.
fn crates(program: &Path) -> Option<Vec<(String, u64)>> {
    let output = Command::new("nm")
        .args(["--demangle", "--print-size", "--radix=d"])
        .arg(program)
        .output();
    let symbols = String::from_utf8(output.ok()?.stdout).ok()?;
    let mut crates: BTreeMap<&str, u64> = BTreeMap::new();
    for symbol in symbols.lines() {
        let mut words = symbol.splitn(4, ' ');
        let [_, Some(size), Some("t" | "T" | "w" | "W"), Some(symbol)] =
            [(); 4].map(|()| words.next())
        else {
            continue;
        };
        *crates.entry(crate_of(symbol)).or_default() += size.parse::<u64>().ok()?;
    }
    let owned = |(name, size): (&str, u64)| (name.to_string(), size);
    let mut crates: Vec<_> = crates.into_iter().map(owned).collect();
    crates.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
    Some(crates)
}

/// The code of the programs in Rust, by crate.
pub fn print_crates() -> Option<()> {
    let programs = build();
    println!("| code, KiB | of crate |");
    for (name, program) in programs.iter().filter(|(name, _)| *name != "Go") {
        let crates = crates(program)?;
        let kib = |size: u64| size as f64 / 1024.0;
        let all: u64 = crates.iter().map(|(_, size)| size).sum();
        println!(
            "|---:|---|\n| **{:.1}** | **hello world on {name}** |",
            kib(all)
        );
        for (crate_, size) in crates.iter().take(LISTED) {
            println!("| {:.1} | {crate_} |", kib(*size));
        }
        let others: u64 = crates.iter().skip(LISTED).map(|(_, size)| size).sum();
        println!("| {:.1} | others |", kib(others));
    }
    Some(())
}

/// The crate in a symbol's name: `<a::B as c::D>::e` and `a::b` are of `a`.
fn crate_of(symbol: &str) -> &str {
    let path = symbol.trim_start_matches(['<', '&', '*', '[', '(']);
    let path = ["mut ", "const ", "dyn "]
        .into_iter()
        .fold(path, |path, word| path.strip_prefix(word).unwrap_or(path));
    match path.split_once("::") {
        Some((name, _)) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => name,
        _ => "C, or no crate's",
    }
}
