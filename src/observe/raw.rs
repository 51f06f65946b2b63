//! A dump when memory is not to be had: a stuck thread holds the allocator's lock, say.
//!
//! The watchdog is a kernel thread that sleeps until a dump is asked for. It gives the reporter time, for as
//! long as that makes progress; if not, it writes what can be written without the allocator and without any
//! lock: each thread's number, name, state and wait, where it was spawned, and its stack as addresses in the files that the
//! system has mapped. (`addr2line` has the names.) All that it needs it has prepared before.

use core::fmt::{self, Write};
use std::ffi::CString;
use std::sync::OnceLock;

use super::employ;
use super::snapshot::frames_of_running;
use super::unwind::{FRAMES, Registers, Unwinder};
use crate::engine::door::atomic::{AtomicU32, Ordering};
use crate::engine::door::{clock, variable};
use crate::engine::inspect::epoch::ReadSection;
use crate::engine::inspect::system::{self as sys, futex, observer::Observer};
use crate::engine::inspect::threads::{Doing, Thread, ThreadSnapshot};
use crate::engine::inspect::{Identity, all};

/// How long the reporter may do nothing that is seen, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;

/// How many dumps were asked for, and which of them the reporter has done.
static ASKED: AtomicU32 = AtomicU32::new(0);
static DONE: AtomicU32 = AtomicU32::new(0);
/// Changes while the reporter works.
static PROGRESS: AtomicU32 = AtomicU32::new(0);
/// The file for dumps; absent: standard error.
static FILE: OnceLock<Option<CString>> = OnceLock::new();

/// A dump is asked for. In a signal's handler.
pub(super) fn ask() {
    ASKED.fetch_add(1, Ordering::Relaxed);
    futex::wake(&ASKED, 1);
}

/// How many dumps have been asked for.
pub(super) fn asked() -> u32 {
    ASKED.load(Ordering::Relaxed)
}

/// The reporter has done all dumps up to this one.
pub(super) fn done(dumps: u32) {
    DONE.store(dumps, Ordering::Relaxed);
}

/// The reporter has got on.
pub(super) fn progress() {
    PROGRESS.fetch_add(1, Ordering::Relaxed);
}

/// Starts the watchdog.
pub(super) fn start() {
    let path = variable::read("GREENTHREAD_DUMP");
    FILE.get_or_init(|| CString::new(path?.into_encoded_bytes()).ok());
    // Without it, dumps that need no memory are not made.
    let _ = employ("gt-watchdog", live);
}

fn live() {
    let (mut unwinder, mut observer) = (Unwinder::new(), Observer::new());
    let mut frames = Vec::with_capacity(FRAMES);
    let mut seen = 0;
    loop {
        while asked() == seen {
            futex::wait(&ASKED, seen, None);
        }
        seen = asked();
        if !is_done_in_time(seen) {
            write_all(&mut unwinder, &mut observer, &mut frames);
        }
    }
}

fn is_done_in_time(dump: u32) -> bool {
    const LOOK: u64 = 100_000_000;
    let mut progress = PROGRESS.load(Ordering::Relaxed);
    let mut until = clock::now() + PATIENCE;
    // Several requests may have been met by one dump; the numbers wrap.
    let is_done = || DONE.load(Ordering::Relaxed).wrapping_sub(dump) as i32 >= 0;
    while !is_done() {
        if clock::now() >= until {
            return false;
        }
        futex::wait(
            &DONE,
            DONE.load(Ordering::Relaxed),
            Some(clock::now() + LOOK),
        );
        let now = PROGRESS.load(Ordering::Relaxed);
        if now != progress {
            (progress, until) = (now, clock::now() + PATIENCE);
        }
    }
    true
}

/// Writes without a buffer that grows.
struct Out {
    descriptor: i32,
    buffer: [u8; 512],
    length: usize,
}

impl Out {
    fn open() -> Out {
        let file = FILE.get().and_then(Option::as_ref);
        Out {
            descriptor: file.and_then(|path| sys::open_to_append(path)).unwrap_or(2),
            buffer: [0; 512],
            length: 0,
        }
    }

    fn flush(&mut self) {
        let mut rest = &self.buffer[..self.length];
        while let Ok(written) = sys::write(self.descriptor, rest)
            && written != 0
            && written < rest.len()
        {
            rest = &rest[written..];
        }
        self.length = 0;
    }
}

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.length == self.buffer.len() {
                self.flush();
            }
            self.buffer[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        self.flush();
        if self.descriptor != 2 {
            sys::close(self.descriptor);
        }
    }
}

fn write_all(unwinder: &mut Unwinder, observer: &mut Observer, frames: &mut Vec<usize>) {
    let mut out = Out::open();
    let _ = writeln!(
        out,
        "greenthread: a dump without names, since one with names makes no progress (a thread may hold the allocator's lock)"
    );
    let section = ReadSection::begin();
    for thread in all() {
        // Nothing that it writes can fail.
        let _ = write_thread(thread, unwinder, observer, frames, &mut out);
    }
    section.end_without_dropping();
}

fn write_thread(
    thread: Thread,
    unwinder: &mut Unwinder,
    observer: &mut Observer,
    frames: &mut Vec<usize>,
    out: &mut Out,
) -> fmt::Result {
    let identity = thread.identity();
    // SAFETY: it was seen in the read section, and so it stays.
    let identity: Option<&Identity> = unsafe { identity.as_ref() };
    let Some(seen) = thread.look() else {
        return Ok(());
    };
    match thread {
        Thread::Green(_) => write!(out, "\nthread")?,
        Thread::Kernel(kernel) => write!(out, "\nkernel thread (system's {})", kernel.thread())?,
    }
    if let Some(identity) = identity {
        write!(out, " {}", identity.id())?;
        if let Some(name) = identity.name() {
            write!(out, " {name:?}")?;
        }
    }
    write_doing(&seen, out)?;
    if let Some(place) = identity.and_then(Identity::spawned_at) {
        writeln!(out, "  spawned at {place}")?;
    }
    read_stack(&seen, unwinder, observer, frames);
    for &frame in &*frames {
        // The instruction that is meant lies before the address.
        match unwinder.modules().raw(frame.wrapping_sub(1)) {
            Some((module, offset)) => writeln!(out, "    {module}+{offset:#x}")?,
            None => writeln!(out, "    {frame:#x}")?,
        }
    }
    Ok(())
}

fn write_doing(seen: &ThreadSnapshot, out: &mut Out) -> fmt::Result {
    let doing = match seen.doing {
        Doing::New => "new",
        Doing::Ready => "ready",
        Doing::Running(_) => "running, or blocked in the kernel",
        Doing::Parked => "parked",
    };
    write!(out, ": {doing} for {} ms", seen.since)?;
    if let (Some(waiting), Some(facts)) = (seen.waiting, seen.facts()) {
        write!(
            out,
            ", waits for {} {:p}",
            waiting.reason.kind.name, waiting.reason.of
        )?;
        for (name, value) in facts.numbers() {
            write!(out, ", {name} {value}")?;
        }
        if let Some(holder) = facts.holder {
            write!(out, ", held by the thread with the mark {holder:#x}")?;
        }
    }
    writeln!(out, " (its mark: {:#x})", seen.mark)
}

/// Fills `frames`, which has room for all.
fn read_stack(
    seen: &ThreadSnapshot,
    unwinder: &mut Unwinder,
    observer: &mut Observer,
    frames: &mut Vec<usize>,
) {
    frames.clear();
    if let Some(thread) = seen.kernel_thread() {
        let is_green = matches!(seen.thread, Thread::Green(_));
        let _ = frames_of_running(thread, is_green, observer, unwinder, frames);
    } else if let Some((saved, stack)) = seen.saved()
        && let Some(registers) = Registers::of_switch(saved, |at| stack.word(at))
    {
        unwinder.frames(registers, |at| stack.word(at), &mut |frame| {
            frames.push(frame)
        });
        if !seen.holds() {
            frames.clear();
        }
    }
}
