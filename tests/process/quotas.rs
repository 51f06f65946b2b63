//! What the system lets the process have: CPU time by a cgroup's quota, CPUs by a cpuset or an affinity, kernel threads by
//! a cgroup's limit. Each case runs in a process of its own, in a cgroup that was made for it.

#![cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    feature = "net",
    feature = "observe"
))]

#[path = "../support/cgroup.rs"]
mod cgroup;

use crate::common::*;
use crate::mixture::{Extent, Mixture};
use cgroup::{Cgroup, Version, set};
use greenthread::Builder;
use greenthread::runtime::{Mode, Runtime};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// Runs `inside` in a child in a cgroup of each version that the worker has. `prepare` sets the cgroup's limits, and
/// `judge` sees how the child has ended.
fn in_cgroups(
    name: &'static str,
    controller: &str,
    prepare: impl Fn(&Path, Version),
    inside: impl FnOnce(&Path, Version),
    judge: impl Fn(&Output),
) {
    if let Some(case) = child_case(name) {
        let (version, path) = case.split_once(' ').unwrap();
        let version = if version == "One" {
            Version::One
        } else {
            Version::Two
        };
        return inside(path.as_ref(), version);
    }
    for version in [Version::One, Version::Two] {
        let _w = watchdog(name);
        let cgroup = match Cgroup::new(version, controller) {
            Ok(cgroup) => cgroup,
            Err(why) => {
                eprintln!("{name}: skipped: {why}");
                continue;
            }
        };
        prepare(cgroup.path(), version);
        let case = format!("{version:?} {}", cgroup.path().display());
        let mut command = child_command(name, &case);
        cgroup.takes(&mut command);
        let out = command.output().expect("the test's own executable");
        assert_code(&out, 0);
        judge(&out);
        eprintln!("{name}: with cgroups of version {version:?}");
    }
}

/// The quota becomes `percent` of one CPU's time.
fn set_quota(cgroup: &Path, version: Version, percent: u32) {
    let quota = 1_000 * percent;
    match version {
        Version::One => set(cgroup, "cpu.cfs_quota_us", &quota.to_string()),
        Version::Two => set(cgroup, "cpu.max", &format!("{quota} 100000")),
    }
}

fn has_two_cpus() -> bool {
    let has = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    if !has {
        eprintln!("skipped: there is one CPU");
    }
    has
}

/// As many processors as the quota has CPUs; and more or fewer, when the quota changes.
#[test]
fn processors_follow_a_quota() {
    const NAME: &str = "quotas::processors_follow_a_quota";
    if child_case(NAME).is_none() && !has_two_cpus() {
        return;
    }
    let follow = |cgroup: &Path, version| {
        let runtime = Arc::new(Runtime::new().unwrap());
        assert_eq!(runtime.processors(), 1);
        if runtime.mode() == Mode::Kernel {
            return;
        }
        // It looks once a second while anything runs.
        let (stop, runs) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (stopped, count) = (stop.clone(), runs.clone());
        let awake = runtime.spawn(move || {
            while !stopped.load(Relaxed) {
                count.fetch_add(1, Relaxed);
                greenthread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for (percent, processors) in [(250, 2), (100, 1), (50, 1), (200, 2)] {
            set_quota(cgroup, version, percent);
            wait_until(|| runtime.processors() == processors);
        }
        let before = runs.load(Relaxed);
        wait_until(|| runs.load(Relaxed) > before + 10);
        stop.store(true, Relaxed);
        awake.join().unwrap();
    };
    let prepare = |cgroup: &Path, version| set_quota(cgroup, version, 100);
    in_cgroups(NAME, "cpu", prepare, follow, |_| ());
}

/// A process that the system stops for most of the time: nothing is lost, and a kernel thread that is not run does not
/// count as blocked for ever.
#[test]
fn a_throttled_process_goes_on() {
    alone!();
    let throttled = |cgroup: &Path, _| {
        let mixture = Mixture::begin(Extent {
            sockets: true,
            ..Extent::default()
        });
        // A round takes less than a period of the quota on a fast worker.
        let is_throttled = || {
            let stat = std::fs::read_to_string(cgroup.join("cpu.stat")).unwrap();
            let times = stat.lines().find_map(|l| l.strip_prefix("nr_throttled "));
            times.unwrap_or_else(|| panic!("{stat}")) != "0"
        };
        let mut rounds = 0;
        while rounds == 0 || !is_throttled() {
            mixture.round();
            rounds += 1;
        }
        rounds += mixture.until_preempted(0);
        let shown = mixture.end(rounds);
        assert!(shown.mode == Mode::Kernel || shown.preemptions > 0 && shown.hand_offs > 0);
    };
    let prepare = |cgroup: &Path, version| set_quota(cgroup, version, 30);
    in_cgroups(
        "quotas::a_throttled_process_goes_on",
        "cpu",
        prepare,
        throttled,
        |_| (),
    );
}

#[test]
fn processors_follow_a_set_of_cpus() {
    alone!();
    let prepare = |cgroup: &Path, version| {
        if version == Version::One {
            set(cgroup, "cpuset.mems", "0");
        }
        set(cgroup, "cpuset.cpus", "0");
    };
    let inside = |_: &Path, _| assert_eq!(Runtime::new().unwrap().processors(), 1);
    in_cgroups(
        "quotas::processors_follow_a_set_of_cpus",
        "cpuset",
        prepare,
        inside,
        |_| (),
    );
}

#[test]
fn processors_follow_an_affinity() {
    const NAME: &str = "quotas::processors_follow_an_affinity";
    if child_case(NAME).is_some() {
        return assert_eq!(Runtime::new().unwrap().processors(), 1);
    }
    if !has_two_cpus() {
        return;
    }
    let mut command = child_command(NAME, "");
    let one_cpu = || {
        // SAFETY: a zeroed set is empty; the kernel reads it.
        unsafe {
            let mut cpus: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut cpus);
            libc::sched_setaffinity(0, size_of_val(&cpus), &cpus);
        }
        Ok(())
    };
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(one_cpu) };
    assert_code(&command.output().unwrap(), 0);
}

/// How many kernel threads a cgroup has.
fn pids(cgroup: &Path) -> usize {
    let pids = std::fs::read_to_string(cgroup.join("pids.current")).unwrap();
    pids.trim().parse().unwrap()
}

/// None can be made at the start: an error, each time that it is tried, and a runtime as soon as there can be.
#[test]
fn no_kernel_threads_to_begin_with() {
    alone!();
    let inside = |cgroup: &Path, _| {
        let most = pids(cgroup);
        set(cgroup, "pids.max", &most.to_string());
        assert!(std::thread::Builder::new().spawn(|| ()).is_err());
        for _ in 0..3 {
            assert!(Builder::new().spawn(|| ()).is_err());
            assert!(Runtime::new().is_err() || !green());
        }
        // A few, but not all that it takes.
        set(cgroup, "pids.max", &(most + 2).to_string());
        drop(Runtime::new());
        set(cgroup, "pids.max", "max");
        assert_eq!(Builder::new().spawn(|| 5).unwrap().join().unwrap(), 5);
    };
    in_cgroups(
        "quotas::no_kernel_threads_to_begin_with",
        "pids",
        |_, _| (),
        inside,
        |_| (),
    );
}

/// Threads block in the kernel, and no more kernel threads can be made: it is said, and those that block nowhere go on
/// as soon as there can be.
#[test]
fn no_more_kernel_threads() {
    alone!();
    const NAME: &str = "quotas::no_more_kernel_threads";
    const THREADS: usize = 24;
    const MORE: usize = 4;
    let inside = |cgroup: &Path, _| {
        let runtime = Runtime::builder().processors(2).build().unwrap();
        if runtime.mode() == Mode::Kernel {
            return eprintln!("greenthread: the system refuses, as pids.max says");
        }
        assert_eq!(runtime.spawn(|| 5).join().unwrap(), 5);
        set(cgroup, "pids.max", &(pids(cgroup) + MORE).to_string());
        let begun = Arc::new(AtomicUsize::new(0));
        let (readers, writers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| std::io::pipe().unwrap()).unzip();
        let read = |reader: std::io::PipeReader| {
            let begun = begun.clone();
            runtime.spawn(move || {
                begun.fetch_add(1, Relaxed);
                let mut byte = 0u8;
                let number = libc::SYS_read;
                // SAFETY: one byte, and a descriptor that is open.
                unsafe { libc::syscall(number, reader.as_raw_fd(), &mut byte, 1) }
            })
        };
        let threads: Vec<_> = readers.into_iter().map(read).collect();
        let is_full = || {
            let events = std::fs::read_to_string(cgroup.join("pids.events")).unwrap();
            events
                .lines()
                .any(|line| line.starts_with("max ") && line != "max 0")
        };
        wait_until(|| is_full() && begun.load(Relaxed) > MORE);
        std::thread::sleep(std::time::Duration::from_millis(200));
        let got = begun.load(Relaxed);
        assert!(got < THREADS, "{got} have begun: there is no limit");
        set(cgroup, "pids.max", "max");
        wait_until(|| begun.load(Relaxed) == THREADS);
        drop(writers);
        assert!(
            threads
                .into_iter()
                .all(|thread| thread.join().unwrap() == 0)
        );
        runtime.shutdown();
    };
    let judge = |out: &Output| {
        line_with(out, &["greenthread: ", "the system refuses", "pids.max"]);
    };
    in_cgroups(NAME, "pids", |_, _| (), inside, judge);
}
