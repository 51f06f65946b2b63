//! How an event is written: words of 64 bits, whose lowest eight bits say what kind of word it is; the others carry a value.
//! And where those events go that happen on no processor: into one queue.
//!
//! | words, in a processor's ring (`ring`) | event |
//! |---|---|
//! | [`Time`](Kind::Time) | the next event happens now, in ticks |
//! | [`Named`](Kind::Named), [`Name`](Kind::Name) … | a thread's number, and its name, seven bytes a word |
//! | [`By`](Kind::By), `Woke` or `Spawned` | a thread has woken or made another one |
//! | [`To`](Kind::To), `HandedOver` | a thread has handed over to another one |
//! | [`Text`](Kind::Text), `Parked` | a thread waits for this |
//! | any other | one word an event |
//!
//! A word that belongs to an event comes before the event's own. Each word says by itself what it is: a
//! reader that has lost some goes on at the next `Time`.
//!
//! The queue has three words for each event: that of the event or of `Named` or `Name`, with the thread's number; the time;
//! and the word that belongs to the event. It serves kernel threads that are not the runtime's, the monitor, and workers
//! that have lost their processors.
//!
//! *Numbers.* A thread is known by a number of 28 bits, in whose upper bit kernel threads differ from others. A green thread,
//! or a thread of kernel-thread mode, has that of its `ThreadId`; another kernel thread takes one at its first event. The
//! first event of a thread in a trace is preceded by its name: a word has no room for one. A trace has a number, too, and
//! each thread keeps the trace's number beside its own ([`numbered`]), so the next trace knows that the thread must be
//! introduced again.
//!
//! Invariant: nothing here allocates, or takes a lock.

use core::cell::Cell;
use core::num::NonZeroU64;
use core::ptr::with_exposed_provenance;

use crate::arch::ticks;
use crate::atomic::{AtomicU32, Ordering::Relaxed};
use crate::engine::inspect::Identity;
use crate::engine::probe::Kernel;
use crate::observe::observer::Queue;
use crate::sys::kernel_thread;

/// What a word says. Those from `Yielded` on are events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// No word: memory that was not written.
    Nothing,
    Time,
    Named,
    Name,
    By,
    To,
    Text,
    /// The reader's own: so many words were lost here.
    Lost,

    // The ends of runs, in the order of `STOPS`.
    Yielded,
    Preempted,
    Parked,
    ParkedUntil,
    HandedOver,
    Ended,
    HandedOff,
    /// The reader's own: the trace was over before the run was.
    RunsOn,

    Woke,
    Spawned,
    Fired,
    Arrived,
    Stole,

    Idle,
    /// The reader's own: a kernel thread waited; a thread had no processor.
    Waited,
    Off,

    Found,
    Given,
    Resumed,
    KernelEnded,
    KernelWaits,
    KernelRuns,
}

/// Why a thread stopped. The page's script (`page.js`) knows these texts.
const STOPS: [&str; 8] = [
    "yields",
    "was preempted",
    "waits",
    "waits, with a deadline",
    "hands over",
    "ends",
    "lost its processor",
    "goes on",
];

impl Kind {
    /// The kind of a word, which may be any number.
    pub(super) fn of(word: u64) -> Kind {
        let kind = word as u8;
        match kind <= Kind::KernelRuns as u8 {
            // SAFETY: the kinds are numbered from 0 to this last one.
            true => unsafe { core::mem::transmute::<u8, Kind>(kind) },
            false => Kind::Nothing,
        }
    }

    /// Why the thread stopped, if this is the end of a run.
    pub(super) fn stopped(self) -> Option<&'static str> {
        let place = (self as usize).checked_sub(Kind::Yielded as usize)?;
        STOPS.get(place).copied()
    }
}

/// The bits of a thread's number.
pub(super) const NUMBER: u32 = (1 << 28) - 1;
/// In the number of a kernel thread that is not the runtime's own.
pub(super) const KERNEL: u32 = 1 << 27;
/// Names are cut to so many bytes.
const LONGEST_NAME: usize = 112;
const BYTES_A_WORD: usize = 7;
/// The longest event, in words, introductions included.
pub(super) const LONGEST: u64 = 2 * (LONGEST_NAME / BYTES_A_WORD + 1) as u64 + 4;

/// A word of this kind. `value` has 56 bits.
#[inline(always)]
pub(super) const fn word(kind: Kind, value: u64) -> u64 {
    value << 8 | kind as u64
}

/// The value of a word.
#[inline(always)]
pub(super) const fn value(word: u64) -> u64 {
    word >> 8
}

/// The words of a thread's introduction: its number, and those of its name.
pub(super) fn introduction(number: u32, name: &str) -> impl Iterator<Item = u64> {
    let bytes = &name.as_bytes()[..name.len().min(LONGEST_NAME)];
    let name = bytes.chunks(BYTES_A_WORD).map(|part| {
        let mut value = [0; 8];
        value[..part.len()].copy_from_slice(part);
        word(Kind::Name, u64::from_le_bytes(value))
    });
    core::iter::once(word(Kind::Named, number.into())).chain(name)
}

/// The bytes of one of a name's words. A name has no zero in it.
pub(super) fn bytes_of(word: u64) -> impl Iterator<Item = u8> {
    let bytes = value(word).to_le_bytes();
    bytes.into_iter().take_while(|&byte| byte != 0)
}

/// Names what a thread waits for, by the address of a text's own address and length.
#[cfg(green)]
pub(super) fn text(text: &'static &'static str) -> u64 {
    let place = core::ptr::from_ref(text).expose_provenance();
    word(Kind::Text, place as u64)
}

/// The text that such a word names; any other word names an empty one.
pub(super) fn text_of(word: u64) -> &'static str {
    match Kind::of(word) {
        // SAFETY: `text` has made the word from the address of a static text.
        Kind::Text => unsafe { *with_exposed_provenance::<&'static str>(value(word) as usize) },
        _ => "",
    }
}

/// The number of the present trace, or of the last one.
static TRACE: AtomicU32 = AtomicU32::new(0);

/// A new trace begins: no thread has been introduced to it.
pub(super) fn begin() {
    TRACE.store(TRACE.load(Relaxed).wrapping_add(1).max(1), Relaxed);
}

/// A thread's number as the thread keeps it: with the number of the present trace above it.
pub(super) fn numbered(number: u32) -> u64 {
    u64::from(TRACE.load(Relaxed)) << 32 | u64::from(number)
}

/// The number in what a thread keeps, if the thread was introduced to the present trace; otherwise 0.
#[inline(always)]
pub(super) fn introduced(numbered: u64) -> u32 {
    match (numbered >> 32) as u32 == TRACE.load(Relaxed) {
        true => numbered as u32,
        false => 0,
    }
}

/// The number of a thread that has an identity.
pub(super) fn number(id: NonZeroU64) -> u32 {
    id.get() as u32 & (KERNEL - 1)
}

/// An event in the queue.
pub(super) type Event = [u64; 3];

pub(super) static QUEUE: Queue<{ 1 << 15 }, 3> = Queue::new();

/// Puts an event that happens now, with the word that belongs to it or 0.
pub(super) fn put(kind: Kind, number: u32, more: u64) {
    QUEUE.put([word(kind, number.into()), ticks(), more]);
}

/// Introduces a thread in the queue.
pub(super) fn introduce(number: u32, name: &str) {
    for part in introduction(number, name) {
        put(Kind::of(part), number, part);
    }
}

thread_local! {
    /// The number of this kernel thread, with the trace's. It has no destructor: the destructors of other thread-locals may
    /// wait.
    static NUMBER_HERE: Cell<u64> = const { Cell::new(0) };
}

/// The number of the calling kernel thread, which is introduced if the trace does not know it yet.
pub(super) fn own_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let here = NUMBER_HERE.get();
    if introduced(here) != 0 {
        return here as u32;
    }
    let number = match here as u32 {
        0 => KERNEL | (NEXT.fetch_add(1, Relaxed) & (KERNEL - 1)),
        number => number,
    };
    let mut buffer = [0; kernel_thread::NAME];
    be(number, kernel_thread::own_name(&mut buffer))
}

/// The calling kernel thread is known by this number from now on.
fn be(number: u32, name: &str) -> u32 {
    NUMBER_HERE.set(numbered(number));
    introduce(number, name);
    number
}

/// The calling kernel thread does `what`.
pub(in crate::observe) fn kernel(identity: Option<&Identity>, what: Kernel) {
    let number = identity.map_or(0, |identity| number(identity.id()));
    let name = identity.and_then(Identity::name).unwrap_or("");
    match what {
        Kernel::Spawned => {
            introduce(number, name);
            let by = word(Kind::By, own_number().into());
            put(Kind::Spawned, number, by);
        }
        Kernel::Began => put(Kind::KernelRuns, be(number, name), 0),
        Kernel::Ended => put(Kind::KernelEnded, own_number(), 0),
        Kernel::Waits => put(Kind::KernelWaits, own_number(), 0),
        Kernel::GoesOn => put(Kind::KernelRuns, own_number(), 0),
    }
}
