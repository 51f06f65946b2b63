//! Many threads that wait on words in code that has never heard of green threads, and hard times for them: a storm of
//! wake-ups and moves, a fork, signals.
//!
//! The idea: a ledger. Each token that is put is taken, or left by a thread that has given up; a thread that
//! is forgotten waits for ever.
#![cfg(feature = "unmodified")]

use crate::common::futex::*;
use crate::common::*;
use greenthread as thread;
use greenthread::runtime::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::time::Duration;

#[test]
fn a_thousand_wait_on_few_kernel_threads() {
    const NAME: &str = "waiters::a_thousand_wait_on_few_kernel_threads";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    if green() && !hooked() {
        return; // a signal that preempts a thread ends its wait in the kernel
    }
    for words in [1, 1_000] {
        let waited: Arc<Vec<AtomicU32>> = Arc::new((0..words).map(|_| AtomicU32::new(0)).collect());
        let meeting = AtomicU32::new(0);
        let threads = (0..1_000).map(|n| {
            let waited = waited.clone();
            thread::spawn(move || simple(by_name, &waited[n % words], WAIT, 0))
        });
        let threads: Vec<_> = threads.collect();
        let mut moved = 0;
        wait_until(|| {
            let move_one = |word| requeue(by_name, word, &meeting, 0, ALL);
            moved += waited.iter().map(move_one).sum::<usize>();
            moved == 1_000
        });
        if hooked() {
            hold_no_kernel_thread(Runtime::global());
        }
        assert_eq!(wake(by_name, &meeting, ALL), 1_000);
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Ok(0));
        }
    }
}

/// A lock and a condition, of words: the ways in which C libraries make them, with moves.
#[derive(Default)]
struct Store {
    /// 0: free, 1: held, 2: held, and threads may wait.
    lock: AtomicU32,
    changes: AtomicU32,
    /// Under the lock.
    tokens: AtomicUsize,
}

impl Store {
    fn lock(&self) {
        while self.lock.swap(2, Acquire) != 0 {
            let _ = simple(by_name, &self.lock, WAIT, 2);
        }
    }

    fn unlock(&self) {
        if self.lock.swap(0, Release) == 2 {
            let _ = wake(by_name, &self.lock, 1);
        }
    }

    fn put(&self, all: bool) {
        self.lock();
        self.tokens.store(self.tokens.load(Relaxed) + 1, Relaxed);
        let change = self.changes.load(Relaxed).wrapping_add(1);
        self.changes.store(change, Relaxed);
        if all {
            let (from, to) = (at(&self.changes), at(&self.lock));
            let moving = [from, CMP_REQUEUE as usize, 1, ALL, to, change as usize];
            by_name(moving).unwrap();
        } else {
            wake(by_name, &self.changes, 1);
        }
        self.unlock();
    }

    /// False: the time was up.
    fn take(&self, limit: Option<Duration>) -> bool {
        self.lock();
        let mut is_late = false;
        while self.tokens.load(Relaxed) == 0 && !is_late {
            let change = self.changes.load(Relaxed);
            self.unlock();
            let time = limit.map(timespec);
            let time = time.as_ref().map_or(0, |time| &raw const *time as usize);
            let call = [
                at(&self.changes),
                WAIT as usize,
                change as usize,
                time,
                0,
                0,
            ];
            is_late = by_name(call) == Err(libc::ETIMEDOUT);
            self.lock();
        }
        let tokens = self.tokens.load(Relaxed);
        self.tokens.store(tokens.saturating_sub(1), Relaxed);
        self.unlock();
        tokens != 0
    }
}

/// Of each two threads one puts tokens and one takes as many, or gives up: one that waits for ever has been
/// forgotten.
fn storm(
    runtime: &Runtime,
    rng: &mut Rng,
    [green, kernel]: [usize; 2],
    inside: fn(&mut dyn FnMut()),
) {
    let stores: Arc<[Store; 3]> = Arc::default();
    let missed = Arc::new(AtomicUsize::new(0));
    let body = |number: usize, mut rng: Rng| {
        let (stores, missed) = (stores.clone(), missed.clone());
        move || {
            let store = &stores[number / 2 % 3];
            inside(&mut || {
                for _ in 0..40 {
                    if number.is_multiple_of(2) {
                        store.put(rng.below(2) == 0);
                        continue;
                    }
                    let limit = Duration::from_micros(rng.below(300) as u64);
                    let took = store.take((rng.below(3) == 0).then_some(limit));
                    missed.fetch_add(usize::from(!took), Relaxed);
                }
            });
        }
    };
    // Those that take come first.
    let kernels: Vec<_> = (0..kernel)
        .map(|n| std::thread::spawn(body(n, rng.fork())))
        .collect();
    let greens: Vec<_> = (0..green)
        .rev()
        .map(|n| runtime.spawn(body(n, rng.fork())))
        .collect();
    greens.into_iter().for_each(|thread| thread.join().unwrap());
    kernels
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let left: usize = stores.iter().map(|store| store.tokens.load(Relaxed)).sum();
    assert_eq!(left, missed.load(Relaxed));
    for store in &*stores {
        assert_eq!(wake(by_name, &store.changes, ALL), 0);
        assert_eq!(wake(by_name, &store.lock, ALL), 0);
    }
}

#[test]
fn the_ledger_balances_in_a_storm() {
    const NAME: &str = "waiters::the_ledger_balances_in_a_storm";
    let _w = watchdog(NAME);
    let mut rng = Rng::new(NAME);
    for processors in [1, 2, 4] {
        let builder = Runtime::builder().processors(processors);
        let runtime = builder
            .time_slice(Duration::from_micros(100))
            .build()
            .unwrap();
        let parked = || runtime.metrics().parked_calls;
        storm(&runtime, &mut rng, [200, 4], |body| body());
        assert!(parked() > 0 || !hooked());
        storm(&runtime, &mut rng, [20, 4], |body| thread::unhooked(body));
        storm(&runtime, &mut rng, [20, 4], |body| thread::blocking(body));
        runtime.shutdown();
    }
}

/// A process without a runtime, whose threads wait, forks: none of them is in the child.
#[test]
fn forked_before_there_is_a_runtime() {
    const NAME: &str = "waiters::forked_before_there_is_a_runtime";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    fork_beside_waiters(true);
}

/// The same from a green thread, beside green ones.
#[test]
fn forked_by_a_green_thread() {
    const NAME: &str = "waiters::forked_by_a_green_thread";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    thread::spawn(|| fork_beside_waiters(false)).join().unwrap();
}

/// The threads of the parent wait at words that the child's threads wait at, too.
fn fork_beside_waiters(kernel: bool) {
    static GATES: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
    static MEETING: AtomicU32 = AtomicU32::new(0);
    let wait = |n: usize| move || assert_eq!(simple(by_name, &GATES[n], WAIT, 0), Ok(0));
    let waiters: Vec<_> = (0..64)
        .map(|n| spawn(n | usize::from(kernel), wait(n)))
        .collect();
    for gate in &GATES {
        gather(by_name, gate, &MEETING, 1);
        requeue(by_name, &MEETING, gate, 0, 1);
    }
    // SAFETY: the child uses what the parent's threads do not hold, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child, should it hang.
        unsafe { libc::alarm(20) };
        assert_eq!(
            GATES
                .iter()
                .map(|gate| wake(by_name, gate, ALL))
                .sum::<usize>(),
            0
        );
        let (sender, receiver) = std::sync::mpsc::channel();
        let threads = (0..64).map(|n| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                wait(n)();
                sender.send(n).unwrap();
            })
        });
        let threads: Vec<_> = threads.collect();
        for gate in &GATES {
            wait_until(|| wake(by_name, gate, 1) == 1);
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let right = (0..64).map(|_| receiver.recv().unwrap()).sum::<usize>() == 63 * 32;
        // SAFETY: ends the child.
        unsafe { libc::_exit(if right { 3 } else { 4 }) };
    }
    let mut status = 0;
    // SAFETY: a valid place.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 3,
        "{status:x}"
    );
    for gate in &GATES {
        assert_eq!(wake(by_name, gate, ALL), 1);
    }
    waiters.into_iter().for_each(|join| join());
}

/// A signal's handler may wake threads: also when it has interrupted a thread that is about to do the same.
#[test]
fn woken_by_a_handler() {
    const NAME: &str = "waiters::woken_by_a_handler";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    static WORD: AtomicU32 = AtomicU32::new(0);
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: i32) {
        let _ = by_name([at(&WORD), WAKE_BITSET as usize, 1, 0, 0, 1]);
        HANDLED.fetch_add(1, Relaxed);
    }
    // One that this does not wake, so that each call has to look.
    let waiter = std::thread::spawn(|| by_name([at(&WORD), WAIT_BITSET as usize, 0, 0, 0, 2]));
    let handler = handler as extern "C" fn(i32) as libc::sighandler_t;
    // SAFETY: a handler of the right type, that makes a system call.
    let before = unsafe { libc::signal(libc::SIGPROF, handler) };
    assert_ne!(before, libc::SIG_ERR);
    let (process, thread) = (std::process::id(), gettid());
    let signals = std::thread::spawn(move || {
        while HANDLED.load(Relaxed) < 20_000 {
            // SAFETY: sends a signal that has a handler.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGPROF) };
        }
    });
    while HANDLED.load(Relaxed) < 20_000 {
        let _ = by_name([at(&WORD), WAKE_BITSET as usize, 1, 0, 0, 1]);
    }
    signals.join().unwrap();
    wait_until(|| wake(by_name, &WORD, 1) == 1);
    let _ = waiter.join().unwrap();
}
