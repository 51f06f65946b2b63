//! Green threads in gdb: the tables and the backtraces of the script that the crate puts into programs, line by line.
//!
//! The program is this executable: `program` runs `examples/debugging/threads.rs` in it, which has threads in every state.
//! gdb looks at the process, at core files of it, and at a copy without debug information. Where this executable has
//! line numbers (in release builds), they must be there, too.

#![cfg(target_os = "linux")]

#[path = "../../examples/debugging/threads.rs"]
#[allow(unreachable_pub, reason = "an example's main")]
mod debugging;

use crate::common;
use crate::common::alone;
use crate::common::directory::Directory;
use crate::common::watchdog;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/src/observe/gdb/greenthread-gdb.py"
);
const ASKED: &str = "GREENTHREAD_GDB_PROGRAM";
/// The output of a command stands behind its number.
const MARK: &str = "=== command ";

/// Not a test: the program.
#[test]
fn program() {
    if std::env::var_os(ASKED).is_some() {
        debugging::main();
    }
}

/// Whether there is something to test: green threads, and gdb.
fn can_test() -> bool {
    let has_gdb = Command::new("gdb").arg("--version").output().is_ok();
    if !has_gdb {
        eprintln!("SKIPPED: gdb is not installed (CI installs it)");
    }
    has_gdb && common::green()
}

fn executable() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// The program, without what the environment says to greenthread: its threads are to be where they are said to be.
fn prepared(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GREENTHREAD_") {
            command.env_remove(name);
        }
    }
    // gdb writes the reservations of arenas to core files.
    command.env("MALLOC_ARENA_MAX", "1").env(ASKED, "1");
    command
}

/// Runs gdb on a program (and a core file of it) and returns what each of the commands has printed.
fn gdb(before: &[&str], program: &Path, core: Option<&Path>, commands: &[&str]) -> Vec<String> {
    let mut gdb = Command::new("timeout");
    gdb.args(["50", "gdb", "-nx", "-batch"]);
    gdb.args([
        "-iex",
        "set pagination off",
        "-iex",
        "set debuginfod enabled off",
    ]);
    for line in before {
        gdb.args(["-ex", line]);
    }
    for (i, command) in commands.iter().enumerate() {
        gdb.args(["-ex", &format!("echo \\n{MARK}{i}\\n"), "-ex", command]);
    }
    gdb.args(["-ex", &format!("echo \\n{MARK}end\\n")]);
    match core {
        Some(core) => gdb.arg(program).arg(core),
        None => gdb
            .arg("--args")
            .arg(program)
            .args(["--exact", "gdb::program", "--nocapture"]),
    };
    let output = prepared(gdb).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{said}\n--- stderr:\n{errors}");
    assert!(!errors.contains("Python Exception"), "{errors}");
    let parts: Vec<_> = said.split(MARK).skip(1).map(str::to_string).collect();
    assert_eq!(parts.len(), commands.len() + 1, "gdb ended early");
    parts
}

/// A line of the table.
#[derive(Debug)]
struct Row {
    number: usize,
    state: String,
    waits_for: String,
    spawned_at: String,
    function: String,
}

/// The lines of a table by the threads' names, and its last line.
fn table(printed: &str) -> (HashMap<String, Row>, String) {
    let lines: Vec<_> = printed
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty())
        .collect();
    let (summary, lines) = lines.split_last().unwrap();
    let Some((head, lines)) = lines.split_first() else {
        return (HashMap::new(), summary.to_string());
    };
    let titles = [
        "N ",
        "Name",
        "State",
        "Since",
        "Waits for",
        "Spawned at",
        "Function",
    ];
    let starts = titles.map(|title| head.find(title).unwrap());
    let mut rows = HashMap::new();
    for line in lines {
        let cell = |i: usize| {
            let end = starts
                .get(i + 1)
                .map_or(line.len(), |&end| end.min(line.len()));
            line[starts[i].min(end)..end].trim().to_string()
        };
        // A long place moves what follows it.
        let rest = &line[starts[5].min(line.len())..];
        let (spawned_at, function) = match rest.find(".rs:") {
            Some(at) => rest.split_at(at + rest[at..].find(' ').unwrap_or(rest.len() - at)),
            None => (&*cell(5), &*cell(6)),
        };
        let row = Row {
            number: cell(0).parse().unwrap(),
            state: cell(2),
            waits_for: cell(4),
            spawned_at: spawned_at.trim().to_string(),
            function: function.trim().to_string(),
        };
        assert!(
            cell(3).ends_with(" ms") || cell(3).ends_with(" s"),
            "{line}"
        );
        assert!(rows.insert(cell(1), row).is_none(), "twice: {line}");
    }
    (rows, summary.to_string())
}

/// What must be seen, whatever gdb looks at.
const COMMANDS: [&str; 9] = [
    "info greenthreads",
    "info greenthreads parked",
    "info greenthreads -n new",
    "greenthread find lock",
    "greenthread locker bt",
    "greenthread apply ready bt",
    "greenthread apply running bt",
    "greenthread apply all bt 4",
    "greenthread apply new bt",
];

fn check(printed: &[String], has_lines: bool) {
    let (rows, summary) = table(&printed[0]);
    check_table(&rows, &summary, has_lines);
    let (parked, summary) = table(&printed[1]);
    assert_eq!(parked.len(), 6);
    assert!(
        parked.values().all(|row| row.state == "parked"),
        "{parked:?}"
    );
    assert!(summary.starts_with("6 of 13 green threads"), "{summary}");
    let (new, _) = table(&printed[2]);
    assert!(new.len() == 3 && new.contains_key("new-2"), "{new:?}");
    let (found, _) = table(&printed[3]);
    assert!(found.len() == 1 && found["locker"].number == rows["locker"].number);

    check_backtrace(
        &printed[4],
        &["lock_contended", "wait_for_the_lock", "call_at_bottom"],
        has_lines,
    );
    let hogs = rows
        .iter()
        .filter(|(name, row)| name.starts_with("hog") && row.state == "ready");
    assert!(hogs.count() >= 1, "one hog at least waits for its turn");
    for hog in printed[5].split("Green thread ").skip(1) {
        let ways = [
            "preempted",
            "<signal handler called>",
            "compute_until",
            "call_at_bottom",
        ];
        check_backtrace(hog, &ways, has_lines);
    }
    assert!(printed[6].split("Green thread ").skip(1).any(|stack| {
        let ways = ["compute_until", "newcomers", "call_at_bottom"];
        stack.contains(", running:") && is_way(stack, &ways)
    }));
    assert_eq!(printed[7].matches("Green thread ").count(), 13);
    assert_eq!(printed[8].matches("has not run yet").count(), 3);
}

fn check_table(rows: &HashMap<String, Row>, summary: &str, has_lines: bool) {
    assert_eq!(rows.len(), 13, "{rows:?}");
    assert!(
        summary.starts_with("13 green threads: 3 new, "),
        "{summary}"
    );
    assert!(summary.ends_with("6 parked"), "{summary}");
    let holder = format!("{} \"holder\"", rows["holder"].number);
    let parked = [
        ("holder", "unpark", String::new(), "hold_a_lock_and_park"),
        (
            "locker",
            "mutex 0x",
            format!(", held by {holder}"),
            "wait_for_the_lock",
        ),
        (
            "receiver",
            "message from channel 0x",
            String::new(),
            "wait_for_a_message",
        ),
        (
            "joiner",
            "end of a thread: ",
            holder.clone(),
            "wait_for_another_thread",
        ),
        (
            "sleeper",
            "end of sleep, for ",
            " min more".into(),
            "sleep_for_long",
        ),
    ];
    for (name, begin, end, function) in &parked {
        let row = &rows[*name];
        assert_eq!(row.state, "parked", "{name}");
        assert!(row.waits_for.starts_with(begin), "{name}: {row:?}");
        assert!(row.waits_for.ends_with(end.as_str()), "{name}: {row:?}");
        assert!(row.function.contains(function), "{name}: {row:?}");
        assert!(
            !has_lines || row.function.contains("examples/debugging/threads.rs:"),
            "{name}: {row:?}"
        );
    }
    let reader = &rows["reader"];
    assert!(reader.waits_for.starts_with("read lock 0x"), "{reader:?}");
    assert!(
        reader.waits_for.contains(", held by kernel thread "),
        "{reader:?}"
    );
    for (name, row) in rows {
        assert!(
            row.spawned_at.contains("examples/debugging/threads.rs:"),
            "{name}: {row:?}"
        );
        if name.starts_with("new") {
            assert_eq!(
                (row.state.as_str(), row.function.as_str()),
                ("new", "-"),
                "{name}"
            );
        }
        if name.starts_with("hog") && row.state == "ready" {
            assert!(row.function.contains("compute_until"), "{name}: {row:?}");
        }
    }
    let stubborn = &rows["-"];
    assert_eq!(stubborn.state, "running");
    assert!(stubborn.function.contains("compute_until"), "{stubborn:?}");
}

/// Whether the lines contain these words in this order.
fn is_way(stack: &str, words: &[&str]) -> bool {
    let mut lines = stack.lines();
    words
        .iter()
        .all(|word| lines.any(|line| line.contains(word)))
}

fn check_backtrace(stack: &str, words: &[&str], has_lines: bool) {
    assert!(is_way(stack, words), "{words:?} in {stack}");
    let last = stack.lines().rfind(|line| line.starts_with('#')).unwrap();
    assert!(
        last.contains("call_at_bottom"),
        "it does not end at the bottom: {stack}"
    );
    assert!(!stack.contains("Backtrace stopped"), "{stack}");
    assert!(
        !has_lines || stack.contains("examples/debugging/threads.rs:"),
        "{stack}"
    );
}

const RUN: [&str; 2] = ["break gdb_stops_here", "run"];

fn knows_lines(program: &Path) -> bool {
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-ex", "info line gdb_stops_here"])
        .arg(program)
        .output();
    String::from_utf8_lossy(&output.unwrap().stdout).contains("threads.rs")
}

/// The process, and a core file that gdb has written of it.
#[test]
fn threads_are_seen_in_a_process_and_in_a_core_file_of_gdb() {
    alone!();
    let _dog = watchdog("gdb::threads_are_seen_in_a_process_and_in_a_core_file_of_gdb");
    if !can_test() {
        return;
    }
    let directory = Directory::new();
    let core = directory.path("core");
    let source = format!("source {SCRIPT}");
    let save = format!("greenthread core {}", core.display());
    let has_lines = knows_lines(&executable());
    println!("line numbers: {has_lines}");
    let mut commands = COMMANDS.to_vec();
    let more = [
        save.as_str(),
        // It is shown until the program goes on, and nothing of it stays.
        "greenthread holder",
        "bt",
        "info greenthreads -n holder",
        "greenthread none",
        "bt 1",
        "greenthread no-such-thread",
    ];
    commands.extend(more);
    let printed = gdb(&[&source, RUN[0], RUN[1]], &executable(), None, &commands);
    check(&printed, has_lines);
    let more = &printed[COMMANDS.len()..];
    assert!(more[0].contains("Saved corefile"), "{}", more[0]);
    let ways = ["\"holder\", parked]", "hold_a_lock_and_park"];
    assert!(is_way(&more[1], &ways), "{}", more[1]);
    check_backtrace(
        &more[2],
        &["hold_a_lock_and_park", "call_at_bottom"],
        has_lines,
    );
    assert!(
        more[3].lines().any(|line| line.starts_with("* ")),
        "{}",
        more[3]
    );
    assert!(more[5].contains("gdb_stops_here"), "{}", more[5]);

    let printed = gdb(&[&source], &executable(), Some(&core), &COMMANDS);
    check(&printed, has_lines);
}

/// A program without debug information, as cargo makes it in release builds that ask for none: the script is in the
/// program still, and loaded by itself. gdb does not stop at preemptions.
#[test]
fn symbols_are_enough() {
    alone!();
    let _dog = watchdog("gdb::symbols_are_enough");
    if !can_test() {
        return;
    }
    let directory = Directory::new();
    let copy = directory.path("gdb::program");
    fs::copy(executable(), &copy).unwrap();
    let strip = Command::new("strip")
        .arg("--strip-debug")
        .arg(&copy)
        .status();
    assert!(
        strip
            .expect("strip, of Debian's package binutils")
            .success()
    );
    assert!(!knows_lines(&copy));
    let safe = format!("add-auto-load-safe-path {}", directory.0.display());
    let reload = format!("file {}", copy.display());
    let mut commands = COMMANDS.to_vec();
    commands.extend(["info breakpoints", "info signals SIG64"]);
    let printed = gdb(&[&safe, &reload, RUN[0], RUN[1]], &copy, None, &commands);
    check(&printed, false);
    let (first, second) = (&printed[COMMANDS.len()], &printed[COMMANDS.len() + 1]);
    assert!(first.contains("already hit 1 time"), "{first}");
    let signal: Vec<_> = second
        .lines()
        .find(|line| line.starts_with("SIG64"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(signal[1..4], ["No", "No", "Yes"]);
}

/// A core file of the kernel's, of a program that has crashed.
#[test]
fn threads_are_seen_in_a_core_file_of_the_kernel() {
    alone!();
    let _dog = watchdog("gdb::threads_are_seen_in_a_core_file_of_the_kernel");
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !can_test() || pattern.trim() != "core" {
        eprintln!("SKIPPED unless core files are written to the current directory: {pattern}");
        return;
    }
    let directory = Directory::new();
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            "ulimit -c unlimited && exec \"$0\" --exact gdb::program --nocapture",
        ])
        .arg(executable())
        .current_dir(&directory.0)
        .env("CRASH", "1");
    let status = prepared(shell).output().unwrap().status;
    let core = fs::read_dir(&directory.0).unwrap().flatten().next();
    let Some(core) = core else {
        eprintln!("SKIPPED: there is no core file: {status}");
        return;
    };
    let source = format!("source {SCRIPT}");
    let printed = gdb(&[&source], &executable(), Some(&core.path()), &COMMANDS);
    check(&printed, knows_lines(&executable()));
}
