//! What a simulated process tells the one that has forked it, in memory that both have: how far it is, what a seed's run
//! amounts to, how it has ended, and which switches its schedule has chosen.
//!
//! The process may end at any moment, by a signal, or because it is killed. So everything is written before it is needed, and
//! the reader reads it when the process has gone; while it runs, the count of points tells only whether it gets on.
//!
//! # Invariants
//! 1. One kernel thread writes. Nothing here allocates but [`Sheet::fail`], after which no thread runs.
//! 2. A choice is one thread's, at the point where it gives way; the thread that follows is written into it.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr;

use super::{FailureKind, Summary};
use crate::sys::simulated;

/// How a process ends, by its own doing.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum End {
    /// It has not.
    Not,
    /// All its seeds' runs are over, or one has left threads or descriptors behind: no other seed is to find them.
    Passed,
    Failed,
}

/// The most seeds that one process runs: a fork's cost is spread, and a failing run has few runs before it.
pub(super) const MOST_SEEDS: usize = 1000;
const MOST_CHOICES: usize = 4096;
const MOST_FRAMES: usize = 48;
const TEXT: usize = 256 << 10;
const NAME: usize = 32;
const MOST_NAMES: usize = 256;
/// Who follows is still to come.
pub(super) const NOBODY: usize = usize::MAX;

/// A switch that the schedule has chosen.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// The number of the point.
    pub(super) point: u64,
    /// In virtual nanoseconds since the begin.
    pub(super) time: u64,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: u64,
    /// Return addresses, the innermost first, and zeroes.
    pub(super) frames: [usize; MOST_FRAMES],
}

/// The memory that both processes have.
pub(super) struct Sheet {
    pub(super) end: Cell<End>,
    /// Why it has failed.
    pub(super) kind: Cell<FailureKind>,
    /// The seed that runs, or the last one that ran.
    pub(super) seed: Cell<u64>,
    /// How many seeds' runs are over.
    pub(super) done: Cell<usize>,
    /// Of the seed that runs, or of the last one.
    pub(super) run: Cell<Summary>,
    /// Those of the runs that are over.
    pub(super) runs: [Cell<Summary>; MOST_SEEDS],
    /// Choices are written.
    pub(super) is_traced: Cell<bool>,
    pub(super) count: Cell<usize>,
    /// Without the last ones, if there were too many.
    pub(super) choices: [Cell<Choice>; MOST_CHOICES],
    names: [Cell<(u64, [u8; NAME])>; MOST_NAMES],
    length: Cell<usize>,
    text: [Cell<u8>; TEXT],
}

// SAFETY: invariant 1.
unsafe impl Sync for Sheet {}

impl Sheet {
    /// Makes one in memory that forked children share.
    pub(super) fn share() -> std::io::Result<&'static Sheet> {
        // SAFETY: fresh memory of the sheet's size; zeroes are a valid sheet.
        unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(ptr::null_mut(), size_of::<Sheet>(), access, flags, -1, 0);
            match at == libc::MAP_FAILED {
                true => Err(std::io::Error::last_os_error()),
                false => Ok(&*at.cast()),
            }
        }
    }

    /// A process begins.
    pub(super) fn begin(&self) {
        self.done.set(0);
        self.run.set(Summary::default());
        self.begin_seed(0);
    }

    pub(super) fn begin_seed(&self, seed: u64) {
        self.seed.set(seed);
        self.end.set(End::Not);
        // What has gone outside, such as a pool's kernel thread, may live on.
        let before = self.run.replace(Summary::default());
        self.count(|run| run.is_repeatable = before.is_repeatable);
        self.count.set(0);
        self.length.set(0);
    }

    pub(super) fn end_seed(&self) {
        if let Some(place) = self.runs.get(self.done.get()) {
            place.set(self.run.get());
        }
        self.done.update(|done| done + 1);
    }

    /// Changes what the run that runs amounts to.
    pub(super) fn count(&self, change: impl FnOnce(&mut Summary)) {
        // SAFETY: invariant 1, and `change` sees nothing else of the sheet.
        change(unsafe { &mut *self.run.as_ptr() });
    }

    // ==== the switches ====

    /// Thread `number` has this number for users, and this name.
    pub(super) fn name(&self, number: usize, who: Option<(u64, &str)>) {
        if let Some((id, name)) = who
            && let Some(place) = self.names.get(number)
        {
            let mut bytes = [0; NAME];
            let length = name.len().min(NAME);
            bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
            place.set((id, bytes));
        }
    }

    /// How a dump calls thread `number`.
    pub(super) fn name_of(&self, number: usize) -> String {
        let Some((id, name)) = self.names.get(number).map(Cell::get) else {
            return String::from("a thread");
        };
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME);
        match String::from_utf8_lossy(&name[..end]) {
            name if name.is_empty() => format!("thread {id}"),
            name => format!("thread {id} \"{name}\""),
        }
    }

    /// Thread `number` gives way at a point, before an operation of this kind.
    #[cold]
    pub(super) fn choose(&self, number: usize, kind: u64, time: u64) {
        if let Some(place) = self.choices.get(self.count.get()) {
            place.set(Choice {
                point: self.run.get().points,
                time,
                from: number,
                to: NOBODY,
                kind,
                frames: frames(),
            });
        }
        self.count.update(|count| count + 1);
    }

    /// Thread `number` follows.
    pub(super) fn follow(&self, number: usize) {
        let last = self.count.get().wrapping_sub(1);
        match self.choices.get(last).map(|place| (place, place.get())) {
            Some((_, choice)) if choice.to != NOBODY => {}
            // The thread goes on itself: that is no switch.
            Some((_, choice)) if choice.from == number => self.count.set(last),
            Some((place, choice)) => place.set(Choice {
                to: number,
                ..choice
            }),
            None => {}
        }
    }

    // ==== the end ====

    /// Says how the run ends, beside `end` itself.
    pub(super) fn say(&self, text: &str) {
        let rest = self.text.iter().skip(self.length.get());
        let said = rest.zip(text.bytes()).map(|(place, byte)| place.set(byte));
        self.length.set(self.length.get() + said.count());
    }

    pub(super) fn text(&self) -> String {
        let text = self.text.iter().take(self.length.get());
        let text: Vec<u8> = text.map(Cell::get).collect();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The process ends: its run has failed. What its threads do, a dump tells, if that is of interest.
    pub(super) fn fail(&self, kind: FailureKind) -> ! {
        simulated::end();
        // Before what may take long.
        self.kind.set(kind);
        self.end.set(End::Failed);
        use FailureKind::{Deadlock, Points, Time};
        if matches!(kind, Deadlock | Points | Time) {
            self.say(&crate::observe::dump().to_string());
        }
        self.end(End::Failed)
    }

    /// The process ends.
    pub(super) fn end(&self, end: End) -> ! {
        self.end.set(end);
        // SAFETY: the process ends, without what the program has registered for its end.
        unsafe { libc::_exit(0) }
    }
}

/// The return addresses on the calling thread's stack, the innermost first.
fn frames() -> [usize; MOST_FRAMES] {
    struct Walk([usize; MOST_FRAMES], usize);
    extern "C" fn step(context: *mut c_void, walk: *mut c_void) -> c_int {
        // SAFETY: the walk below, and the unwinder's context.
        unsafe {
            let walk = &mut *walk.cast::<Walk>();
            let Some(place) = walk.0.get_mut(walk.1) else {
                return 4;
            };
            *place = _Unwind_GetIP(context);
            walk.1 += 1;
        }
        0
    }
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            step: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            with: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut c_void) -> usize;
    }
    let mut walk = Walk([0; MOST_FRAMES], 0);
    // SAFETY: the unwinder that std links; `step` gets the walk.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.0
}
