//! Warnings, for a program that asks for them (`GREENTHREAD_WARN=1`): what costs its threads their time.
//!
//! | a thread … | seen by |
//! |---|---|
//! | blocks its kernel thread often, and has not said that it would | samples: what the threads do that have a kernel thread |
//! | keeps a processor while others wait | samples, too |
//! | holds a lock, and waits for long while others wait for the lock | a look at all threads |
//! | waits for minutes for what nobody can do | a look at all threads |
//!
//! A kernel thread of its own takes the samples and looks; the program's threads take no part. Each kind of warning is given
//! once in a while for the threads that were spawned at one place.
//!
//! *What nobody can do:* nobody has a handle to unpark the thread; or it waits, by way of locks and ends of threads, for
//! threads that wait for each other in a circle. A thread that waits in a channel is not among these: who still
//! needs its handle is not known.

use core::panic::Location;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::snapshot::{Depth, Entry, Snapshot};
use super::text::{Named, call};
use super::{deadlock, employ};
use crate::engine::inspect::system::kernel_thread;
use crate::engine::inspect::system::observer::{self, Observer};
use crate::engine::inspect::threads::{Doing, Thread};
use crate::engine::inspect::{all, workers};

/// What is warned of, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A thread that nobody can reach has waited for so long.
    pub(crate) leak: Duration,
}

const SAMPLE: Duration = Duration::from_millis(10);
/// So many samples are judged together: one second of them.
const SAMPLES: u32 = 100;
/// Of these, a thread was in a blocking call in so many, or ran in so many.
const OFTEN: u32 = 10;
const MOSTLY: u32 = 50;
/// The wait of a lock's holder is long from here on.
const LONG: u32 = 1_000;
/// How often all threads are looked at, or a twentieth of the time that one look takes.
const LOOK: Duration = Duration::from_millis(1_000);
const SHARE: u32 = 20;
/// How many steps are followed from a thread to those for which it waits.
const LONGEST_PATH: usize = 100;
/// How long one kind of warning about one place is not repeated.
const SILENCE: Duration = Duration::from_secs(60);

/// A kind of warning.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Blocks,
    Hogs,
    HoldsLock,
    Leaks,
}

/// What samples have seen of one thread.
#[derive(Default)]
struct Tally {
    running: u32,
    blocked: u32,
    /// Samples in which others waited for a processor.
    wanted: u32,
}

struct Warner {
    limits: Limits,
    observer: Observer,
    tallies: HashMap<usize, Tally>,
    said: HashMap<(Kind, usize), Instant>,
}

/// Starts the kernel thread that warns.
pub(crate) fn start(limits: Limits) {
    // Without it the program goes on, and is not warned.
    let _ = employ("gt-warner", move || live(limits));
}

fn live(limits: Limits) {
    let mut warner = Warner {
        limits,
        observer: Observer::new(),
        tallies: HashMap::new(),
        said: HashMap::new(),
    };
    let mut next_look = Instant::now() + LOOK;
    loop {
        for _ in 0..SAMPLES {
            // At random moments: time slices end in the same rhythm, and a preemption makes calls, too.
            let nanos = SAMPLE.as_nanos() as u64;
            kernel_thread::rest(fastrand::u64(nanos / 2..nanos * 3 / 2));
            warner.sample();
        }
        warner.judge();
        let start = Instant::now();
        if start >= next_look {
            warner.look_at_all();
            next_look = Instant::now() + LOOK.max(start.elapsed() * SHARE);
        }
    }
}

impl Warner {
    /// Looks at the threads that have a kernel thread now.
    fn sample(&mut self) {
        for run in workers::runs() {
            let record = Thread::Green(run.green).record();
            let tally = self.tallies.entry(record).or_default();
            match self.observer.doing(run.kernel_thread()) {
                observer::Doing::Call(_) if run.goes_on() => {
                    if run.is_announced() {
                        continue;
                    }
                    tally.blocked += 1;
                }
                _ => {
                    tally.running += 1;
                    tally.wanted += u32::from(run.keeps_others_waiting());
                }
            }
        }
    }

    /// Warns of what the samples have seen.
    fn judge(&mut self) {
        for (record, tally) in core::mem::take(&mut self.tallies) {
            let blocks = tally.blocked >= OFTEN;
            let hogs = tally.running >= MOSTLY && tally.wanted >= tally.running / 2;
            if !blocks && !hogs {
                continue;
            }
            let is_it = |thread: &Thread| thread.record() == record;
            let snapshot = Snapshot::of(all().filter(is_it), Depth::Stacks);
            let Some(entry) = snapshot.threads.first() else {
                continue;
            };
            if blocks {
                let text = format!(
                    "{} blocks its kernel thread and has not said so: in {} of {SAMPLES} samples, {}; \
                     greenthread::blocking says so",
                    Named(entry),
                    tally.blocked,
                    call(entry).map_or("in system calls".into(), |call| format!("now in {call}")),
                );
                self.say(Kind::Blocks, &snapshot, entry, &text);
            } else {
                let text = format!(
                    "{} keeps a processor while others wait: it ran in {} of {SAMPLES} samples",
                    Named(entry),
                    tally.running,
                );
                self.say(Kind::Hogs, &snapshot, entry, &text);
            }
        }
    }

    /// Looks at all threads.
    fn look_at_all(&mut self) {
        let snapshot = Snapshot::take(Depth::Stacks);
        self.find_holders(&snapshot);
        self.find_leaks(&snapshot);
    }

    fn find_holders(&mut self, snapshot: &Snapshot) {
        let mut waiters: HashMap<u32, u32> = HashMap::new();
        for entry in &snapshot.threads {
            if let Some(wait) = &entry.wait
                && wait.facts.holder.is_some()
                && entry.since >= LONG
                && let Some(holder) = wait.whom
            {
                *waiters.entry(holder).or_default() += 1;
            }
        }
        for (place, count) in waiters {
            let holder = &snapshot.threads[place as usize];
            let waits = holder.doing == Doing::Parked || holder.call.is_some();
            if waits && holder.since >= LONG {
                let text = format!(
                    "{} holds a lock for which {count} wait, and is itself {}",
                    Named(holder),
                    snapshot.doing(holder),
                );
                self.say(Kind::HoldsLock, snapshot, holder, &text);
            }
        }
    }

    fn find_leaks(&mut self, snapshot: &Snapshot) {
        let limit = self.limits.leak.as_millis() as u32;
        let in_cycle: HashSet<u32> = deadlock::cycles(snapshot).into_iter().flatten().collect();
        for (place, entry) in snapshot.threads.iter().enumerate() {
            // Of the program's own kernel threads nobody knows who needs them.
            let is_ours = entry.spawned_at.is_some();
            if entry.since < limit || !is_ours || entry.doing != Doing::Parked {
                continue;
            }
            let why = if in_cycle.contains(&(place as u32)) {
                "it waits in a circle"
            } else if leads_into(snapshot, place as u32, &in_cycle) {
                "it waits for threads that wait for each other in a circle"
            } else if has_no_handle(entry) {
                "nobody has a handle to unpark it"
            } else {
                continue;
            };
            let text = format!(
                "{} has leaked: {why}, and it is {}",
                Named(entry),
                snapshot.doing(entry)
            );
            self.say(Kind::Leaks, snapshot, entry, &text);
        }
    }

    /// Prints a warning with a backtrace, unless there was one like it a while ago.
    fn say(&mut self, kind: Kind, snapshot: &Snapshot, entry: &Entry, text: &str) {
        let place = entry
            .spawned_at
            .map_or(0, |place| core::ptr::from_ref::<Location>(place).addr());
        let now = Instant::now();
        let last = self.said.insert((kind, place), now);
        if let Some(last) = last.filter(|&last| now - last < SILENCE) {
            self.said.insert((kind, place), last);
            return;
        }
        let mut out = format!("greenthread: warning: {text}\n");
        if let Some(place) = entry.spawned_at {
            out += &format!("  spawned at {place}\n");
        }
        out += &snapshot.backtrace(entry.stack);
        let _ = io::stderr().write_all(out.as_bytes());
    }
}

/// Whether the thread waits, by way of others, for a thread in `goal`.
fn leads_into(snapshot: &Snapshot, place: u32, goal: &HashSet<u32>) -> bool {
    let next = |place: &u32| snapshot.threads[*place as usize].wait.as_ref()?.whom;
    core::iter::successors(Some(place), next)
        .take(LONGEST_PATH)
        .any(|place| goal.contains(&place))
}

/// Whether the thread waits to be unparked, for ever, and nobody has a handle to it.
fn has_no_handle(entry: &Entry) -> bool {
    entry.wait.as_ref().is_some_and(|wait| {
        wait.left.is_none() && wait.facts.numbers().any(|fact| fact == ("handles", 0))
    })
}
