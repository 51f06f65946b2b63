//! A million parked threads: two pages and a bit each, a guard below every stack, and few memory
//! mappings; all of them wake. Twenty thousand in debug builds, and fewer where memory is
//! short or the kernel cannot install guards without a mapping each; the run says so.

use crate::support::*;
use greenthread::JoinHandle;
use greenthread::runtime::Runtime;
use std::hint::black_box;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
#[cfg(feature = "observe")]
use std::time::Duration;

const PAGE: usize = 4096;
const GUARD: usize = 64 << 10;
/// 8.8 KiB: what a parked thread may take of resident memory, handles and all.
const PER_THREAD: usize = 8 * 1024 + 819;
const MAPPINGS: usize = 200;
/// A kernel thread's stack, its guard, its alternate stack with another, and a heap of malloc's.
const MAPPINGS_OF_ONE: usize = 6;
/// Both beside an allocator that is not libc's (`.ci/allocators`), which has mappings of its own.
const PER_THREAD_ELSEWHERE: usize = 20 * 1024;
const MAPPINGS_ELSEWHERE: usize = 1000;
/// What it may take of page tables: a page of entries is for 2 MiB, and so are the stacks.
const TABLES_PER_THREAD: usize = PAGE + PAGE / 8;

/// Parked threads, each of which has left the address of a local variable.
struct Crowd {
    wake: Arc<AtomicBool>,
    places: Arc<Vec<AtomicUsize>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn park(runtime: &Runtime, n: usize, dog: &Watchdog) -> Crowd {
        let wake = Arc::new(AtomicBool::new(false));
        let places: Arc<Vec<AtomicUsize>> = Arc::new((0..n).map(|_| AtomicUsize::new(0)).collect());
        let threads = (0..n).map(|i| {
            let (wake, places) = (wake.clone(), places.clone());
            if i % 10_000 == 0 {
                dog.progress();
            }
            runtime.spawn(move || {
                let local = 0u8;
                places[i].store(black_box(&raw const local) as usize, Release);
                while !wake.load(Acquire) {
                    greenthread::park();
                }
            })
        });
        let crowd = Crowd {
            threads: threads.collect(),
            wake,
            places,
        };
        for (i, place) in crowd.places.iter().enumerate() {
            while place.load(Acquire) == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if i % 10_000 == 0 {
                dog.progress();
            }
        }
        crowd
    }

    /// Returns how many threads woke and ended well.
    fn wake(self, dog: &Watchdog) -> usize {
        self.wake.store(true, Release); // pairs with the load in the parked threads
        for (i, thread) in self.threads.iter().enumerate() {
            thread.thread().unpark();
            if i % 10_000 == 0 {
                dog.progress();
            }
        }
        let mut woken = 0;
        for thread in self.threads {
            thread.join().unwrap();
            woken += 1;
            if woken % 10_000 == 0 {
                dog.progress();
            }
        }
        woken
    }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
}

/// Bytes of page tables, of the level that has an entry a page.
fn table_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    let number = line
        .and_then(|line| line.split_whitespace().next())
        .unwrap();
    number.parse::<usize>().unwrap() << 10
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

/// Asks the kernel, which answers with an error where a touch would be a fault.
struct Probe {
    reader: std::io::PipeReader,
    writer: std::io::PipeWriter,
}

impl Probe {
    fn new() -> Probe {
        let (reader, writer) = std::io::pipe().unwrap();
        Probe { reader, writer }
    }

    fn readable(&mut self, address: usize) -> bool {
        // SAFETY: `write` checks the address itself and fails with EFAULT if it cannot be read.
        let written = unsafe { libc::write(self.writer.as_raw_fd(), address as *const _, 1) };
        written == 1 && self.reader.read(&mut [0]).unwrap() == 1
    }

    /// How much of the memory below `address` cannot be touched, where that begins to be so.
    fn guard_below(&mut self, address: usize) -> usize {
        let mut page = address & !(PAGE - 1);
        while self.readable(page) {
            page -= PAGE;
        }
        (0..GUARD / PAGE)
            .take_while(|i| !self.readable(page - i * PAGE))
            .count()
            * PAGE
    }
}

#[test]
fn a_million_parked_threads() {
    let _alone = alone();
    crate::common::alone!();
    let dog = Watchdog::new("a million threads");
    let (runtime, green) = runtime(2);
    let is_libcs = cfg!(not(greenthread_allocator)) && std::env::var_os("LD_PRELOAD").is_none();
    let (per_thread, most_mappings) = if is_libcs {
        (PER_THREAD, MAPPINGS)
    } else {
        (PER_THREAD_ELSEWHERE, MAPPINGS_ELSEWHERE)
    };
    let n = as_many_threads(green, 500, per_thread);
    // The first threads pay for what the runtime sets up once.
    assert_eq!(Crowd::park(&runtime, 100, &dog).wake(&dog), 100);

    let (before, tables_before) = (resident_bytes(), table_bytes());
    let crowd = Crowd::park(&runtime, n, &dog);
    // The places are this test's, and not the threads'.
    let threads = resident_bytes() - n * size_of::<AtomicUsize>();
    let (each, maps) = (threads.saturating_sub(before) / n, mappings());
    let tables = table_bytes().saturating_sub(tables_before) / n;
    eprintln!("{n} threads parked: {each} bytes each, {tables} of page tables, {maps} mappings");
    dog.progress();
    if green {
        assert!(each <= per_thread, "{each} bytes a thread");
        assert!(tables <= TABLES_PER_THREAD, "{tables} bytes of page tables");
        // Stacks of kernel threads, which the spawner makes ahead of need, are not what is counted here.
        let kernel_threads = runtime.metrics().kernel_threads;
        assert!(
            maps < most_mappings + kernel_threads * MAPPINGS_OF_ONE || !guards_are_free(),
            "{maps} mappings, {kernel_threads} kernel threads"
        );
        let (mut probe, mut rng) = (Probe::new(), Rng::from_env());
        let sample = [0, 1, n - 1]
            .into_iter()
            .chain((0..500).map(|_| rng.below(n as u64) as usize));
        for i in sample {
            let guard = probe.guard_below(crowd.places[i].load(Relaxed));
            assert!(guard >= GUARD, "thread {i}: only {guard} bytes of guard");
        }
        assert!(runtime.metrics().live_threads >= n);
    }
    dump(n, green, &dog);
    assert_eq!(crowd.wake(&dog), n);
    runtime.shutdown();
}

/// A dump shows all the threads, grouped by their stacks, and takes neither long nor much memory.
#[cfg(all(
    feature = "observe",
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
fn dump(n: usize, green: bool, dog: &Watchdog) {
    use greenthread::observe::{self, State};
    /// Of the most that it has had since `clear_refs` was written to.
    fn peak_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.unwrap().parse::<usize>().unwrap() << 10
    }
    const LONGEST: Duration = Duration::from_secs(10);
    const MOST: usize = 1 << 30;
    const RESET_PEAK: &str = "5";
    const TRIES: usize = 5;
    let group = format!("\n{n} threads:");
    for tries_left in (0..TRIES).rev() {
        std::fs::write("/proc/self/clear_refs", RESET_PEAK).unwrap();
        let before = resident_bytes();
        let before_dump = cpu_time();
        let dump = observe::dump();
        let text = dump.to_string();
        let (took, more) = (
            cpu_time() - before_dump,
            peak_bytes().saturating_sub(before),
        );
        dog.progress();
        eprintln!(
            "a dump of {n}: {took:?} of CPU time, {} MiB more",
            more >> 20
        );
        assert!(more < MOST, "{more} bytes more");
        // The last thread may be on its way to its wait.
        let parked = dump.threads().filter(|t| t.state() == State::Parked);
        // The stack of a kernel thread may be had at the second try only.
        let are_together = !green || text.contains(&group);
        if parked.count() >= n && are_together && took < LONGEST {
            return;
        }
        let beginning = &text[..text.len().min(4096)];
        assert!(tries_left != 0, "{took:?}, no group of {n}: {beginning}");
    }
}

#[cfg(not(all(
    feature = "observe",
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
)))]
fn dump(_: usize, _: bool, _: &Watchdog) {}

/// One of many neighbours runs into its guard: the process says who, and aborts.
#[test]
fn an_overflow_names_its_thread_and_aborts() {
    const NAME: &str = "scale::an_overflow_names_its_thread_and_aborts";
    const CROWD: usize = 200;
    let _alone = alone();
    if is_child() {
        let victim: usize = std::env::var("GT_VICTIM").unwrap().parse().unwrap();
        let parked = (0..CROWD).map(|i| {
            greenthread::Builder::new()
                .name(format!("thread-{i}"))
                .spawn(move || {
                    if i == victim {
                        black_box(descend(1));
                    }
                    loop {
                        greenthread::park();
                    }
                })
                .unwrap()
        });
        parked.collect::<Vec<_>>().remove(victim).join().unwrap();
        panic!("the overflow was survived");
    }
    let mut rng = Rng::from_env();
    for victim in [0, CROWD as u64 - 1, rng.below(CROWD as u64)] {
        let child = child(NAME)
            .env("GT_VICTIM", victim.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        let message = format!("thread 'thread-{victim}'");
        assert!(
            said.contains(&message) && said.contains("has overflowed its stack"),
            "{said}"
        );
    }
}

/// Endless recursion that cannot be turned into a loop.
fn descend(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == u64::MAX {
        0
    } else {
        descend(depth + 1) + frame[depth as usize % 64]
    }
}
