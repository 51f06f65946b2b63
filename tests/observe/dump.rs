//! Dumps: what is shown of threads that run, are ready, have not run, or have ended; names, times, small stacks.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use crate::common::alone;
use crate::common::{green, wait_until, watchdog};
use crate::dumps::{dump_until, is_like, named, until_parked};
use greenthread::channel;
use greenthread::observe::{self, Dump, State};
use greenthread::runtime::Runtime;
use greenthread::{Builder, JoinHandle, thread};
use serde_json::Value;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// Spawns a thread of that name.
#[track_caller]
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name.into()).spawn(body).unwrap()
}

/// A closure is inlined here, if anywhere: without debug information its own name would be lost.
#[inline(never)]
fn runs(body: impl FnOnce()) {
    body();
    black_box(());
}

/// Threads that have never run: one processor is busy, and they wait behind.
#[test]
fn new_and_ready() {
    alone!();
    let _w = watchdog("dump::new_and_ready");
    if !green() {
        return;
    }
    // A dump of another test can hold the busy thread for so long that the others get its processor.
    for tries_left in (0..20).rev() {
        match dump_without_new_and_ready() {
            Some(dump) => assert!(tries_left != 0, "{dump}"),
            None => return,
        }
    }
}

/// A dump that does not show them as they were just before; `None`: it does.
fn dump_without_new_and_ready() -> Option<Dump> {
    let runtime = Runtime::builder()
        .processors(1)
        .time_slice(HOUR)
        .build()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (begun, runs) = (Arc::new(AtomicBool::new(false)), stop.clone());
    let begins = begun.clone();
    let parked = runtime.spawn(on_park_once);
    dump_until("parked", |dump| {
        dump.threads().any(|thread| {
            thread.id() == Some(parked.thread().id()) && thread.state() == State::Parked
        })
    });
    let hog = runtime.spawn(move || {
        begins.store(true, Relaxed);
        spins(&runs);
    });
    wait_until(|| begun.load(Relaxed));
    let new: Vec<_> = (0..3).map(|_| runtime.spawn(|| ())).collect();
    parked.thread().unpark();
    let dump = observe::dump();
    let shows = |thread: &JoinHandle<()>, state, work| {
        let id = Some(thread.thread().id());
        let seen = dump.threads().find(|thread| thread.id() == id);
        seen.is_some_and(|seen| {
            let here = seen
                .spawned_at()
                .is_some_and(|at| at.file().ends_with("observe/dump.rs"));
            // One that is new has no stack yet.
            let backtrace = seen.backtrace();
            let is_at_work = match state {
                State::New => backtrace.is_empty() && seen.waits_for().is_none(),
                _ => backtrace.contains(work),
            };
            seen.state() == state && here && is_at_work
        })
    };
    let are_shown = new.iter().all(|thread| shows(thread, State::New, ""))
        && shows(&parked, State::Ready, "on_park_once")
        && shows(&hog, State::Running, "spins");
    stop.store(true, Relaxed);
    hog.join().unwrap();
    parked.join().unwrap();
    new.into_iter().for_each(|thread| thread.join().unwrap());
    runtime.shutdown();
    (!are_shown).then_some(dump)
}

#[inline(never)]
fn on_park_once() {
    thread::park();
    black_box(());
}

/// Computes without calls.
#[inline(never)]
fn spins(stop: &AtomicBool) {
    let mut x = 1u64;
    while !stop.load(Relaxed) {
        x = black_box(x.wrapping_mul(31).wrapping_add(1));
    }
}

/// Threads that compute are shown at their work, those that run and those that were preempted.
#[test]
fn hogs() {
    alone!();
    let _w = watchdog("dump::hogs");
    // Where each is a kernel thread and takes a CPU, the system does not run the reader in time, either.
    let count = if green() { 4 } else { 1 };
    let runtime = Runtime::builder()
        .processors(1)
        .time_slice(Duration::from_millis(1))
        .build()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(AtomicUsize::new(0));
    let hogs: Vec<_> = (0..count)
        .map(|_| {
            let (stop, begun) = (stop.clone(), begun.clone());
            runtime.spawn(move || {
                runs(|| {
                    begun.fetch_add(1, Relaxed);
                    spins(&stop);
                });
            })
        })
        .collect();
    wait_until(|| begun.load(Relaxed) == count);
    for _ in 0..3 {
        // A kernel thread that the system does not run for a while cannot be held.
        dump_until("hogs at work", |dump| {
            hogs.iter().all(|hog| {
                let id = hog.thread().id();
                let seen = dump
                    .threads()
                    .find(|thread| thread.id() == Some(id))
                    .unwrap();
                // One that a dump of another test holds just then is blocked for that moment.
                let is_at_work = matches!(seen.state(), State::Running | State::Ready);
                let backtrace = seen.backtrace();
                is_at_work && backtrace.contains("spins") && backtrace.contains("runs")
            })
        });
    }
    stop.store(true, Relaxed);
    hogs.into_iter().for_each(|thread| thread.join().unwrap());
    runtime.shutdown();
}

/// The time in a state grows, and begins anew with each wait.
#[test]
fn since() {
    alone!();
    let _w = watchdog("dump::since");
    let start = Instant::now();
    let (to, from) = channel::bounded::<u64>(0);
    let thread = spawn("ages", move || while from.recv().is_ok() {});
    until_parked("ages");
    let age = |dump: &Dump| named(dump, "ages").unwrap().since();
    let long = Duration::from_millis(150);
    let old = dump_until("an age", |dump| age(dump) >= long);
    // The clock is a few milliseconds off.
    assert!(age(&old) <= start.elapsed() + long, "{old}");
    // One that does not begin anew is never shorter again.
    wait_until(|| {
        to.send(1).unwrap();
        age(&until_parked("ages")) < long
    });
    drop(to);
    thread.join().unwrap();
}

/// Names that are no plain words come out whole; a thread that has ended is not listed.
#[test]
fn names() {
    alone!();
    let _w = watchdog("dump::names");
    let name = "a \"b\"\\\t\u{1}\u{7f}é\u{2028}🧵\nc";
    let thread = spawn(name, on_park_once);
    let dump = until_parked(name);
    let mut json = Vec::new();
    dump.write_json(&mut json).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let threads = json["threads"].as_array().unwrap();
    assert!(threads.iter().any(|thread| thread["name"] == name));
    // In text it is in one line.
    assert!(dump.to_string().contains(&format!("{name:?}")));
    thread.thread().unpark();
    thread.join().unwrap();
    dump_until("its end", |dump| named(dump, name).is_none());
}

/// A kernel thread that has waited for a green one, and has ended, is not listed.
#[test]
fn ended_kernel_threads() {
    alone!();
    let _w = watchdog("dump::ended_kernel_threads");
    let (to, from) = channel::bounded::<u64>(0);
    let receives = std::thread::Builder::new().name("ends".into());
    let receives = receives.spawn(move || from.recv()).unwrap();
    let dump = until_parked("ends");
    let seen = named(&dump, "ends").unwrap();
    assert!(!seen.is_green());
    let waits_for = seen.waits_for().unwrap();
    assert!(
        is_like(
            &waits_for,
            "message from channel 0x*senders 1, receivers 1)"
        ),
        "{waits_for}"
    );
    to.send(1).unwrap();
    receives.join().unwrap().unwrap();
    dump_until("its end", |dump| named(dump, "ends").is_none());
    let of_nobody = || {
        let dump = observe::dump();
        let kernel = dump
            .threads()
            .filter(|thread| !thread.is_green() && thread.name().is_none());
        (kernel.count(), dump.to_string())
    };
    for _ in 0..20 {
        let (to, from) = channel::bounded::<u64>(0);
        let waits = std::thread::spawn(move || from.recv());
        std::thread::sleep(Duration::from_millis(2));
        to.send(1).unwrap();
        waits.join().unwrap().unwrap();
    }
    let (count, dump) = of_nobody();
    assert!(count < 20, "{dump}");
}

/// From a thread with a small stack; and its text, too.
#[test]
fn on_a_small_stack() {
    alone!();
    let _w = watchdog("dump::on_a_small_stack");
    let small = Builder::new().name("small".into()).stack_size(16 << 10);
    let text = small
        .spawn(|| observe::dump().to_string())
        .unwrap()
        .join()
        .unwrap();
    assert!(text.contains("\"small\": "), "{text}");
    let small = Builder::new().name("small".into()).stack_size(16 << 10);
    let length = small.spawn(|| {
        let mut json = Vec::new();
        let dump = observe::dump();
        dump.write_json(&mut json).unwrap();
        let backtraces: usize = dump.threads().map(|thread| thread.backtrace().len()).sum();
        json.len().min(backtraces)
    });
    assert_ne!(length.unwrap().join().unwrap(), 0);
}

/// An error of the writer's is returned.
#[test]
fn writers_that_fail() {
    alone!();
    let _w = watchdog("dump::writers_that_fail");
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let some = bytes.len().min(self.0);
            self.0 -= some;
            if some == 0 {
                Err(std::io::ErrorKind::StorageFull.into())
            } else {
                Ok(some)
            }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let thread = spawn("is there", on_park_once);
    let dump = until_parked("is there");
    for room in [0, 1, 20, 100, 200] {
        let full = |result: std::io::Result<()>| {
            result.unwrap_err().kind() == std::io::ErrorKind::StorageFull
        };
        assert!(full(dump.write_text(Full(room))));
        assert!(full(dump.write_json(Full(room))));
    }
    thread.thread().unpark();
    thread.join().unwrap();
}

/// A thread that blocks all signals is asked for its stack once, and not again until it has answered: signals that
/// nobody takes stay in a queue, which all processes of the user share.
#[test]
fn a_deaf_thread_is_asked_once() {
    alone!();
    let _w = watchdog("dump::a_deaf_thread_is_asked_once");
    // From here on there is a signal.
    thread::spawn(|| ()).join().unwrap();
    let (go_on, told) = channel::bounded::<()>(0);
    let (tell, is_deaf) = std::sync::mpsc::channel();
    let deaf = std::thread::Builder::new().name("deaf".into());
    let deaf = deaf.spawn(move || {
        // SAFETY: full sets are valid, and so is the time. The kernel is asked itself: the signal of the crate's that
        // libc's function leaves open is meant, too.
        unsafe {
            let all = u64::MAX;
            let size = size_of_val(&all);
            let none = std::ptr::null_mut::<u64>();
            let how = libc::SIG_BLOCK;
            assert_eq!(
                libc::syscall(libc::SYS_rt_sigprocmask, how, &all, none, size),
                0
            );
            tell.send(()).unwrap();
            told.recv().unwrap();
            let at_once = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let information = std::ptr::null_mut::<u8>();
            let take =
                || libc::syscall(libc::SYS_rt_sigtimedwait, &all, information, &at_once, size);
            std::iter::repeat_with(take)
                .take_while(|&signal| signal > 0)
                .count()
        }
    });
    let deaf = deaf.unwrap();
    is_deaf.recv().unwrap();
    until_parked("deaf");
    for _ in 0..4 {
        let dump = observe::dump();
        assert!(dump.threads().any(|thread| thread.name() == Some("deaf")));
    }
    go_on.send(()).unwrap();
    assert_eq!(deaf.join().unwrap(), 1);
}

/// A thread that begins a hooked call just when it is held has its call made again: the program sees no EINTR.
#[test]
#[cfg(feature = "unmodified")]
fn calls_are_not_interrupted() {
    alone!();
    let _w = watchdog("dump::calls_are_not_interrupted");
    if !green() {
        return;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (polls, interrupted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (stops, made, failed) = (stop.clone(), polls.clone(), interrupted.clone());
    let poller = spawn("polls", move || {
        while !stops.load(Relaxed) {
            (0..black_box(2_000)).for_each(|i| _ = black_box(i));
            // SAFETY: all zero is a set, and a time; no descriptors. With another mask than the thread's the call is
            // the kernel's.
            let result = unsafe {
                let (mut mask, mut time): (_, libc::timespec) = std::mem::zeroed();
                libc::sigaddset(&mut mask, libc::SIGUSR2);
                time.tv_nsec = 1_000_000;
                libc::ppoll(std::ptr::null_mut(), 0, &time, &mask)
            };
            if result < 0 {
                failed.fetch_add(1, Relaxed);
            }
            made.fetch_add(1, Relaxed);
        }
    });
    // Each of them may make the poll under way begin anew.
    for _ in 0..300 {
        black_box(observe::dump());
    }
    stop.store(true, Relaxed);
    poller.join().unwrap();
    assert_eq!(interrupted.load(Relaxed), 0, "of {}", polls.load(Relaxed));
}

/// A thread that was spawned without a name, and gives itself one as C does, is shown under that.
#[test]
fn a_name_by_c() {
    alone!();
    let _w = watchdog("dump::a_name_by_c");
    if !green() {
        return;
    }
    let parked = thread::spawn(|| {
        // SAFETY: a text that ends.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), c"named by C".as_ptr()) };
        on_park_once();
    });
    dump_until("parked", |dump| {
        dump.threads().any(|thread| {
            thread.name() == Some("named by C")
                && thread.id() == Some(parked.thread().id())
                && thread.state() == State::Parked
        })
    });
    parked.thread().unpark();
    parked.join().unwrap();
    // The next thread in its room has no name. (The first one may still be there, on its last steps: `join` does not wait for these.)
    let next = thread::spawn(on_park_once);
    let is_next = |thread: &observe::ThreadReport<'_>| thread.id() == Some(next.thread().id());
    let dump = dump_until("parked", |dump| {
        let next = dump.threads().find(is_next);
        next.is_some_and(|thread| thread.state() == State::Parked)
    });
    let next_one = dump.threads().find(is_next).unwrap();
    assert_ne!(next_one.name(), Some("named by C"));
    next.thread().unpark();
    next.join().unwrap();
}
