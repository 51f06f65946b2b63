//! All threads as they were looked at, one after the other.
//!
//! The program runs on meanwhile, so this is no picture of one moment: each thread is shown as it was when it
//! was looked at. A thread that lives all the while is in the snapshot, once.
//!
//! Names stay while a read section is open (`inspect::notes`). A section covers some threads only: threads that end
//! leave memory behind until the section is over.
//!
//! A thread that runs is held by a signal while its stack is read (`inspect::hold`). So is a thread that is blocked in a
//! call which begins anew after a signal. Any other call could fail by the signal: there the system tells the program
//! counter and the stack pointer alone, and callers' frames may be missing.
//!
//! Each different stack is kept once: memory goes with the number of different stacks, not with that of threads.
//!
//! Invariant: while a thread is held nothing is allocated, since that thread may hold the allocator's lock.

use core::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{FromRawFd, RawFd};
use std::time::SystemTime;

pub(super) use super::dump::{Depth, Entry, State, Wait};
use super::numbers::{NumberMap, digest};
pub(super) use super::symbols::Symbols;
use super::symbols::{Symbol, is_full};
use super::unwind::{FRAMES, Registers, Unwinder};
use crate::engine::inspect::hold;
use crate::engine::inspect::notes::ReadSection;
use crate::engine::inspect::system::kernel_thread::{self, SystemCall, begins_anew};
use crate::engine::inspect::threads::{AnyThread, Doing, ThreadSnapshot};
use crate::engine::inspect::{Identity, all};
use crate::sys::{clock, word};

/// The number of threads that one read section covers.
const AT_ONCE: usize = 1024;
/// How often a thread's stack is read anew because the thread has run meanwhile.
const TRIES: usize = 8;

impl Entry {
    /// Looks again. `None`: the thread has run since it was looked at.
    pub(super) fn look_again(&self) -> Option<ThreadSnapshot> {
        self.thread.look().filter(|seen| {
            let state = State::of(seen.doing, self.system_call.is_some());
            seen.turns == self.turns && state == self.state
        })
    }

    /// Whether the thread waits still, and for `whom`.
    pub(super) fn waits_still_for(&self, whom: &Entry) -> bool {
        let facts = self.look_again().and_then(|seen| seen.facts());
        facts.is_some_and(|facts| {
            facts.holder == Some(whom.mark) || facts.target == Some(whom.identity)
        })
    }
}

impl State {
    /// The state of a thread that does this. `is_in_call`: if a kernel thread runs it, that one is in a blocking call.
    pub(super) fn of(doing: Doing, is_in_call: bool) -> State {
        match doing {
            Doing::New => State::New,
            Doing::Ready => State::Ready,
            Doing::Running(_) if is_in_call => State::Blocked,
            Doing::Running(_) => State::Running,
            Doing::Parked => State::Parked,
        }
    }
}

/// All threads.
pub(crate) struct Snapshot {
    pub(crate) at: SystemTime,
    pub(crate) threads: Vec<Entry>,
    /// Different stacks, by number.
    pub(super) stacks: NumberMap<Box<[usize]>>,
    /// With [`Depth::Stacks`].
    unwinder: Option<Unwinder>,
}

impl Snapshot {
    /// Looks at every thread.
    pub(crate) fn take(depth: Depth) -> Snapshot {
        Snapshot::of(&mut all(), depth)
    }

    /// Looks at these threads, some in a read section at a time. `threads`, too, is asked in one.
    pub(super) fn of(threads: &mut impl Iterator<Item = AnyThread>, depth: Depth) -> Snapshot {
        Snapshot::of_next(&mut || threads.next(), depth)
    }

    /// `next` is no `dyn Iterator`: all methods of each would be in the program, 17 KB.
    fn of_next(next: &mut dyn FnMut() -> Option<AnyThread>, depth: Depth) -> Snapshot {
        let mut snapshot = Snapshot {
            at: SystemTime::now(),
            threads: Vec::new(),
            stacks: NumberMap::default(),
            unwinder: (depth == Depth::Stacks).then(Unwinder::new),
        };
        // Number 0 is the empty stack: that of threads which have none or are not asked for theirs.
        number_of(&mut snapshot.stacks, &[]);
        'all: loop {
            let _section = ReadSection::begin();
            for _ in 0..AT_ONCE {
                match next() {
                    Some(thread) => snapshot.look(thread),
                    None => break 'all,
                }
            }
        }
        snapshot.resolve();
        snapshot
    }

    /// The frames of a stack, as `RUST_BACKTRACE` asks for them.
    pub(super) fn frames(&self, number: u32, symbols: &mut Symbols) -> Vec<Symbol> {
        let stack = &self.stacks.entries[number as usize].1;
        let with = |unwinder: &Unwinder| symbols.stack(stack, is_full(), &unwinder.modules);
        self.unwinder.as_ref().map_or(Vec::new(), with)
    }

    /// Adds the threads that hold things, or are to end, and are not in it: they are looked for among all.
    pub(super) fn add_holders(&mut self) {
        let waits = self.threads.iter().filter_map(|e| e.wait.as_deref());
        let unknown = waits.filter(|wait| wait.whom.is_none());
        let mut wanted = NumberMap::default();
        for word in unknown.flat_map(|wait| wait.facts.others()) {
            wanted.or_insert(word as u64, ());
        }
        if wanted.entries.is_empty() {
            return;
        }
        let is_wanted = |thread: &AnyThread| {
            let words = [thread.mark(), thread.identity().addr()];
            words.iter().any(|&word| wanted.get(word as u64).is_some())
        };
        let mut others = Snapshot::of(&mut all().filter(is_wanted), Depth::Waits);
        self.threads.append(&mut others.threads);
        self.resolve();
    }

    /// Finds the threads that hold things, or are to end.
    fn resolve(&mut self) {
        let waits = self.threads.iter().filter_map(|e| e.wait.as_deref());
        if waits.flat_map(|wait| wait.facts.others()).next().is_none() {
            return;
        }
        // One map serves marks and identities: they are addresses of different things, so no two are equal.
        let mut places = NumberMap::default();
        for (place, thread) in (0..).zip(&self.threads) {
            *places.or_insert(thread.mark as u64, place) = place;
            *places.or_insert(thread.identity as u64, place) = place;
        }
        for wait in self.threads.iter_mut().filter_map(|e| e.wait.as_mut()) {
            let mut others = wait.facts.others();
            wait.whom = others.find_map(|word| places.get(word as u64).copied());
        }
    }

    /// Adds a thread, if it is there. A read section is open.
    fn look(&mut self, thread: AnyThread) {
        for tries in (0..TRIES).rev() {
            let identity: *const Identity = thread.identity();
            // SAFETY: it was seen in this read section, and so it stays.
            let name = unsafe { identity.as_ref() };
            if matches!(thread, AnyThread::Green(_)) && name.is_none() {
                return;
            }
            let Some(seen) = thread.look() else { return };
            let facts = seen.facts();
            // The system call in which the thread blocks its kernel thread.
            let system_call = match seen.doing {
                Doing::Running(thread) => kernel_thread::call_of(thread),
                _ => None,
            };
            let stack = self.stack(&seen);
            // At the last try the thread is shown although it has run meanwhile.
            if tries > 0 && (stack.is_none() || !seen.holds()) {
                continue;
            }
            let known_name = name.and_then(Identity::name).map(Into::into).or_else(|| {
                let name = thread.own_name()?;
                let text = name.split(|&byte| byte == 0).next();
                Some(String::from_utf8_lossy(text?).into())
            });
            // If the identity has changed, another thread has the record by now.
            if thread.identity() != identity {
                continue;
            }
            let wait = seen.waiting.zip(facts).map(|(parking, facts)| {
                let is_limited = parking.deadline != clock::NEVER;
                Box::new(Wait {
                    kind: parking.reason.kind,
                    of: parking.reason.of.addr(),
                    left: is_limited.then(|| parking.deadline.saturating_sub(clock::now())),
                    facts,
                    whom: None,
                })
            });
            self.threads.push(Entry {
                id: name.map_or(0, |name| name.id().get()),
                name: known_name.or_else(|| kernel_name(&seen)),
                is_green: matches!(thread, AnyThread::Green(_)),
                state: State::of(seen.doing, system_call.is_some()),
                since: seen.since,
                cpu: thread.cpu_time(),
                wait,
                frames: thread.frames(),
                system_call: system_call.map(|call| kernel_thread::call_name(call.number)),
                spawned_at: name.and_then(|name| name.spawned_at),
                stack: stack.unwrap_or(0),
                thread,
                turns: seen.turns,
                identity: identity.addr(),
                mark: seen.mark,
            });
            return;
        }
    }

    /// The number of the thread's stack, 0 if stacks are not asked for; `None`: the thread has run meanwhile.
    fn stack(&mut self, seen: &ThreadSnapshot) -> Option<u32> {
        let Some(unwinder) = &mut self.unwinder else {
            return Some(0);
        };
        let mut frames = Vec::with_capacity(FRAMES);
        let runs_on = seen.kernel_thread();
        if let Some(thread) = runs_on {
            // The thread may run on meanwhile. Then its stack is shown as it was at another moment than its state.
            let is_green = matches!(seen.thread, AnyThread::Green(_));
            frames_of_running(thread, is_green, unwinder, &mut frames);
        } else if let Some((saved, stack)) = seen.saved()
            && let Some(registers) = Registers::of_switch(saved, |at| stack.word(at))
        {
            unwinder.frames(registers, |at| stack.word(at), &mut frames);
        }
        let is_true = runs_on.is_some() || seen.holds();
        is_true.then(|| number_of(&mut self.stacks, &frames))
    }
}

/// The name that the system has for a kernel thread of which nothing else is known. (A thread of a runtime
/// that has no name has that of the thread which has spawned it, there.)
fn kernel_name(seen: &ThreadSnapshot) -> Option<Box<str>> {
    let thread = match seen.thread {
        AnyThread::Kernel(kernel) if !kernel.is_ours() => kernel.thread(),
        _ => return None,
    };
    if thread.unsigned_abs() == std::process::id() {
        return Some("main".into());
    }
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok()?;
    Some(name.trim_end().into())
}

/// Fills `out`, which is empty and has space for as many frames as there can be, with those of the stack that kernel thread
/// `thread` runs on. `out` stays empty if they cannot be had.
fn frames_of_running(thread: i32, is_green: bool, unwinder: &mut Unwinder, out: &mut Vec<usize>) {
    let (is_blocked, call) = kernel_thread::ask(thread).unwrap_or((true, None));
    if is_blocked && call.is_none() && !is_green {
        return;
    }
    let mut read = |registers| _ = unwinder.frames(registers, word::read, out);
    let begins_anew = |call: &SystemCall| begins_anew(call.number, &call.arguments);
    let may_hold = call.as_ref().is_none_or(begins_anew);
    let read_held = |registers| read(Registers::of_signal(registers));
    let was_held = may_hold && hold::held(thread, call.is_none(), read_held);
    match call {
        _ if was_held => {}
        Some(call) => read(Registers::new(call.program_counter, call.stack_pointer, 0)),
        None => out.clear(),
    }
}

/// `peer 127.0.0.1:80`, or what `/proc` calls the file.
pub(super) fn descriptor_text(descriptor: RawFd) -> Option<String> {
    // SAFETY: the descriptor is only asked about, not closed; one that is another file's by now has another answer.
    let socket = (descriptor >= 0)
        .then(|| ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(descriptor) }))?;
    if let Ok(peer) = socket.peer_addr() {
        return Some(format!("peer {peer}"));
    }
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The number of this stack among the `stacks`, where it is kept if it is new.
pub(super) fn number_of(stacks: &mut NumberMap<Box<[usize]>>, stack: &[usize]) -> u32 {
    stacks.place(digest(stack), |known| **known == *stack, || stack.into()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_one_number() {
        let mut stacks = NumberMap::default();
        let mut number = |stack: &[usize]| number_of(&mut stacks, stack);
        let numbers = [number(&[1, 2, 3]), number(&[1, 2]), number(&[])];
        assert_eq!(numbers, [0, 1, 2]);
        for _ in 0..100 {
            assert_eq!(number(&[1, 2]), 1);
            assert_eq!(number(&[1, 2, 3]), 0);
            assert_eq!(number(&[]), 2);
        }
        assert_eq!(stacks.entries.len(), 3);
        assert_eq!(
            (&*stacks.entries[0].1, &*stacks.entries[2].1),
            (&[1, 2, 3][..], &[][..])
        );
    }
}
