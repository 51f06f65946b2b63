//! What small file operations cost beside std's: alone, on one green thread that makes both in turn;
//! and beside computing threads, one a processor: ours on a green thread beside green ones, std's on
//! a kernel thread beside kernel threads.
//!
//! It prints a table, not criterion's figures: what counts is the ratio of batches that were taken in
//! turn. `cargo bench -p greenthread-benches --bench files -- --rounds 9 --copy-mib 1024 --only copy`, with
//! `TMPDIR` on the file system.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Makes an operation `n` times on files in a directory, and says how long it took.
type Operation = fn(&Path, u64) -> Duration;

/// Each with the modules that it is made with.
macro_rules! operations {
    ($fs:path, $io:path) => {{
        use std::io::Write;
        use $fs as fs;
        use $io as io;
        fn time(n: u64, mut operation: impl FnMut()) -> Duration {
            let start = Instant::now();
            (0..n).for_each(|_| operation());
            start.elapsed()
        }
        let operations: [(&str, Operation); 6] = [
            ("write of 100 bytes", |place, n| {
                let mut file = fs::File::create(place.join("written")).expect("a file");
                time(n, || file.write_all(&[b'x'; 100]).expect("a write"))
            }),
            ("open and close", |place, n| {
                let path = place.join("there");
                time(n, || drop(fs::File::open(&path).expect("a file")))
            }),
            ("metadata", |place, n| {
                let path = place.join("there");
                time(n, || {
                    assert!(fs::metadata(&path).expect("metadata").is_file())
                })
            }),
            ("read of 4 KiB at an offset", |place, n| {
                use std::os::unix::fs::FileExt;
                let file = fs::File::open(place.join("there")).expect("a file");
                let mut block = [0; 4096];
                time(n, || file.read_exact_at(&mut block, 8192).expect("a read"))
            }),
            ("read of /proc/self/stat", |_, n| {
                time(n, || drop(fs::read("/proc/self/stat").expect("a read")))
            }),
            ("io::copy of a MiB", |place, n| {
                let (path, to) = (place.join("large"), place.join("copy"));
                if std::fs::metadata(&path).map_or(0, |there| there.len()) != n << 20 {
                    std::fs::write(&path, vec![7; (n as usize) << 20]).expect("a file");
                }
                let mut from = fs::File::open(path).expect("a file");
                let mut to = fs::File::create(to).expect("a file");
                time(1, || {
                    let copied = io::copy(&mut from, &mut to).expect("a copy");
                    assert_eq!(copied, n << 20);
                })
            }),
        ];
        operations
    }};
}

fn main() {
    let argument = |name: &str, default: u64| {
        let mut arguments = std::env::args().skip_while(|argument| argument != name);
        let given = arguments.nth(1).map(|value| value.parse());
        given.map_or(default, |value| value.expect("a number"))
    };
    let (rounds, copy) = (argument("--rounds", 5), argument("--copy-mib", 256));
    let place = Place::new();
    let ours = operations!(greenthread::fs, greenthread::io);
    let theirs = operations!(std::fs, std::io);
    println!("| µs | std | greenthread | ratio | beside hogs: std | greenthread | ratio |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let only = std::env::args()
        .skip_while(|argument| argument != "--only")
        .nth(1);
    let is_asked = |name: &str| only.as_ref().is_none_or(|only| name.contains(only));
    for ((name, ours), (_, theirs)) in ours.into_iter().zip(theirs) {
        if !is_asked(name) {
            continue;
        }
        let is_copy = name.starts_with("io::copy");
        // Short batches alternate; beside hogs they must outlast some time slices.
        let size = |micros| batch(&place.0, theirs, micros);
        let (few, many) = if is_copy {
            (copy, copy)
        } else {
            (size(100), size(150_000))
        };
        let path = place.0.clone();
        let pairs = if is_copy { rounds } else { 100 * rounds };
        let both = move || alternate(pairs, || theirs(&path, few), || ours(&path, few));
        let alone = greenthread::spawn(both).join().expect("it panicked");
        let crowded = alternate(
            rounds,
            || {
                let path = place.0.clone();
                let spawn = |work: Work| Joiner::Kernel(std::thread::spawn(work));
                beside_hogs(spawn, move || theirs(&path, many))
            },
            || {
                let path = place.0.clone();
                let spawn = |work: Work| Joiner::Green(greenthread::spawn(work));
                beside_hogs(spawn, move || ours(&path, many))
            },
        );
        let micros = |taken: Duration, n: u64| taken.as_secs_f64() * 1e6 / n as f64;
        let (a, b) = (micros(alone.0, few), micros(alone.1, few));
        let (c, d) = (micros(crowded.0, many), micros(crowded.1, many));
        let ratios = [b / a, d / c];
        println!(
            "| {name} | {a:.2} | {b:.2} | {:.2} | {c:.2} | {d:.2} | {:.2} |",
            ratios[0], ratios[1]
        );
    }
}

/// The medians of what two ways take, each of them the first as often as the second.
fn alternate(
    pairs: u64,
    one: impl Fn() -> Duration,
    other: impl Fn() -> Duration,
) -> (Duration, Duration) {
    let (mut ones, mut others): (Vec<_>, Vec<_>) = (0..pairs.next_multiple_of(2))
        .map(|i| match i % 2 {
            0 => (one(), other()),
            _ => {
                let other = other();
                (one(), other)
            }
        })
        .unzip();
    ones.sort();
    others.sort();
    (ones[ones.len() / 2], others[others.len() / 2])
}

type Work = Box<dyn FnOnce() -> Duration + Send>;

enum Joiner {
    Green(greenthread::JoinHandle<Duration>),
    Kernel(std::thread::JoinHandle<Duration>),
}

impl Joiner {
    fn join(self) -> Duration {
        match self {
            Joiner::Green(thread) => thread.join(),
            Joiner::Kernel(thread) => thread.join(),
        }
        .expect("a thread panicked")
    }
}

/// How long `work` says that it takes while a thread a processor computes.
fn beside_hogs(
    spawn: impl Fn(Work) -> Joiner,
    work: impl FnOnce() -> Duration + Send + 'static,
) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let count = greenthread::available_parallelism().map_or(1, usize::from);
    let hogs: Vec<_> = (0..count)
        .map(|_| {
            let stop = stop.clone();
            spawn(Box::new(move || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
                Duration::ZERO
            }))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(30));
    let taken = spawn(Box::new(work)).join();
    stop.store(true, Relaxed);
    for hog in hogs {
        hog.join();
    }
    taken
}

/// How many operations take so many microseconds.
fn batch(place: &Path, operation: Operation, micros: u64) -> u64 {
    let trial = 200;
    let each = (0..5).map(|_| operation(place, trial)).min().expect("five");
    micros * 1000 * trial / (each.as_nanos() as u64).max(1)
}

/// A directory that is removed in the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let path = std::env::temp_dir().join(format!("greenthread-bench-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        std::fs::write(path.join("there"), [7; 20_000]).expect("a file");
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
