//! Ten small programs, each with a classic fault, on the primitives of std and of other crates. One source runs under `sim`,
//! on a runtime, and on std's threads ([`Threads`]).
//!
//! Each fault shows as a panic, or as threads that wait for ever.

use std::collections::{HashMap, VecDeque};
use std::panic::resume_unwind;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicUsize};
use std::sync::{Arc, Barrier, Condvar, Mutex, RwLock, mpsc};
use std::time::Duration;

/// The threads that a program makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    Green,
    Kernel,
}

pub enum Handle {
    Green(greenthread::JoinHandle<()>),
    Kernel(std::thread::JoinHandle<()>),
}

impl Threads {
    pub fn spawn(self, body: impl FnOnce() + Send + 'static) -> Handle {
        match self {
            Threads::Green => Handle::Green(greenthread::spawn(body)),
            Threads::Kernel => Handle::Kernel(std::thread::spawn(body)),
        }
    }

    /// Runs both at once, to their ends.
    fn both(self, one: impl FnOnce() + Send + 'static, other: impl FnOnce() + Send + 'static) {
        let handles = [self.spawn(one), self.spawn(other)];
        handles.into_iter().for_each(Handle::join);
    }
}

impl Handle {
    /// Waits for the thread's end, and panics as it has.
    pub fn join(self) {
        let ended = match self {
            Handle::Green(handle) => handle.join(),
            Handle::Kernel(handle) => handle.join(),
        };
        ended.unwrap_or_else(|payload| resume_unwind(payload));
    }
}

/// A program with a fault.
#[derive(Clone, Copy)]
pub struct Program {
    pub name: &'static str,
    pub run: fn(Threads),
    /// A word of what a check says when it has found the fault.
    pub says: &'static str,
    /// The fault shows only if threads are switched at atomic operations.
    pub needs_points: bool,
}

macro_rules! programs {
    ($($name:ident: $says:literal, $points:ident;)*) => {
        pub const PROGRAMS: &[Program] = &[$(Program {
            name: stringify!($name),
            run: $name,
            says: $says,
            needs_points: programs!($points),
        }),*];

        /// A test for each.
        #[cfg(test)]
        mod found {
            $(#[test]
            fn $name() {
                crate::bugs::is_found(stringify!($name));
            })*
        }
    };
    (points) => { true };
    (any) => { false };
}

programs! {
    lost_update: "the count", points;
    check_then_act: "a seat is sold twice", points;
    lock_order: "deadlock", points;
    lost_wakeup: "deadlock", points;
    if_for_while: "a job", any;
    aba: "one buffer, two owners", points;
    double_checked: "the port is not set", points;
    early_barrier: "the server is up", points;
    closed_channel: "the log is open", points;
    timeout_or_reply: "one permit", points;
}

/// Two clerks count visitors: each reads the count, and then writes one more.
fn lost_update(threads: Threads) {
    let count = Arc::new(AtomicU32::new(0));
    let clerk = || {
        let count = count.clone();
        move || {
            let seen = count.load(SeqCst);
            count.store(seen + 1, SeqCst);
        }
    };
    threads.both(clerk(), clerk());
    assert_eq!(count.load(SeqCst), 2, "the count of visitors");
}

/// A seat is sold if it is free, but the lock is given back in between.
fn check_then_act(threads: Threads) {
    let sold: Arc<RwLock<HashMap<u32, &str>>> = Arc::default();
    let sale = |buyer| {
        let sold = sold.clone();
        move || {
            let is_free = !sold.read().unwrap().contains_key(&17);
            if is_free {
                let before = sold.write().unwrap().insert(17, buyer);
                assert_eq!(before, None, "a seat is sold twice");
            }
        }
    };
    threads.both(sale("Ada"), sale("Grace"));
}

/// Each transfer locks the account that gives before the one that takes.
fn lock_order(threads: Threads) {
    let accounts = Arc::new([100, 100].map(parking_lot::Mutex::new));
    let transfer = |from: usize, to: usize| {
        let accounts = accounts.clone();
        move || {
            let mut from = accounts[from].lock();
            let mut to = accounts[to].lock();
            *from -= 10;
            *to += 10;
        }
    };
    threads.both(transfer(0, 1), transfer(1, 0));
}

/// The one who opens the gate does not take the lock, so the one who waits may miss it between its look and its wait.
fn lost_wakeup(threads: Threads) {
    #[derive(Default)]
    struct Gate {
        is_open: AtomicBool,
        lock: Mutex<()>,
        opened: Condvar,
    }
    let gate: Arc<Gate> = Arc::default();
    let guest = {
        let gate = gate.clone();
        move || {
            let mut guard = gate.lock.lock().unwrap();
            while !gate.is_open.load(SeqCst) {
                guard = gate.opened.wait(guard).unwrap();
            }
        }
    };
    let porter = move || {
        gate.is_open.store(true, SeqCst);
        gate.opened.notify_one();
    };
    threads.both(guest, porter);
}

/// A worker that was woken takes it that there is a job; another one may have come first, or nobody has woken it.
fn if_for_while(threads: Threads) {
    let jobs = Arc::new((Mutex::new(VecDeque::new()), Condvar::new()));
    let worker = || {
        let jobs = jobs.clone();
        threads.spawn(move || {
            let (queue, added) = &*jobs;
            let mut queue = queue.lock().unwrap();
            if queue.is_empty() {
                queue = added.wait(queue).unwrap();
            }
            queue.pop_front().expect("a job");
        })
    };
    let workers = [worker(), worker()];
    for job in 0..2 {
        jobs.0.lock().unwrap().push_back(job);
        jobs.1.notify_one();
    }
    workers.into_iter().for_each(Handle::join);
}

/// Buffers that are free lie on a stack without a lock. Between `pop`'s look at the next one and its swap others may take both,
/// and bring the first one back.
struct Pool {
    top: AtomicUsize,
    below: [AtomicUsize; 3],
    is_taken: [AtomicBool; 3],
}

impl Pool {
    fn pop(&self) -> Option<usize> {
        loop {
            let top = self.top.load(SeqCst);
            let below = self.below.get(top)?.load(SeqCst);
            if self
                .top
                .compare_exchange(top, below, SeqCst, SeqCst)
                .is_ok()
            {
                let was_taken = self.is_taken[top].swap(true, SeqCst);
                assert!(!was_taken, "one buffer, two owners");
                return Some(top);
            }
        }
    }

    fn push(&self, buffer: usize) {
        self.is_taken[buffer].store(false, SeqCst);
        loop {
            let top = self.top.load(SeqCst);
            self.below[buffer].store(top, SeqCst);
            if self
                .top
                .compare_exchange(top, buffer, SeqCst, SeqCst)
                .is_ok()
            {
                return;
            }
        }
    }
}

fn aba(threads: Threads) {
    let pool = Arc::new(Pool {
        top: AtomicUsize::new(0),
        below: [1, 2, usize::MAX].map(AtomicUsize::new),
        is_taken: Default::default(),
    });
    let user = || {
        let pool = pool.clone();
        move || {
            for _ in 0..2 {
                let (small, large) = (pool.pop(), pool.pop());
                small.into_iter().for_each(|buffer| pool.push(buffer));
                // The other one is in use for longer.
                std::thread::yield_now();
                large.into_iter().for_each(|buffer| pool.push(buffer));
            }
        }
    };
    threads.both(user(), user());
}

/// What is read from a file once; the flag is set before the value is.
fn double_checked(threads: Threads) {
    #[derive(Default)]
    struct Settings {
        is_read: AtomicBool,
        lock: Mutex<()>,
        port: AtomicU16,
    }
    impl Settings {
        fn port(&self) -> u16 {
            if !self.is_read.load(SeqCst) {
                let _reading = self.lock.lock().unwrap();
                if !self.is_read.swap(true, SeqCst) {
                    self.port.store("8080".parse().unwrap(), SeqCst);
                }
            }
            self.port.load(SeqCst)
        }
    }
    let settings: Arc<Settings> = Arc::default();
    let reader = || {
        let settings = settings.clone();
        move || assert_eq!(settings.port(), 8080, "the port is not set")
    };
    threads.both(reader(), reader());
}

/// A server comes to the barrier one line before it is up.
fn early_barrier(threads: Threads) {
    let (start, is_up) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let server = {
        let (start, is_up) = (start.clone(), is_up.clone());
        move || {
            start.wait();
            is_up.store(true, SeqCst);
        }
    };
    let server = threads.spawn(server);
    start.wait();
    assert!(is_up.load(SeqCst), "the server is up");
    server.join();
}

/// A writer looks whether the log is open; it may be closed before the line is sent.
fn closed_channel(threads: Threads) {
    let (sender, log) = crossbeam_channel::bounded(4);
    let is_closing = Arc::new(AtomicBool::new(false));
    let writer = {
        let is_closing = is_closing.clone();
        move || {
            for line in ["GET /", "GET /favicon.ico"] {
                if !is_closing.load(SeqCst) {
                    sender.send(line).expect("the log is open");
                }
            }
        }
    };
    let writer = threads.spawn(writer);
    assert_eq!(log.recv(), Ok("GET /"));
    is_closing.store(true, SeqCst);
    drop(log);
    writer.join();
}

/// Who answers gives the permit back, and so does who no longer waits for the answer.
fn timeout_or_reply(threads: Threads) {
    let permits = Arc::new(AtomicU32::new(0));
    let (reply, answer) = mpsc::channel();
    let server = {
        let permits = permits.clone();
        threads.spawn(move || {
            std::thread::sleep(Duration::from_millis(2));
            permits.fetch_add(1, SeqCst);
            let _ = reply.send("pong");
        })
    };
    let answer = answer.recv_timeout(Duration::from_millis(100));
    if answer.is_err() {
        permits.fetch_add(1, SeqCst);
    }
    server.join();
    assert_eq!(permits.load(SeqCst), 1, "one permit");
}
