//! Warnings, for a program that asks for them (`GREENTHREAD_WARN=1`): what costs its threads their time.
//!
//! | a thread … | seen by |
//! |---|---|
//! | blocks its kernel thread often, and has not said that it would | samples: what the threads do that have a kernel thread |
//! | keeps a processor while others wait | samples, too |
//! | holds a lock, and waits for long while others wait for the lock | a look at all threads |
//! | waits for minutes for what nobody can do | a look at all threads |
//! | goes on a second after its frame has ended | two looks at all threads |
//!
//! A kernel thread of its own takes the samples and looks; the program's threads take no part. Each kind of warning is given
//! once in a while for the threads that were spawned at one place.
//!
//! *What nobody can do:* no thread has a handle to unpark the thread; or the thread waits, by way of locks and ends of threads,
//! for threads that wait for each other in a circle. A thread that waits in a channel is not among these: whether the owner of
//! a handle to the channel will still use it is not known.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::dump::State;
use super::numbers::{NumberMap, digest};
use super::snapshot::{Depth, Entry, Snapshot, Symbols};
use super::text::title;
use crate::engine::inspect::layout::Green;
use crate::engine::inspect::system::kernel_thread;
use crate::engine::inspect::threads::AnyThread;
use crate::engine::inspect::{Seen, all, runs};

/// In nanoseconds, on the average.
const SAMPLE: u64 = 10_000_000;
/// The number of samples that are judged together: those of one second.
const SAMPLES: u32 = 100;
/// A thread blocks often if it was in a blocking call in this many of the samples.
const OFTEN: u32 = 10;
/// A thread may keep a processor from others if it ran in this many of the samples.
const MOSTLY: u32 = 50;
/// A wait of a lock's holder, or for the lock, is long from here on, in milliseconds.
const LONG: u32 = 1_000;
/// The pause between two looks at all threads, or [`SHARE`] times what a look takes if that is longer.
const LOOK: Duration = Duration::from_millis(1_000);
const SHARE: u32 = 20;
/// How many steps are followed from a thread to those for which it waits.
const LONGEST_PATH: usize = 100;
/// How long one kind of warning about one place is not repeated.
const SILENCE: Duration = Duration::from_secs(60);

/// What samples have seen of one thread.
#[derive(Default)]
struct Tally {
    running: u32,
    blocked: u32,
    /// Samples in which others waited for a processor.
    wanted: u32,
}

/// When each kind of warning was last given about each place of a spawn.
#[derive(Default)]
struct Said {
    last: NumberMap<Option<Instant>>,
    /// The threads of which the last look has seen that their frames have ended, by their records, and since when.
    late: NumberMap<Instant>,
}

/// What the kernel thread does that warns. It warns of a thread that no other can reach once that has waited for `leak`.
pub(super) fn live(leak: Duration) {
    let mut said = Said::default();
    let mut next_look = Instant::now() + LOOK;
    loop {
        let mut tallies = NumberMap::default();
        for _ in 0..SAMPLES {
            // Samples are taken at random moments, as time slices end in a rhythm of their own, and a preemption makes
            // system calls, too.
            kernel_thread::rest(fastrand::u64(SAMPLE / 2..SAMPLE * 3 / 2));
            sample(&mut tallies);
        }
        for (record, tally) in tallies.entries {
            said.judge(record, &tally);
        }
        let start = Instant::now();
        if start >= next_look {
            let snapshot = Snapshot::take(Depth::Stacks);
            said.find_holders(&snapshot);
            said.find_leaks(&snapshot, leak);
            said.find_late(&snapshot);
            next_look = Instant::now() + LOOK.max(start.elapsed() * SHARE);
        }
    }
}

/// Looks at the threads that have a kernel thread now, and counts by their records.
fn sample(tallies: &mut NumberMap<Tally>) {
    for (green, worker) in runs() {
        let record = AnyThread::Green(green).record() as u64;
        let tally = tallies.or_insert(record, Tally::default());
        let call = kernel_thread::call_of(worker.thread());
        if call.is_none() || !worker.is_running(green) {
            tally.running += 1;
            tally.wanted += u32::from(green.cluster().has_work());
        } else if !green.says(Green::ANNOUNCED | Green::MAY_BLOCK) {
            tally.blocked += 1;
        }
    }
}

impl Said {
    /// Warns of what the samples have seen.
    fn judge(&mut self, record: u64, tally: &Tally) {
        let (blocked, running) = (tally.blocked, tally.running);
        let blocks = blocked >= OFTEN;
        let hogs = running >= MOSTLY && tally.wanted >= running / 2;
        if !blocks && !hogs {
            return;
        }
        let is_it = |thread: &AnyThread| thread.record() as u64 == record;
        let snapshot = Snapshot::of(&mut all().filter(is_it), Depth::Stacks);
        let Some(entry) = snapshot.threads.first() else {
            return;
        };
        let (kind, text) = if blocks {
            let call = entry.system_call.as_ref();
            let now = call.map_or("in system calls".into(), |call| format!("now in {call}"));
            let seen = format!("in {blocked} of {SAMPLES} samples, {now}");
            let text = format!("{seen}; greenthread::blocking says so");
            ("blocks its kernel thread and has not said so:", text)
        } else {
            let text = format!("{running} of {SAMPLES} samples");
            ("keeps a processor while others wait: it ran in", text)
        };
        self.say(kind, &snapshot, entry, &text);
    }

    fn find_holders(&mut self, snapshot: &Snapshot) {
        let mut waiters = NumberMap::default();
        for entry in &snapshot.threads {
            if let Some(wait) = &entry.wait
                && wait.facts.holder.is_some()
                && entry.since >= LONG
                && let Some(holder) = wait.whom
            {
                *waiters.or_insert(holder.into(), 0) += 1;
            }
        }
        for (place, count) in waiters.entries {
            let holder = &snapshot.threads[place as usize];
            let waits = matches!(holder.state, State::Parked | State::Blocked);
            if waits && holder.since >= LONG {
                let doing = snapshot.doing(holder);
                let text = format!("for which {count} wait, and is itself {doing}");
                self.say("holds a lock", snapshot, holder, &text);
            }
        }
    }

    fn find_leaks(&mut self, snapshot: &Snapshot, leak: Duration) {
        let mut in_cycle = NumberMap::default();
        for place in snapshot.cycles().into_iter().flatten() {
            in_cycle.or_insert(place.into(), ());
        }
        let next = |place: &u32| snapshot.threads[*place as usize].wait.as_ref()?.whom;
        let leads_there = |place| {
            let mut path = core::iter::successors(Some(place), next).take(LONGEST_PATH);
            path.any(|place| in_cycle.get(place.into()).is_some())
        };
        for (place, entry) in (0..).zip(&snapshot.threads) {
            // The program's own kernel threads are left out: how they are woken is not known.
            let is_ours = entry.spawned_at.is_some();
            let is_new = u128::from(entry.since) < leak.as_millis();
            if is_new || !is_ours || entry.state != State::Parked {
                continue;
            }
            // Whether the thread waits to be unparked, for ever, and nobody has a handle to it.
            let has_no_handle = entry.wait.as_deref().is_some_and(|wait| {
                wait.left.is_none() && wait.facts.numbers.contains(&("handles", 0))
            });
            let why = match () {
                () if in_cycle.get(place.into()).is_some() => "it waits in a circle",
                () if leads_there(place) => {
                    "it waits for threads that wait for each other in a circle"
                }
                () if has_no_handle => "nobody has a handle to unpark it",
                () => continue,
            };
            let text = format!("{why}, and it is {}", snapshot.doing(entry));
            self.say("has leaked:", snapshot, entry, &text);
        }
    }

    fn find_late(&mut self, snapshot: &Snapshot) {
        let mut late = NumberMap::default();
        for entry in &snapshot.threads {
            if entry.frames.is_some_and(Seen::have_ended) {
                let record = entry.thread.record() as u64;
                let known = self.late.get(record).copied();
                let since = *late.or_insert(record, known.unwrap_or_else(Instant::now));
                if since.elapsed().as_millis() >= u128::from(LONG) {
                    let kind = "goes on in a frame that has ended: it is";
                    self.say(kind, snapshot, entry, &snapshot.doing(entry));
                }
            }
        }
        self.late = late;
    }

    /// Prints a warning, which begins with its kind, and a backtrace, unless there was one like it a while ago.
    fn say(&mut self, kind: &str, snapshot: &Snapshot, entry: &Entry, text: &str) {
        let place = entry.spawned_at.map(core::ptr::from_ref);
        let now = Instant::now();
        let last = self.last.or_insert(digest((place, kind)), None);
        if last.is_some_and(|last| now - last < SILENCE) {
            return;
        }
        *last = Some(now);
        let mut out = format!("greenthread: warning: {} {kind} {text}\n", title(entry));
        out += &snapshot.places(entry, &mut Symbols::default());
        let _ = io::stderr().write_all(out.as_bytes());
    }
}
