//! Small file operations cost what std's do: nothing waits, so nothing is switched to.
//!
//! The idea: batches of std's operation and of ours in turn, and the ratio of their medians. Alone,
//! one green thread makes both; beside computing threads, one a processor, a green thread makes ours
//! beside green ones, and a kernel thread std's beside kernel threads.

use crate::common::directory::Directory;
use crate::support::{Samples, Watchdog, alone, best_of};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

type Operation = fn(&Path, usize) -> Duration;

macro_rules! operations {
    ($fs:path) => {{
        use std::io::Write;
        use $fs as fs;
        fn time(n: usize, mut operation: impl FnMut()) -> Duration {
            let start = Instant::now();
            (0..n).for_each(|_| operation());
            start.elapsed()
        }
        let operations: [(&str, Operation); 5] = [
            ("write", |place, n| {
                let mut file = fs::File::create(place.join("written")).unwrap();
                time(n, || file.write_all(&[7; 100]).unwrap())
            }),
            ("open and close", |place, n| {
                let path = place.join("there");
                time(n, || drop(fs::File::open(&path).unwrap()))
            }),
            ("metadata", |place, n| {
                let path = place.join("there");
                time(n, || assert!(fs::metadata(&path).unwrap().is_file()))
            }),
            ("read at an offset", |place, n| {
                use std::os::unix::fs::FileExt;
                let file = fs::File::open(place.join("there")).unwrap();
                let mut block = [0; 4096];
                time(n, || file.read_exact_at(&mut block, 8192).unwrap())
            }),
            ("read of /proc", |_, n| {
                time(n.div_ceil(5), || drop(fs::read("/proc/self/stat").unwrap()))
            }),
        ];
        operations
    }};
}

/// Whether ours takes at most half as much again as std's.
fn is_as_std(what: &str, pairs: usize, both: impl Fn(bool) -> (Duration, Duration)) -> bool {
    let (mut std, mut ours) = (Samples::default(), Samples::default());
    for pair in 0..pairs {
        let (theirs, mine) = both(pair % 2 == 0);
        std.add(theirs);
        ours.add(mine);
    }
    eprintln!("{what}: std {std}; ours {ours}");
    ours.quantile(0.5) <= std.quantile(0.5).mul_f64(1.5)
}

#[test]
fn alone_in_the_process() {
    let _alone = alone();
    let watchdog = Watchdog::new("fs_cost::alone_in_the_process");
    let directory = Directory::new();
    directory.file("there", &[7; 20_000]);
    let theirs = operations!(std::fs);
    for ((name, ours), (_, std)) in operations!(greenthread::fs).into_iter().zip(theirs) {
        watchdog.progress();
        best_of(5, name, || {
            let place = directory.0.clone();
            let both = move |std_first| match std_first {
                true => (std(&place, 50), ours(&place, 50)),
                false => {
                    let ours = ours(&place, 50);
                    (std(&place, 50), ours)
                }
            };
            let thread = greenthread::spawn(move || is_as_std(name, 60, both));
            thread.join().unwrap()
        });
    }
}

type Work = Box<dyn FnOnce() -> Duration + Send>;
type Join = Box<dyn FnOnce() -> Duration>;

fn green(work: Work) -> Join {
    let thread = greenthread::spawn(work);
    Box::new(|| thread.join().unwrap())
}

fn kernel(work: Work) -> Join {
    let thread = std::thread::spawn(work);
    Box::new(|| thread.join().unwrap())
}

fn beside_hogs(spawn: fn(Work) -> Join, work: Work) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..greenthread::available_parallelism().unwrap().get())
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
    let taken = spawn(work)();
    stop.store(true, Relaxed);
    hogs.into_iter().for_each(|join| {
        join();
    });
    taken
}

#[test]
fn beside_computing_threads() {
    let _alone = alone();
    let watchdog = Watchdog::new("fs_cost::beside_computing_threads");
    let directory = Directory::new();
    directory.file("there", &[7; 20_000]);
    let theirs = operations!(std::fs);
    for ((name, ours), (_, std)) in operations!(greenthread::fs).into_iter().zip(theirs) {
        // Several time slices of each.
        let each = (0..5).map(|_| std(&directory.0, 100)).min().unwrap() / 100;
        let count = Duration::from_millis(20).div_duration_f64(each) as usize;
        watchdog.progress();
        best_of(5, name, || {
            is_as_std(name, 3, |_| {
                let (here, there) = (directory.0.clone(), directory.0.clone());
                (
                    beside_hogs(kernel, Box::new(move || std(&here, count))),
                    beside_hogs(green, Box::new(move || ours(&there, count))),
                )
            })
        });
    }
}
