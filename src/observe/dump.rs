//! [`Dump`]: all threads as they were looked at, one after the other.

use core::fmt;
use core::panic::Location;
use std::io::{self, Write};
use std::sync::Mutex;
use std::time::Duration;

use super::snapshot::{Snapshot, Symbols};
use super::text::Json;
use crate::engine::facade;
use crate::engine::inspect::Seen;
use crate::engine::inspect::notes::{Facts, WaitKind};
use crate::sys::kernel_thread;
use crate::thread::ThreadId;

/// What a report is to look at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// States and waits.
    Waits,
    /// Stacks, too.
    Stacks,
}

/// Looks at every thread of every runtime, and at the kernel threads that wait for them.
///
/// The program runs on meanwhile. Each thread is shown as it was at one moment, but not all at the same moment; a
/// thread that lives all the while is in the dump, once. (Where threads are kernel threads, one that was spawned is
/// in the dump once the system has run it.) A thread that runs is held for some microseconds while its stack is read.
/// A dump of a million threads takes some seconds, and some hundred bytes of memory for each.
///
/// # Examples
///
/// ```
/// let text = greenthread::observe::dump().to_string();
/// assert!(text.starts_with("greenthread: "));
/// ```
pub fn dump() -> Dump {
    Dump(aside(|| Snapshot::take(Depth::Stacks)))
}

/// Finds threads that wait for each other in a circle: each for a lock that the next one holds, or for the next
/// one's end. They wait for ever, whatever the other threads do.
///
/// Circles with channels or condition variables are not found: any thread could send, or notify.
///
/// # Examples
///
/// ```
/// assert!(greenthread::observe::deadlocks().is_empty());
/// ```
pub fn deadlocks() -> Vec<Deadlock> {
    let snapshot = aside(|| Snapshot::take(Depth::Waits));
    let cycles = snapshot.cycles();
    let id = |place: &u32| id_of(&snapshot.threads[*place as usize]);
    let describe = |cycle: Vec<u32>| Deadlock {
        text: snapshot.describe_cycle(&cycle),
        threads: cycle.iter().filter_map(id).collect(),
    };
    cycles.into_iter().map(describe).collect()
}

/// Runs `f` on a kernel thread of its own: a look takes more stack than a green thread may have, and so does finding
/// names; and the caller is seen as any other thread.
fn aside<T: Send>(f: impl Fn() -> T + Sync) -> T {
    let made = Mutex::new(None);
    run_aside(&|| *made.lock().expect("only `f` can panic") = Some(f()));
    made.into_inner().ok().flatten().expect("`f` has run")
}

fn run_aside(f: &(dyn Fn() + Sync)) {
    // In a forked child a lock of std's may be held for ever, so no thread can be started there.
    if facade::is_forked_child() {
        return f();
    }
    facade::blocking(|| {
        std::thread::scope(|scope| {
            let look = || {
                // The mask keeps the program's handlers away. It does not keep faults away: a snapshot reads words that
                // may not be there.
                #[cfg(green)]
                crate::sys::signal::set_mask(crate::sys::signal::ALL);
                f()
            };
            let looker = std::thread::Builder::new().name("gt-looker".into());
            match kernel_thread::making(|| looker.spawn_scoped(scope, look)) {
                // The join waits for the end of the kernel thread; the scope alone does not.
                Ok(looker) => looker
                    .join()
                    .unwrap_or_else(|_| crate::sys::die("a dump could not be made")),
                // The system refuses another kernel thread.
                Err(_) => f(),
            }
        })
    })
}

fn id_of(entry: &Entry) -> Option<ThreadId> {
    core::num::NonZeroU64::new(entry.id).map(crate::thread::ThreadId)
}

/// All threads, as [`dump`] has seen them.
///
/// [`Display`](fmt::Display) writes it for people: threads with the same state, wait and stack are shown together.
/// [`Dump::write_json`] writes it for tools.
pub struct Dump(Snapshot);

impl Dump {
    /// Returns the threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::observe::{State, dump};
    ///
    /// let parked = dump().threads().filter(|thread| thread.state() == State::Parked).count();
    /// println!("{parked} threads wait");
    /// ```
    pub fn threads(&self) -> impl Iterator<Item = ThreadReport<'_>> {
        let snapshot = &self.0;
        let entries = snapshot.threads.iter();
        entries.map(move |entry| ThreadReport { entry, snapshot })
    }

    /// Writes the dump as text, with the backtraces that `RUST_BACKTRACE` asks for: short ones, unless it is `full`.
    ///
    /// # Errors
    ///
    /// Returns the first error of `to`.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut text = Vec::new();
    /// greenthread::observe::dump().write_text(&mut text)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_text(&self, mut to: impl Write) -> io::Result<()> {
        to.write_all(aside(|| self.0.text()).as_bytes())
    }

    /// Writes the dump as JSON. The schema is in the repository, `docs/dump.schema.json`.
    ///
    /// # Errors
    ///
    /// Returns the first error of `to`.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut json = Vec::new();
    /// greenthread::observe::dump().write_json(&mut json)?;
    /// assert!(json.starts_with(b"{\"version\":1,"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_json(&self, mut to: impl Write) -> io::Result<()> {
        to.write_all(aside(|| Json(&self.0).to_string()).as_bytes())
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&aside(|| self.0.text()))
    }
}

without_details! {
    [] Dump, "Dump", |dump| threads: dump.0.threads.len();
    [] ThreadReport<'_>, "ThreadReport", |this| id: this.id(), name: this.name(), state: this.state(), waits_for: this.waits_for();
}

/// The state of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum State {
    /// It was spawned and has not run.
    New,
    /// It could run, and waits for a processor.
    Ready,
    /// It runs.
    Running,
    /// It is in a system call that blocks its kernel thread.
    Blocked,
    /// It waits, and holds no kernel thread; or it is a kernel thread that waits for others.
    Parked,
}

/// The word for each state.
pub(super) const STATES: [&str; 5] = ["new", "ready", "running", "blocked", "parked"];

impl State {
    pub(super) fn word(self) -> &'static str {
        STATES[self as usize]
    }
}

/// One thread.
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) name: Option<Box<str>>,
    pub(super) is_green: bool,
    pub(super) state: State,
    /// For how long it has done that, in milliseconds.
    pub(super) since: u32,
    /// The CPU time of a green thread, in nanoseconds, if somebody has asked for it.
    pub(super) cpu: Option<u64>,
    pub(super) wait: Option<Box<Wait>>,
    /// What its frames have to do with it, if they have.
    pub(super) frames: Option<Seen>,
    /// The system call that it is blocked in.
    pub(super) system_call: Option<String>,
    pub(super) spawned_at: Option<&'static Location<'static>>,
    /// The number of its stack.
    pub(super) stack: u32,
    #[cfg(green)]
    pub(super) thread: crate::engine::inspect::threads::AnyThread,
    #[cfg(green)]
    pub(super) turns: u32,
    /// The address of its identity, and the word that it leaves in locks.
    #[cfg(green)]
    pub(super) identity: usize,
    #[cfg(green)]
    pub(super) mark: usize,
}

/// What a thread waits for.
#[cfg_attr(not(green), allow(dead_code, reason = "nobody reads stacks there"))]
pub(super) struct Wait {
    pub(super) kind: &'static WaitKind,
    /// The address of the thing.
    pub(super) of: usize,
    /// For how long it will wait at most, in nanoseconds.
    pub(super) left: Option<u64>,
    pub(super) facts: Facts,
    /// The thread that holds the thing, or that is to end: its place among the entries.
    pub(super) whom: Option<u32>,
}

/// One thread of a [`Dump`].
#[derive(Clone, Copy)]
pub struct ThreadReport<'a> {
    entry: &'a Entry,
    snapshot: &'a Snapshot,
}

impl<'a> ThreadReport<'a> {
    /// Returns the thread's identifier; `None` for a kernel thread of which only the system knows.
    pub fn id(&self) -> Option<ThreadId> {
        id_of(self.entry)
    }

    /// Returns the thread's name.
    pub fn name(&self) -> Option<&'a str> {
        self.entry.name.as_deref()
    }

    /// Returns whether it is a green thread.
    pub fn is_green(&self) -> bool {
        self.entry.is_green
    }

    /// Returns what the thread does.
    pub fn state(&self) -> State {
        self.entry.state
    }

    /// Returns for how long the thread has done that, to some milliseconds. A thread that gives way or is preempted
    /// counts from when it last began to run.
    pub fn since(&self) -> Duration {
        Duration::from_millis(u64::from(self.entry.since))
    }

    /// Returns the CPU time of a green thread for whose CPU time somebody has asked (CLOCK_THREAD_CPUTIME_ID), from
    /// the first question on. Nothing is measured before.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.entry.cpu.map(Duration::from_nanos)
    }

    /// Returns what the thread waits for, in words: `mutex 0x7f5c, held by thread 3 "writer"`.
    pub fn waits_for(&self) -> Option<String> {
        self.snapshot.describe_wait(self.entry)
    }

    /// Returns the name of the system call that blocks the thread's kernel thread.
    pub fn system_call(&self) -> Option<String> {
        self.entry.system_call.clone()
    }

    /// Returns the thread that holds the lock for which this one waits, or for whose end it waits.
    pub fn waits_for_thread(&self) -> Option<ThreadReport<'a>> {
        let place = self.entry.wait.as_ref()?.whom?;
        let entry = &self.snapshot.threads[place as usize];
        Some(ThreadReport { entry, ..*self })
    }

    /// Returns the place in the program that spawned the thread.
    pub fn spawned_at(&self) -> Option<&'static Location<'static>> {
        self.entry.spawned_at
    }

    /// Returns the thread's backtrace as text, in the form that `RUST_BACKTRACE` asks for.
    pub fn backtrace(&self) -> String {
        aside(|| {
            let mut symbols = Symbols::default();
            self.snapshot.backtrace(self.entry.stack, &mut symbols)
        })
    }
}

/// Threads that wait for each other in a circle. [`Display`](fmt::Display) says who waits for what.
#[derive(Clone, Debug)]
pub struct Deadlock {
    threads: Vec<ThreadId>,
    text: String,
}

impl Deadlock {
    /// Returns the threads, each of which waits for the next one, and the last for the first.
    pub fn threads(&self) -> &[ThreadId] {
        &self.threads
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
