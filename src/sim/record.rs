//! What a simulated process tells the one that has forked it, in memory that both have: how far it is, what a seed's run
//! amounts to, how it has ended, and which switches its schedule has chosen.
//!
//! The process may end at any moment, by a signal, or because it is killed. So everything is written before it is needed, and
//! the reader reads it when the process has gone; while it runs, the count of points tells only whether it gets on.
//!
//! # Invariants
//! 1. One kernel thread writes. Nothing here allocates but [`end`], after which no thread runs.
//! 2. A choice is one thread's, at the point where it gives way; the thread that follows is written into it.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};
use core::ptr;

use super::FailureKind;
use super::schedule::{self, Tally};
use crate::sys::simulated;

/// How a process ends, by its own doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub(super) enum End {
    /// It has not.
    #[default]
    Not,
    /// All its seeds' runs are over.
    Passed,
    /// A run has left threads or descriptors behind: no other seed is to find them.
    Leftovers,
    Failed,
}

/// The most seeds that one process runs: a fork's cost is spread, and a failing run has few runs before it.
pub(super) const MOST_SEEDS: usize = 1000;
pub(super) const MOST_CHOICES: usize = 4096;
const MOST_FRAMES: usize = 24;
const TEXT: usize = 256 << 10;
const NAME: usize = 32;
const MOST_NAMES: usize = 256;

/// A switch that the schedule has chosen.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Choice {
    /// The number of the point.
    pub(super) point: u64,
    /// In virtual nanoseconds since the begin.
    pub(super) time: u64,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: u64,
    pub(super) frames: [usize; MOST_FRAMES],
}

/// The memory that both processes have.
#[repr(C)]
pub(super) struct Sheet {
    pub(super) end: End,
    /// Why it has failed.
    pub(super) kind: FailureKind,
    /// The seed that runs, or the last one that ran.
    pub(super) seed: u64,
    /// How many seeds' runs are over.
    pub(super) done: u64,
    /// Of the seed that runs, or of the last one.
    pub(super) tally: Tally,
    /// Those of all runs that are over; the sum of their hashes, each mixed with its seed.
    pub(super) sum: Tally,
    /// Those of the runs.
    pub(super) hashes: [u64; MOST_SEEDS],
    pub(super) choices: usize,
    /// The run does what no seed repeats; some run has done so.
    is_outside: bool,
    pub(super) was_outside: bool,
    text_length: usize,
    pub(super) list: [Choice; MOST_CHOICES],
    names: [(u64, [u8; NAME]); MOST_NAMES],
    text: [u8; TEXT],
}

struct Own {
    sheet: Cell<*mut Sheet>,
    is_traced: Cell<bool>,
    /// The last choice has no successor yet.
    is_open: Cell<bool>,
}

// SAFETY: invariant 1.
unsafe impl Sync for Own {}

static OWN: Own = Own {
    sheet: Cell::new(ptr::null_mut()),
    is_traced: Cell::new(false),
    is_open: Cell::new(false),
};

impl Sheet {
    /// Makes one in memory that forked children share.
    pub(super) fn share() -> std::io::Result<&'static mut Sheet> {
        // SAFETY: fresh memory of the sheet's size; zeroes are a valid sheet.
        unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(ptr::null_mut(), size_of::<Sheet>(), access, flags, -1, 0);
            match at == libc::MAP_FAILED {
                true => Err(std::io::Error::last_os_error()),
                false => Ok(&mut *at.cast()),
            }
        }
    }

    /// It serves another process.
    pub(super) fn clear(&mut self) {
        (self.end, self.done, self.was_outside) = (End::Not, 0, false);
        (self.tally, self.sum) = (Tally::default(), Tally::default());
        (self.choices, self.text_length) = (0, 0);
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.text[..self.text_length.min(TEXT)]).into_owned()
    }

    /// How a dump calls thread `number`.
    pub(super) fn name(&self, number: usize) -> String {
        let Some((id, name)) = self.names.get(number) else {
            return String::from("a thread");
        };
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME);
        match String::from_utf8_lossy(&name[..end]) {
            name if name.is_empty() => format!("thread {id}"),
            name => format!("thread {id} \"{name}\""),
        }
    }

    /// Whether the last choices are missing: there were too many.
    pub(super) fn choices(&self) -> &[Choice] {
        &self.list[..self.choices.min(MOST_CHOICES)]
    }
}

impl Write for Sheet {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.text[self.text_length..];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.text_length += length;
        Ok(())
    }
}

/// Runs `f` on the sheet, if this is a simulated process.
#[inline]
fn with(f: impl FnOnce(&mut Sheet)) {
    // SAFETY: invariant 1; `f` does not come here again.
    if let Some(sheet) = unsafe { OWN.sheet.get().as_mut() } {
        f(sheet);
    }
}

/// This process writes to `sheet` from now on; also its choices if it is `traced`.
pub(super) fn begin(sheet: &'static mut Sheet, is_traced: bool) {
    OWN.sheet.set(sheet);
    OWN.is_traced.set(is_traced);
}

pub(super) fn goes_outside() {
    with(|sheet| (sheet.is_outside, sheet.was_outside) = (true, true));
}

pub(super) fn is_outside() -> bool {
    let mut is_outside = false;
    with(|sheet| is_outside = sheet.is_outside);
    is_outside
}

pub(super) fn begin_seed(seed: u64) {
    OWN.is_open.set(false);
    with(|sheet| {
        (sheet.seed, sheet.end, sheet.is_outside) = (seed, End::Not, false);
        (sheet.choices, sheet.text_length) = (0, 0);
    });
}

/// The first thread of a run has ended: if the others end the process now, that is no failure of the run.
pub(super) fn begin_rest() {
    with(|sheet| sheet.end = End::Leftovers);
}

/// The process has warmed up: the seeds begin.
pub(super) fn begin_batch() {
    with(Sheet::clear);
}

pub(super) fn end_seed() {
    let tally = schedule::tally();
    with(|sheet| {
        sheet.tally = tally;
        sheet.sum.points += tally.points;
        sheet.sum.atomics += tally.atomics;
        sheet.sum.switches += tally.switches;
        let hash = simulated::mix(tally.hash ^ sheet.seed);
        sheet.sum.hash = sheet.sum.hash.wrapping_add(hash);
        if let Some(place) = sheet.hashes.get_mut(sheet.done as usize) {
            *place = tally.hash;
        }
        sheet.done += 1;
    });
}

/// Thread `number` gives way at a point, before an operation of this kind.
#[inline]
pub(super) fn choice(number: usize, kind: u64, point: u64, time: u64) {
    if OWN.is_traced.get() {
        note_choice(number, kind, point, time);
    }
}

#[cold]
fn note_choice(number: usize, kind: u64, point: u64, time: u64) {
    with(|sheet| {
        if let Some(choice) = sheet.list.get_mut(sheet.choices) {
            (choice.point, choice.time, choice.kind) = (point, time, kind);
            (choice.from, choice.to) = (number, number);
            choice.frames = frames();
        }
        sheet.choices += 1;
        OWN.is_open.set(true);
    });
}

/// Thread `number` follows.
#[inline]
pub(super) fn successor(number: usize) {
    if OWN.is_open.replace(false) {
        with(|sheet| match sheet.list.get_mut(sheet.choices - 1) {
            // The thread goes on itself: that is no switch.
            Some(choice) if choice.from == number => sheet.choices -= 1,
            Some(choice) => choice.to = number,
            None => {}
        });
    }
}

/// Thread `number` has this number for users, and this name.
pub(super) fn name(number: usize, who: Option<(u64, &str)>) {
    with(|sheet| {
        if let Some((id, name)) = who
            && let Some(place) = sheet.names.get_mut(number)
        {
            let length = name.len().min(NAME);
            *place = (id, [0; NAME]);
            place.1[..length].copy_from_slice(&name.as_bytes()[..length]);
        }
    });
}

/// The run has come to so many points, and this is the hash of all.
#[inline]
pub(super) fn point(points: u64, hash: u64) {
    with(|sheet| (sheet.tally.points, sheet.tally.hash) = (points, hash));
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

/// The process does not get on, and ends: where it is, is noted.
pub(super) fn stand_still() {
    let mut is_ending = false;
    with(|sheet| is_ending = sheet.end == End::Failed);
    if is_ending {
        return;
    }
    let (number, tally) = (schedule::own().unwrap_or(0), schedule::tally());
    OWN.is_traced.set(true);
    choice(number, 0, tally.points, schedule::elapsed());
    fail(FailureKind::Stuck)
}

/// Says how the run ends, beside `end` itself.
pub(super) fn say(text: fmt::Arguments<'_>) {
    with(|sheet| _ = sheet.write_fmt(text));
}

/// The process ends: its run has failed. What its threads do, a dump tells, if that is of interest.
pub(super) fn fail(kind: FailureKind) -> ! {
    end_seed();
    simulated::end();
    // Before what may take long.
    with(|sheet| (sheet.end, sheet.kind) = (End::Failed, kind));
    use FailureKind::{Deadlock, Points, Time};
    if matches!(kind, Deadlock | Points | Time) {
        say(format_args!("{}", crate::observe::dump()));
    }
    end(End::Failed)
}

/// The process ends.
pub(super) fn end(end: End) -> ! {
    with(|sheet| sheet.end = end);
    // SAFETY: the process ends, without what the program has registered for its end.
    unsafe { libc::_exit(0) }
}
