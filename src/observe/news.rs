//! News: what happens to threads, for an ordinary thread that tells it to others (`observe::publish_events`). It has a
//! queue of its own, which does not depend on a trace.
//!
//! An item has no address of anything that may be gone: a name is copied as far as there is room, and the place of a
//! spawn is static.

use core::panic::Location;

use super::ON;
use super::queue::Queue;
use crate::engine::atomic::Ordering::Relaxed;
use crate::engine::green::Identity;

/// The bit of [`ON`](super::ON): news are wanted.
pub(crate) const NEWS: u32 = 4;
/// The words of a name that are kept.
const NAME: usize = 4;

static QUEUE: Queue<{ 1 << 13 }, 9> = Queue::new();

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Happened {
    Spawned = 1,
    Ended,
    /// Its time slice was over, and it was made to give way.
    Preempted,
    /// It has lost its processor in a system call, whose number is the figure.
    Blocked,
    /// All threads wait for each other.
    Deadlock,
}

/// One item.
pub(crate) struct Item {
    pub(crate) what: Happened,
    /// The number of the thread; 0 if there is none.
    pub(crate) thread: u64,
    pub(crate) name: String,
    pub(crate) spawned_at: Option<&'static Location<'static>>,
    pub(crate) figure: u64,
}

/// From now on news are wanted.
pub(crate) fn want() {
    ON.fetch_or(NEWS, Relaxed);
}

pub(super) fn is_wanted(on: u32) -> bool {
    on & NEWS != 0
}

/// Something has happened to the thread with this identity.
#[cold]
pub(super) fn of(what: Happened, identity: &Identity) {
    let name = identity.name().unwrap_or("");
    put(what, identity.id().get(), name, identity.spawned_at(), 0);
}

/// Something has happened to all, or to a thread of which only the place is known.
#[cold]
pub(crate) fn put(
    what: Happened,
    thread: u64,
    name: &str,
    spawned_at: Option<&'static Location<'static>>,
    figure: u64,
) {
    if !is_wanted(ON.load(Relaxed)) {
        return;
    }
    let place = spawned_at.map_or(0, |at| core::ptr::from_ref(at).expose_provenance());
    let mut event = [what as u64, thread, place as u64, figure, 0, 0, 0, 0, 0];
    let mut kept = name.len().min(NAME * 8);
    while !name.is_char_boundary(kept) {
        kept -= 1;
    }
    event[4] = kept as u64;
    for (word, part) in event[5..].iter_mut().zip(name.as_bytes()[..kept].chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        *word = u64::from_le_bytes(bytes);
    }
    QUEUE.put(event);
}

/// Takes the oldest item. One thread at a time takes.
pub(crate) fn take() -> Option<Item> {
    let event = QUEUE.take()?;
    let what = match event[0] {
        1 => Happened::Spawned,
        2 => Happened::Ended,
        3 => Happened::Preempted,
        4 => Happened::Blocked,
        _ => Happened::Deadlock,
    };
    let name: Vec<u8> = event[5..]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let location = core::ptr::with_exposed_provenance::<Location<'static>>(event[2] as usize);
    Some(Item {
        what,
        thread: event[1],
        name: String::from_utf8_lossy(&name[..event[4] as usize]).into_owned(),
        // SAFETY: `put` has written it: null, or a static location.
        spawned_at: unsafe { location.as_ref() },
        figure: event[3],
    })
}

/// How many items were lost since this was last asked.
pub(crate) fn take_lost() -> u64 {
    QUEUE.take_lost()
}
