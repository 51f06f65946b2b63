//! Reads all threads, for a report.
//!
//! The program runs on meanwhile, so this is no picture of one moment: each thread is shown as it was when it
//! was looked at. A thread that lives all the while is in the report, once.
//!
//! Names stay while an inspection is under way (`green::inspection`). An inspection lasts for some threads only:
//! threads that end leave memory behind until it is over.

use core::panic::Location;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::SystemTime;

use super::running;
use super::stacks::Stacks;
use super::symbols::{Style, Symbol, Symbols};
use super::unwind::{Registers, Unwinder};
use crate::engine::green::resident;
use crate::engine::green::room::SystemName;
use crate::engine::green::subject::{Facts, Subject};
use crate::engine::green::{Identity, Room, inspection::Inspection, records};
use crate::engine::sched::sight::{Doing, Seen, Sight};
use crate::engine::sched::{cpu_time, fork};
use crate::engine::sys::clock;
use crate::engine::sys::observer::{self, Observer};

/// The number of threads that one inspection looks at.
const AT_ONCE: usize = 1024;
/// How often a thread's stack is read anew because the thread has run meanwhile.
const TRIES: usize = 8;

/// One thread.
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) name: Option<Box<str>>,
    pub(crate) is_green: bool,
    pub(crate) doing: Doing,
    /// For how long it has done that, in milliseconds.
    pub(crate) since: u32,
    /// The CPU time of a green thread, in nanoseconds, if somebody has asked for it.
    pub(crate) cpu: Option<u64>,
    pub(crate) wait: Option<Box<Wait>>,
    /// The number of the system call that it is blocked in.
    pub(crate) call: Option<i64>,
    pub(crate) spawned_at: Option<&'static Location<'static>>,
    /// The number of its stack.
    pub(crate) stack: u32,
    pub(super) thread: Seen,
    pub(super) turns: u32,
    /// The address of its identity, and the word that it leaves in locks.
    identity: usize,
    mark: usize,
}

/// What a thread waits for.
pub(crate) struct Wait {
    pub(crate) subject: &'static Subject,
    /// The address of the thing.
    pub(crate) of: usize,
    /// For how long it will wait at most, in nanoseconds.
    pub(crate) left: Option<u64>,
    pub(crate) facts: Facts,
    /// The thread that holds the thing, or that is to end: its place among the entries.
    pub(crate) whom: Option<u32>,
}

impl Entry {
    /// Whether the thread has not run since it was looked at.
    pub(super) fn stands(&self) -> bool {
        let sight = self.thread.look();
        sight.is_some_and(|sight| self.is_same(&sight))
    }

    /// Whether the thread waits still, and for `whom`.
    pub(super) fn waits_still_for(&self, whom: &Entry) -> bool {
        let sight = self.thread.look().filter(|sight| self.is_same(sight));
        sight.and_then(|sight| sight.facts()).is_some_and(|facts| {
            facts.holder == Some(whom.mark) || facts.target == Some(whom.identity)
        })
    }

    fn is_same(&self, sight: &Sight) -> bool {
        sight.turns() == self.turns && sight.doing == self.doing
    }
}

/// All threads.
pub(crate) struct Snapshot {
    pub(crate) at: SystemTime,
    pub(crate) threads: Vec<Entry>,
    pub(crate) stacks: Stacks,
    /// There until the snapshot is dropped.
    unwinder: Option<Unwinder>,
}

/// What a report is to look at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// States and waits.
    Waits,
    /// Stacks, too.
    Stacks,
}

impl Snapshot {
    /// Looks at every thread.
    pub(crate) fn take(depth: Depth) -> Snapshot {
        Snapshot::of(everybody(), depth)
    }

    /// Looks at these threads.
    pub(super) fn of(mut threads: impl Iterator<Item = Seen>, depth: Depth) -> Snapshot {
        let mut collector = Collector {
            depth,
            observer: Observer::new(),
            snapshot: Snapshot {
                at: SystemTime::now(),
                threads: Vec::new(),
                stacks: Stacks::default(),
                unwinder: (depth == Depth::Stacks).then(kept_unwinder),
            },
            frames: Vec::new(),
        };
        // The empty stack, of threads that have none or are not asked for it.
        collector.snapshot.stacks.number(&[]);
        inspect(&mut threads, |thread| collector.look(thread));
        collector.snapshot.resolve();
        collector.snapshot
    }

    /// The frames of a stack, as `RUST_BACKTRACE` asks for them.
    pub(super) fn frames(&self, number: u32, symbols: &mut Symbols) -> Vec<Symbol> {
        match &self.unwinder {
            Some(unwinder) => {
                let stack = self.stacks.get(number);
                symbols.stack(stack, Style::from_environment(), unwinder.modules())
            }
            None => Vec::new(),
        }
    }

    /// Adds the threads that hold things, or are to end, and are not in it: they are looked for among all.
    pub(super) fn add_holders(&mut self) {
        let waits = self.threads.iter().filter_map(|e| e.wait.as_deref());
        let unknown = waits.filter(|wait| wait.whom.is_none());
        let wanted: HashSet<usize> = unknown
            .flat_map(|wait| [wait.facts.holder, wait.facts.target])
            .flatten()
            .collect();
        if wanted.is_empty() {
            return;
        }
        let is_wanted = |thread: &Seen| {
            wanted.contains(&thread.mark()) || wanted.contains(&thread.identity().addr())
        };
        let mut others = Snapshot::of(everybody().filter(is_wanted), Depth::Waits);
        self.threads.append(&mut others.threads);
        self.resolve();
    }

    /// Finds the threads that hold things, or are to end.
    fn resolve(&mut self) {
        let mut by_mark = HashMap::new();
        let mut by_identity = HashMap::new();
        let needed = |wait: &Wait| wait.facts.holder.is_some() || wait.facts.target.is_some();
        if !self
            .threads
            .iter()
            .filter_map(|e| e.wait.as_deref())
            .any(needed)
        {
            return;
        }
        for (place, thread) in self.threads.iter().enumerate() {
            by_mark.insert(thread.mark, place as u32);
            by_identity.insert(thread.identity, place as u32);
        }
        for wait in self
            .threads
            .iter_mut()
            .filter_map(|e| e.wait.as_deref_mut())
        {
            let holder = wait.facts.holder.and_then(|mark| by_mark.get(&mark));
            let target = wait
                .facts
                .target
                .and_then(|target| by_identity.get(&target));
            wait.whom = holder.or(target).copied();
        }
    }
}

/// Every thread but the kernel threads that keep runtimes going: those are no concern of the program's.
pub(super) fn everybody() -> impl Iterator<Item = Seen> {
    // In a forked child green threads are the parent's.
    let green = records::all().filter(|_| !fork::is_child());
    let others = resident::all().filter(|resident| !resident.is_staff());
    green.map(Seen::Green).chain(others.map(Seen::Kernel))
}

/// Does something with each thread during an inspection, some threads at a time.
pub(super) fn inspect(threads: &mut impl Iterator<Item = Seen>, mut each: impl FnMut(Seen)) {
    loop {
        let _inspection = Inspection::begin();
        for _ in 0..AT_ONCE {
            match threads.next() {
                Some(thread) => each(thread),
                None => return,
            }
        }
    }
}

/// The unwinder of an earlier report: it knows rules already.
static KEPT: Mutex<Option<Unwinder>> = Mutex::new(None);

fn kept_unwinder() -> Unwinder {
    match KEPT.try_lock().ok().and_then(|mut kept| kept.take()) {
        Some(mut unwinder) => {
            unwinder.refresh();
            unwinder
        }
        None => Unwinder::new(),
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let (Some(unwinder), Ok(mut kept)) = (self.unwinder.take(), KEPT.try_lock()) {
            *kept = Some(unwinder);
        }
    }
}

struct Collector {
    depth: Depth,
    observer: Observer,
    snapshot: Snapshot,
    frames: Vec<usize>,
}

impl Collector {
    /// Adds a thread, if it is there. An inspection is under way.
    fn look(&mut self, thread: Seen) {
        for tries in (0..TRIES).rev() {
            let identity: *const Identity = thread.identity();
            // SAFETY: it was seen during this inspection, and so it stays.
            let name = unsafe { identity.as_ref() };
            if matches!(thread, Seen::Green(_)) && name.is_none() {
                return;
            }
            let Some(sight) = thread.look() else { return };
            let facts = sight.facts();
            let call = self.call(&sight);
            let stack = match self.depth {
                Depth::Waits => Some(0),
                Depth::Stacks => self.stack(&sight),
            };
            // At the last try the thread is shown all the same, as one that runs.
            if tries > 0 && (stack.is_none() || !sight.holds()) {
                continue;
            }
            let own_name = match thread {
                Seen::Green(green) => green.room().and_then(Room::own_name),
                Seen::Kernel(_) => None,
            };
            // Another thread has the record by now.
            if thread.identity() != identity {
                continue;
            }
            let wait = sight.waiting.zip(facts).map(|(waiting, facts)| {
                Box::new(Wait {
                    subject: waiting.about.subject,
                    of: waiting.about.of.addr(),
                    left: waiting.deadline.map(|at| at.saturating_sub(clock::now())),
                    facts,
                    whom: None,
                })
            });
            self.snapshot.threads.push(Entry {
                id: name.map_or(0, |name| name.id().get()),
                name: name
                    .and_then(Identity::name)
                    .map(Into::into)
                    .or_else(|| own_name.map(text_of))
                    .or_else(|| kernel_name(&sight)),
                is_green: matches!(thread, Seen::Green(_)),
                doing: sight.doing,
                since: sight.since,
                cpu: match thread {
                    Seen::Green(green) => cpu_time::known(green),
                    Seen::Kernel(_) => None,
                },
                wait,
                call,
                spawned_at: name.and_then(Identity::spawned_at),
                stack: stack.unwrap_or(0),
                thread,
                turns: sight.turns(),
                identity: identity.addr(),
                mark: sight.mark,
            });
            return;
        }
    }

    /// The system call in which the thread blocks its kernel thread.
    fn call(&mut self, sight: &Sight) -> Option<i64> {
        let Doing::Running(thread) = sight.doing else {
            return None;
        };
        match self.observer.doing(thread) {
            observer::Doing::Call(call) => Some(call.number),
            _ => None,
        }
    }

    /// The number of the thread's stack; `None`: the thread has run meanwhile.
    fn stack(&mut self, sight: &Sight) -> Option<u32> {
        self.frames.clear();
        let frames = &mut self.frames;
        let unwinder = self.snapshot.unwinder.get_or_insert_with(Unwinder::new);
        if let Some(thread) = sight.kernel_thread() {
            // It may run on meanwhile; then the stack is one of another moment.
            let is_green = matches!(sight.thread, Seen::Green(_));
            let _ = running::frames(thread, is_green, &mut self.observer, unwinder, frames);
        } else {
            if let Some((saved, stack)) = sight.saved()
                && let Some(registers) = Registers::of_switch(saved, |at| stack.word(at))
            {
                let read = |at| stack.word(at);
                unwinder.frames(registers, read, &mut |frame| frames.push(frame));
            }
            if !sight.holds() {
                return None;
            }
        }
        Some(self.snapshot.stacks.number(&self.frames))
    }
}

fn text_of(name: SystemName) -> Box<str> {
    let text = name.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into()
}

/// The name that the system has for a kernel thread of which nothing else is known. (A thread of a runtime
/// that has no name has that of the thread which has spawned it, there.)
fn kernel_name(sight: &Sight) -> Option<Box<str>> {
    let thread = match sight.thread {
        Seen::Kernel(resident) if !resident.is_ours() => resident.thread(),
        _ => return None,
    };
    if thread.unsigned_abs() == std::process::id() {
        return Some("main".into());
    }
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok()?;
    Some(name.trim_end().into())
}
