//! All threads as they were looked at, one after the other.
//!
//! The program runs on meanwhile, so this is no picture of one moment: each thread is shown as it was when it
//! was looked at. A thread that lives all the while is in the snapshot, once.
//!
//! Names stay while a read section is open (`inspect::epoch`). A section covers some threads only: threads that end
//! leave memory behind until it is over.
//!
//! A thread that runs is held by a signal while its stack is read (`inspect::hold`). So is one that is blocked in a
//! call which begins anew after a signal. Any other call could fail by the signal: there the system tells the program
//! counter and the stack pointer, and callers' frames may be missing.
//!
//! Each different stack is kept once: memory goes with the number of different stacks, not with that of threads. Stacks
//! with the same hash are compared, so no two different ones are ever taken for one.

use core::hash::BuildHasher;
use core::panic::Location;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::SystemTime;

use super::symbols::{Style, Symbol, Symbols};
use super::unwind::{End, Registers, Unwinder};
use crate::engine::facade::{clock, signal, word};
use crate::engine::inspect::epoch::ReadSection;
use crate::engine::inspect::hold::Held;
use crate::engine::inspect::reason::{Facts, WaitKind};
use crate::engine::inspect::system::observer::{self, Observer};
pub(super) use crate::engine::inspect::threads::Doing;
use crate::engine::inspect::threads::{Thread, ThreadSnapshot};
use crate::engine::inspect::{Identity, all};

/// The number of threads that one read section covers.
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
    pub(super) thread: Thread,
    pub(super) turns: u32,
    /// The address of its identity, and the word that it leaves in locks.
    identity: usize,
    mark: usize,
}

/// What a thread waits for.
pub(crate) struct Wait {
    pub(crate) kind: &'static WaitKind,
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
        let seen = self.thread.look();
        seen.is_some_and(|seen| self.is_same(&seen))
    }

    /// Whether the thread waits still, and for `whom`.
    pub(super) fn waits_still_for(&self, whom: &Entry) -> bool {
        let seen = self.thread.look().filter(|seen| self.is_same(seen));
        seen.and_then(|seen| seen.facts()).is_some_and(|facts| {
            facts.holder == Some(whom.mark) || facts.target == Some(whom.identity)
        })
    }

    fn is_same(&self, seen: &ThreadSnapshot) -> bool {
        seen.turns() == self.turns && seen.doing == self.doing
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
        Snapshot::of(all(), depth)
    }

    /// Looks at these threads.
    pub(super) fn of(mut threads: impl Iterator<Item = Thread>, depth: Depth) -> Snapshot {
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
        let is_wanted = |thread: &Thread| {
            wanted.contains(&thread.mark()) || wanted.contains(&thread.identity().addr())
        };
        let mut others = Snapshot::of(all().filter(is_wanted), Depth::Waits);
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

/// Does `work` on the calling kernel thread without handlers of the program's, and with faults let through: a snapshot
/// reads words that may not be there.
pub(super) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let mask = signal::set_mask(signal::ALL);
    let result = work();
    signal::set_mask(mask);
    result
}

/// Does something with each thread in a read section, some threads at a time.
pub(super) fn inspect(threads: &mut impl Iterator<Item = Thread>, mut each: impl FnMut(Thread)) {
    loop {
        let _section = ReadSection::begin();
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
    /// Adds a thread, if it is there. A read section is open.
    fn look(&mut self, thread: Thread) {
        for tries in (0..TRIES).rev() {
            let identity: *const Identity = thread.identity();
            // SAFETY: it was seen in this read section, and so it stays.
            let name = unsafe { identity.as_ref() };
            if matches!(thread, Thread::Green(_)) && name.is_none() {
                return;
            }
            let Some(seen) = thread.look() else { return };
            let facts = seen.facts();
            let call = self.call(&seen);
            let stack = match self.depth {
                Depth::Waits => Some(0),
                Depth::Stacks => self.stack(&seen),
            };
            // At the last try the thread is shown all the same, as one that runs.
            if tries > 0 && (stack.is_none() || !seen.holds()) {
                continue;
            }
            let own_name = thread.own_name();
            // Another thread has the record by now.
            if thread.identity() != identity {
                continue;
            }
            let wait = seen.waiting.zip(facts).map(|(waiting, facts)| {
                Box::new(Wait {
                    kind: waiting.reason.kind,
                    of: waiting.reason.of.addr(),
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
                    .or_else(|| kernel_name(&seen)),
                is_green: matches!(thread, Thread::Green(_)),
                doing: seen.doing,
                since: seen.since,
                cpu: thread.cpu_time(),
                wait,
                call,
                spawned_at: name.and_then(Identity::spawned_at),
                stack: stack.unwrap_or(0),
                thread,
                turns: seen.turns(),
                identity: identity.addr(),
                mark: seen.mark,
            });
            return;
        }
    }

    /// The system call in which the thread blocks its kernel thread.
    fn call(&mut self, seen: &ThreadSnapshot) -> Option<i64> {
        let Doing::Running(thread) = seen.doing else {
            return None;
        };
        match self.observer.doing(thread) {
            observer::Doing::Call(call) => Some(call.number),
            _ => None,
        }
    }

    /// The number of the thread's stack; `None`: the thread has run meanwhile.
    fn stack(&mut self, seen: &ThreadSnapshot) -> Option<u32> {
        self.frames.clear();
        let frames = &mut self.frames;
        let unwinder = self.snapshot.unwinder.get_or_insert_with(Unwinder::new);
        if let Some(thread) = seen.kernel_thread() {
            // It may run on meanwhile; then the stack is one of another moment.
            let is_green = matches!(seen.thread, Thread::Green(_));
            let _ = frames_of_running(thread, is_green, &mut self.observer, unwinder, frames);
        } else {
            if let Some((saved, stack)) = seen.saved()
                && let Some(registers) = Registers::of_switch(saved, |at| stack.word(at))
            {
                let read = |at| stack.word(at);
                unwinder.frames(registers, read, &mut |frame| frames.push(frame));
            }
            if !seen.holds() {
                return None;
            }
        }
        Some(self.snapshot.stacks.number(&self.frames))
    }
}

fn text_of(name: [u8; 16]) -> Box<str> {
    let text = name.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into()
}

/// The name that the system has for a kernel thread of which nothing else is known. (A thread of a runtime
/// that has no name has that of the thread which has spawned it, there.)
fn kernel_name(seen: &ThreadSnapshot) -> Option<Box<str>> {
    let thread = match seen.thread {
        Thread::Kernel(kernel) if !kernel.is_ours() => kernel.thread(),
        _ => return None,
    };
    if thread.unsigned_abs() == std::process::id() {
        return Some("main".into());
    }
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok()?;
    Some(name.trim_end().into())
}

/// How often a thread is held that has not stood still for as long as its stack was read: the first time takes longest.
const HOLDS: usize = 20;

/// Fills `frames` with those of the stack that kernel thread `thread` runs on; with none if they cannot be had. It
/// allocates nothing if there is room.
pub(super) fn frames_of_running(
    thread: i32,
    is_green: bool,
    observer: &mut Observer,
    unwinder: &mut Unwinder,
    frames: &mut Vec<usize>,
) -> Option<End> {
    frames.clear();
    let call = match observer.doing(thread) {
        observer::Doing::Call(call) => Some(call),
        observer::Doing::Untold if !is_green => return None,
        _ => None,
    };
    if call.as_ref().is_none_or(observer::SystemCall::begins_anew) {
        for _ in 0..HOLDS {
            // `None`: it blocks the signal, or the system does not run it for long.
            let Some(held) = Held::hold(thread, call.is_none(), observer) else {
                break;
            };
            let registers = Registers::of_signal(held.registers());
            let end = unwinder.frames(registers, word::read, &mut |frame| frames.push(frame));
            if held.let_go() {
                return Some(end);
            }
            frames.clear();
        }
    }
    let call = call?;
    let (pc, sp) = (call.program_counter, call.stack_pointer);
    let registers = Registers::new(pc, sp, 0);
    Some(unwinder.frames(registers, word::read, &mut |frame| frames.push(frame)))
}

/// Different stacks, by number.
#[derive(Default)]
pub(crate) struct Stacks {
    /// All stacks, one after the other.
    frames: Vec<usize>,
    stacks: Vec<Stack>,
    /// For each hash the stack that came last; `Stack::next` leads to the others.
    by_hash: HashMap<u64, u32>,
    hasher: RandomState,
}

struct Stack {
    start: usize,
    length: u32,
    next: Option<u32>,
}

impl Stacks {
    /// The number of this stack, which is kept if it is new.
    pub(crate) fn number(&mut self, stack: &[usize]) -> u32 {
        let hash = self.hasher.hash_one(stack);
        let first = self.by_hash.get(&hash).copied();
        let mut next = first;
        while let Some(number) = next {
            if self.get(number) == stack {
                return number;
            }
            next = self.stacks[number as usize].next;
        }
        let number = self.stacks.len() as u32;
        self.stacks.push(Stack {
            start: self.frames.len(),
            length: stack.len() as u32,
            next: first,
        });
        self.frames.extend_from_slice(stack);
        self.by_hash.insert(hash, number);
        number
    }

    /// The stack with this number.
    pub(crate) fn get(&self, number: u32) -> &[usize] {
        let stack = &self.stacks[number as usize];
        &self.frames[stack.start..][..stack.length as usize]
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.stacks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_one_number() {
        let mut stacks = Stacks::default();
        let numbers = [
            stacks.number(&[1, 2, 3]),
            stacks.number(&[1, 2]),
            stacks.number(&[]),
        ];
        assert_eq!(numbers, [0, 1, 2]);
        for _ in 0..100 {
            assert_eq!(stacks.number(&[1, 2]), 1);
            assert_eq!(stacks.number(&[1, 2, 3]), 0);
            assert_eq!(stacks.number(&[]), 2);
        }
        assert_eq!((stacks.len(), stacks.frames.len()), (3, 5));
        assert_eq!(stacks.get(0), [1, 2, 3]);
        assert_eq!(stacks.get(2), [0; 0]);
    }

    #[test]
    fn stacks_with_the_same_hash_stay_apart() {
        let mut stacks = Stacks::default();
        stacks.number(&[1]);
        // As if the second had the hash of the first.
        let hash = stacks.hasher.hash_one(&[2_usize][..]);
        stacks.by_hash.insert(hash, 0);
        assert_eq!(stacks.number(&[2]), 1);
        assert_eq!(stacks.number(&[2]), 1);
        assert_eq!(stacks.number(&[1]), 0);
    }
}
