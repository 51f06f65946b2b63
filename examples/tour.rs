//! The tour: what green threads are for, in one run.
//!
//! 1. Count the words of every file below a folder. Each file gets a green thread of its own that
//!    reads it with plain blocking calls; counter threads take the texts, an aggregator adds up.
//!    Meanwhile a CPU hog that never yields runs for each processor, and other threads are blocked in
//!    system calls that the runtime is not told of. Neither may hold the counting up.
//! 2. Park 100,000 green threads, look at the memory they take, wake them all.
//! 3. Check the words against a plain sequential count, and print a table.
//!
//! `main` starts the tour; `Mailbox` shows how a blocking primitive is made from `park` and `unpark`.

use greenthread::Thread;
use greenthread::runtime::{Mode, Runtime};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const HELP: &str = "\
Counts the words of every file below PATH with one green thread a file, beside CPU hogs and
blocked threads; then parks 100,000 green threads and wakes them all.

usage: cargo run --release --example tour -- [--policy NAME] [--crowd NUMBER] [PATH]
       PATH: this repository unless given; NAME: as in GREENTHREAD_POLICY
       NUMBER: of the threads that wait at the same time, 100000 unless given
exit status: 0 if the result is right, 1 if it is wrong, 2 for a bad argument";

/// Threads that block in the kernel while the counting goes on, half in reads, half in sleeps.
const BLOCKED: usize = 16;

fn main() -> ExitCode {
    let mut folder = env!("CARGO_MANIFEST_DIR").to_string();
    let mut builder = Runtime::builder();
    let mut crowd = 100_000;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match &*word {
            "-h" | "--help" => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            "--policy" => builder = builder.policy_named(&words.next().unwrap_or_default()),
            "--crowd" => match words.next().unwrap_or_default().parse() {
                Ok(number) => crowd = number,
                Err(error) => {
                    eprintln!("tour: --crowd: {error}\n\n{HELP}");
                    return ExitCode::from(2);
                }
            },
            _ => folder = word,
        }
    }
    let mut files = Vec::new();
    if let Err(error) = collect_files(Path::new(&folder), &mut files) {
        eprintln!("tour: cannot read {folder}: {error}\n\n{HELP}");
        return ExitCode::from(2);
    }
    let runtime = match builder.build() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("tour: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let inside = runtime.clone();
    let tour = runtime.spawn(move || tour(&folder, &files, crowd, &inside));
    match tour.join() {
        Ok(true) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Takes the tour, and returns whether all results are right.
fn tour(folder: &str, files: &[PathBuf], mut crowd: usize, runtime: &Runtime) -> bool {
    let start = Instant::now();
    if runtime.mode() == Mode::Kernel {
        crowd = crowd.min(1_000);
        println!("kernel-thread mode: every thread is a kernel thread, and the crowd {crowd}");
    }
    let (number, processors) = (files.len(), runtime.processors());
    println!("1. counting the words of {number} files below {folder},");
    println!("   beside {processors} CPU hogs and {BLOCKED} blocked threads");
    let words = count_beside_nuisances(files, runtime);
    println!("2. parking {crowd} threads and waking them");
    let (memory, woken) = park_and_wake(crowd, runtime);
    let (metrics, wall) = (runtime.metrics(), start.elapsed());
    println!("3. counting again, in one plain loop\n");
    let expected: usize = files.iter().map(|path| count(&read(path))).sum();

    let table = [
        ("processors", processors as u64),
        ("threads", metrics.spawns),
        ("switches", metrics.switches),
        ("steals", metrics.steals),
        ("preemptions", metrics.preemptions),
        ("hand-offs", metrics.hand_offs),
        ("bytes a parked thread", memory as u64),
        ("wall time, ms", wall.as_millis() as u64),
    ];
    for (name, value) in table {
        println!("   {name:<22}{value:>12}");
    }
    if (words, woken) != (expected, crowd) {
        eprintln!("\nWRONG: {words} words instead of {expected}, {woken} of {crowd} threads woken");
        return false;
    }
    println!("\nresult checked: {words} words in {number} files");
    true
}

/// One reader thread a file → counter threads → one aggregator thread, whose sum is returned.
fn count_beside_nuisances(files: &[PathBuf], runtime: &Runtime) -> usize {
    let counters = 4 * runtime.processors();
    let texts: Vec<Mailbox<Vec<u8>>> = (0..counters).map(|_| Mailbox::new()).collect();
    let sums = Mailbox::new();
    let done = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let pipes = (0..BLOCKED / 2).map(|_| io::pipe().expect("cannot open a pipe"));
    let (ends, pens): (Vec<_>, Vec<_>) = pipes.unzip();

    greenthread::scope(|s| {
        for _ in 0..runtime.processors() {
            // A hog: no call into the runtime, no system call, nothing to yield at.
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for mut end in &ends {
            // Blocked in the kernel: nothing comes before the other ends, `pens`, are dropped.
            s.spawn(move || assert!(end.read(&mut [0]).is_ok_and(|n| n == 0)));
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(20)); // the kernel's sleep, not ours
                }
            });
        }

        let aggregator = s.spawn(|| {
            let mut words = 0;
            for _ in files {
                words += sums.take();
                done.fetch_add(1, Relaxed);
            }
            words
        });
        for (i, texts) in texts.iter().enumerate() {
            let (sums, share) = (&sums, files.iter().skip(i).step_by(counters).len());
            s.spawn(move || (0..share).for_each(|_| sums.put(count(&texts.take()))));
        }
        let mut started = 0;
        // Two thousand files at a time, so that not all texts are in memory at once.
        for batch in files.chunks(2_000) {
            for path in batch {
                let texts = &texts[started % counters];
                s.spawn(move || texts.put(read(path)));
                started += 1;
            }
            show_until(started, "files counted", &done, runtime);
        }

        stop.store(true, Relaxed);
        drop(pens);
        aggregator.join().unwrap()
    })
}

/// Returns the resident memory of one parked thread, and how many threads woke.
fn park_and_wake(crowd: usize, runtime: &Runtime) -> (usize, usize) {
    let (parked, wake) = (AtomicUsize::new(0), AtomicBool::new(false));
    greenthread::scope(|s| {
        let before = resident_bytes();
        let parker = || {
            parked.fetch_add(1, Relaxed);
            while !wake.load(Acquire) {
                greenthread::park(); // may return without cause, as std's
            }
        };
        let threads: Vec<_> = (0..crowd).map(|_| s.spawn(parker)).collect();
        show_until(crowd, "threads parked", &parked, runtime);
        let after = resident_bytes();

        wake.store(true, Release); // pairs with the load in `parker`
        threads.iter().for_each(|t| t.thread().unpark());
        let woken = threads.into_iter().filter_map(|t| t.join().ok()).count();
        (after.saturating_sub(before) / crowd, woken)
    })
}

/// Hands items over to one thread. It is made of a lock, held to put or take an item and never while
/// waiting, and of park and unpark.
struct Mailbox<T>(Mutex<Mail<T>>);

struct Mail<T> {
    items: VecDeque<T>,
    waiting: Option<Thread>,
}

impl<T> Mailbox<T> {
    fn new() -> Mailbox<T> {
        Mailbox(Mutex::new(Mail {
            items: VecDeque::new(),
            waiting: None,
        }))
    }

    fn put(&self, item: T) {
        let mut mail = self.0.lock().unwrap();
        mail.items.push_back(item);
        let waiting = mail.waiting.take();
        drop(mail);
        if let Some(thread) = waiting {
            thread.unpark();
        }
    }

    fn take(&self) -> T {
        loop {
            let mut mail = self.0.lock().unwrap();
            if let Some(item) = mail.items.pop_front() {
                return item;
            }
            mail.waiting = Some(greenthread::current());
            drop(mail);
            greenthread::park(); // returns at once if `put` has come in between
        }
    }
}

fn count(text: &[u8]) -> usize {
    String::from_utf8_lossy(text)
        .split_ascii_whitespace()
        .count()
}

/// A file's bytes; a file that cannot be read counts as empty, here and in the check.
fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// All regular files below `folder`, version control and build results left out.
fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_file() {
            files.push(path);
        } else if kind.is_dir() && !path.ends_with(".git") && !path.ends_with("target") {
            collect_files(&path, files)?;
        }
    }
    Ok(())
}

/// Waits until `done` reaches `goal`, with a line of progress every fifth of a second.
fn show_until(goal: usize, what: &str, done: &AtomicUsize, runtime: &Runtime) {
    for round in 0.. {
        let (done, now) = (done.load(Relaxed), runtime.metrics());
        if round % 100 == 0 || done >= goal {
            println!(
                "   {done:>7} {what:<15}{:>8} live threads{:>7} preemptions{:>6} hand-offs",
                now.live_threads, now.preemptions, now.hand_offs
            );
        }
        if done >= goal {
            return;
        }
        greenthread::sleep(Duration::from_millis(2));
    }
}

/// Resident memory of this process; 0 where the system does not tell.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or(0, |kib: usize| kib << 10)
}
