//! Descriptors that are not ours: threads wait until one may be ready.
//!
//! Code that knows nothing of green threads owns them, and may close one at any time, unseen, and open another
//! file under its number. So nothing that was learnt about a descriptor is relied on. Each wait
//! registers it anew, for one event, in an epoll instance of their own (nested in the driver's,
//! so that no registration of a [`Source`](super::Source) is touched). If it is ready already, the event comes at
//! once.
//!
//! There is a record for each *number*, with the threads that wait for it:
//!
//! | list | a thread in it | an event wakes |
//! |---|---|---|
//! | `readers`, `writers` | will make a call on the descriptor, and take something | the first |
//! | `pollers` | looks at the descriptor, and takes nothing (`poll`, `select`) | all that wait for such an event |
//!
//! Invariants:
//! 1. *No event is lost.* While threads are in a record's lists, its descriptor is armed for their
//!    events, or an event of it was collected and will be told, or a reader or a writer was woken
//!    by one and will pass it on: when that thread's call is over, or waits again, the descriptor is armed for
//!    those that are left ([`Call`]).
//! 2. An event may be another file's that had the number before. A woken thread tries again.
//! 3. A descriptor that is closed stays open for the calls that have waited for it and are not over, as it
//!    does for threads that are blocked in the kernel: they go on with a duplicate ([`closing`]). So a record
//!    lists these *calls*, too: one whose thread was woken and has not run yet is in no other list.
//! 4. A record's lists are under its lock, with preemption off. A thread is in the lists of the record whose
//!    number is in its `fd`; that changes under both locks.
//!
//! Orderings: the locks order all, but for `is_waited_for`: a thread stores it before it arms a descriptor, and
//! who closes that loads it afterwards. Both calls take the kernel's reference to the file, which orders them.

mod call;
mod closing;

use core::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

pub(crate) use self::call::Call;
use self::call::Seat;
use self::closing::{NONE, do_chore};
pub(crate) use self::closing::{closing, look_again, watched_from};
use super::epoll::INSTANCE;
use crate::engine::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};
use crate::engine::green::current;
use crate::engine::green::fifo::Fifo;
use crate::engine::sched::events::{BATCH, events};
use crate::engine::sched::handed;
use crate::engine::sched::hooked::count_parked;
use crate::engine::sys::epoll::{Epoll, Event};
use crate::engine::sys::lock::Lock;
use crate::engine::sys::perturb;
use crate::engine::sys::table::Table;
use crate::engine::wait::claim::{Claimed, Ended, Node, Wait};
use crate::engine::wait::list::List;
use crate::engine::wait::{WaitKind, WaitReason, Waiter, reason};

/// Room for so many numbers: 2^24.
const SEGMENTS: usize = 24;

static WATCHED: Table<Watched, SEGMENTS> = Table::with_segments();
static NESTED: OnceLock<Epoll> = OnceLock::new();
/// The process whose descriptors these are. A child of `vfork` shares the memory and not the descriptors.
static OWNER: OnceLock<u32> = OnceLock::new();

const READ: i32 = libc::EPOLLIN;
const WRITE: i32 = libc::EPOLLOUT;
/// They come unasked, and concern every thread.
const ALWAYS: i32 = libc::EPOLLERR | libc::EPOLLHUP;

/// The record of a number.
struct Watched {
    lists: Lock<Lists>,
    /// Whether a thread or a call is in the lists: a hint for threads without the lock.
    is_waited_for: AtomicBool,
    /// A signal handler has closed the descriptor, or has shut it down: its threads are to look again.
    is_to_look_again: AtomicBool,
    /// The duplicate that the handler has made before, for the calls that have waited; or [`NONE`].
    kept: AtomicI32,
    /// How many threads go on with this number, which is a duplicate of ours.
    users: AtomicU32,
}

struct Lists {
    readers: List,
    writers: List,
    pollers: List,
    /// The seats of calls. Nobody claims these nodes.
    calls: List,
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Read,
    Write,
    /// Any of these events of epoll.
    Poll(i32),
}

/// A descriptor, and what a thread waits for there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interest {
    pub(crate) fd: RawFd,
    pub(crate) purpose: Purpose,
}

/// A thread in a list. It lies on the thread's stack.
#[repr(C)] // the node first: a pointer to it is one to this
struct Waiting {
    node: Node,
    purpose: Purpose,
    fd: AtomicI32,
}

impl Lists {
    fn of(&mut self, purpose: Purpose) -> &mut List {
        match purpose {
            Purpose::Read => &mut self.readers,
            Purpose::Write => &mut self.writers,
            Purpose::Poll(_) => &mut self.pollers,
        }
    }

    fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.writers.is_empty() && self.pollers.is_empty()
    }

    /// The events that the threads wait for; those of readers and writers without `except`.
    fn events(&self, except: i32) -> i32 {
        let polled_for = Cell::new(0);
        let _none = self.pollers.first_where(|node| {
            polled_for.set(polled_for.get() | polled(node));
            false
        });
        let mut events = polled_for.get();
        if !self.readers.is_empty() {
            events |= READ & !except;
        }
        if !self.writers.is_empty() {
            events |= WRITE & !except;
        }
        events
    }

    /// Takes any thread out.
    fn pop(&mut self) -> Option<Claimed> {
        let Lists {
            readers,
            writers,
            pollers,
            ..
        } = self;
        [readers, writers, pollers].into_iter().find_map(List::pop)
    }
}

/// The events that a poller waits for.
fn polled(node: &Node) -> i32 {
    node.tag.get() as i32
}

impl Watched {
    fn new() -> Watched {
        Watched {
            lists: Lock::new(Lists {
                readers: List::new(),
                writers: List::new(),
                pollers: List::new(),
                calls: List::new(),
            }),
            is_waited_for: AtomicBool::new(false),
            is_to_look_again: AtomicBool::new(false),
            kept: AtomicI32::new(NONE),
            users: AtomicU32::new(0),
        }
    }

    /// The record of `fd`. Allocates if no number as high was watched before.
    fn of(fd: RawFd) -> io::Result<&'static Watched> {
        let index = usize::try_from(fd).map_err(|_| refused(libc::EBADF))?;
        if let Some(watched) = WATCHED.find(index) {
            return Ok(watched);
        }
        // Numbers come one after the other: this is not done again soon.
        WATCHED.grow_to((index + 1).next_power_of_two(), |_| Watched::new());
        WATCHED.find(index).ok_or_else(|| refused(libc::EMFILE))
    }

    /// Queues a thread, which makes the call with this seat, and arms the descriptor.
    ///
    /// # Safety
    /// The thread is in no list, and lives until it is out of this one.
    unsafe fn queue(
        &self,
        nested: &Epoll,
        waiting: &Waiting,
        seat: Option<&Seat>,
        again: bool,
    ) -> io::Result<()> {
        let _off = current::preemption_off();
        let mut lists = self.lists.lock();
        let fd = waiting.fd.load(Relaxed);
        if seat.is_some_and(|seat| seat.fd.load(Relaxed) != fd) {
            return Err(refused(libc::EBADF)); // it was moved meanwhile
        }
        let list = lists.of(waiting.purpose);
        // SAFETY: the caller's promise.
        unsafe {
            match again {
                true => list.push_front(&waiting.node),
                false => list.push_back(&waiting.node),
            }
        }
        // Before it is armed: who closes it after that finds the thread, and it cannot be armed later.
        self.note(&lists);
        let armed = arm(nested, fd, lists.events(0));
        if armed.is_err() {
            // SAFETY: it was queued above.
            unsafe { lists.of(waiting.purpose).remove(&waiting.node) };
            self.note(&lists);
        }
        armed
    }

    /// Notes whether a thread or a call is in the lists, which have changed.
    fn note(&self, lists: &Lists) {
        let is_waited_for = !lists.is_empty() || !lists.calls.is_empty();
        self.is_waited_for.store(is_waited_for, Relaxed);
    }
}

fn refused(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// Asks for one event of `events`.
fn arm(nested: &Epoll, fd: RawFd, events: i32) -> io::Result<()> {
    perturb::point("watch: arming");
    nested.arm(fd, events, fd as u64)
}

/// The epoll instance of these descriptors.
fn nested() -> io::Result<&'static Epoll> {
    if let Some(nested) = NESTED.get() {
        return Ok(nested);
    }
    let new = Epoll::without_bell()?;
    INSTANCE.add_watched(new.as_raw_fd())?;
    OWNER.get_or_init(std::process::id);
    handed::register_chore(do_chore);
    // If another thread has made one too, this one is closed, and so no longer registered.
    let _ = NESTED.set(new);
    Ok(NESTED.wait())
}

/// For reports: a `poll`, or the like.
static DESCRIPTORS: WaitKind = WaitKind::outside("descriptors", reason::nothing);

/// Blocks the calling thread, a green one, until something may have come that it waits for, or until
/// `deadline`: then the answer is false. An error: the descriptors cannot be watched, and the caller is
/// to make the blocking call.
pub(crate) fn wait_for_any(interests: &[Interest], deadline: Option<u64>) -> io::Result<bool> {
    const FEW: usize = 4;
    let wait = Wait::new(WaitReason::new(&DESCRIPTORS, interests.as_ptr()));
    let new = |interest: &Interest| Waiting::new(&wait, *interest);
    match interests.len() {
        ..=FEW => {
            let places: [Option<Waiting>; FEW] =
                core::array::from_fn(|i| interests.get(i).map(new));
            wait_in(&wait, &places, deadline, None, false)
        }
        _ => {
            let places: Vec<Option<Waiting>> = interests.iter().map(|i| Some(new(i))).collect();
            wait_in(&wait, &places, deadline, None, false)
        }
    }
    .map(|ended| ended == Awoken::Ready)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Awoken {
    Ready,
    TimedOut,
}

impl Waiting {
    fn new(wait: &Wait, interest: Interest) -> Waiting {
        let node = Node::new(wait);
        if let Purpose::Poll(events) = interest.purpose {
            node.tag.set(events as usize);
        }
        Waiting {
            node,
            purpose: interest.purpose,
            fd: AtomicI32::new(interest.fd),
        }
    }

    /// Takes the thread out of its list, if it is in one still.
    fn leave(&self) {
        loop {
            let fd = self.fd.load(Relaxed);
            let Ok(watched) = Watched::of(fd) else { return };
            let _off = current::preemption_off();
            let mut lists = watched.lists.lock();
            // Otherwise it was moved meanwhile.
            if self.fd.load(Relaxed) == fd {
                // SAFETY: it is in this list, or in none.
                unsafe { lists.of(self.purpose).remove(&self.node) };
                return watched.note(&lists);
            }
        }
    }
}

/// Waits at all `places`, which lie where they are until this returns.
fn wait_in(
    wait: &Wait,
    places: &[Option<Waiting>],
    deadline: Option<u64>,
    seat: Option<&Seat>,
    again: bool,
) -> io::Result<Awoken> {
    let nested = nested()?;
    for place in places.iter().flatten() {
        Watched::of(place.fd.load(Relaxed))?; // which may allocate
    }
    events().watch(&INSTANCE);
    let mut refusal = None;
    for place in places.iter().flatten() {
        let Ok(watched) = Watched::of(place.fd.load(Relaxed)) else {
            continue; // it was found above
        };
        // SAFETY: each place is taken out below, before this returns.
        match unsafe { watched.queue(nested, place, seat, again) } {
            Ok(()) => {}
            // A file that is always ready; or events 0. It was looked at, and its events did not come.
            Err(error) if is_poll(place) && error.raw_os_error() == Some(libc::EPERM) => {}
            Err(error) => {
                refusal = Some(error);
                break;
            }
        }
    }
    perturb::point("watch: queued");
    if refusal.is_none() && !again {
        count_parked(); // a call once, however often it waits
    }
    // If a waker has the claim, its wake-up is on its way.
    let ended = match refusal.is_some() && wait.give_up() {
        true => Awoken::TimedOut,
        false => match wait.wait(deadline.filter(|_| refusal.is_none())) {
            Ended::Taken(_) => Awoken::Ready,
            Ended::TimedOut => Awoken::TimedOut,
        },
    };
    places.iter().flatten().for_each(Waiting::leave);
    events().forget();
    match refusal {
        Some(error) if ended == Awoken::TimedOut => Err(error),
        _ => Ok(ended),
    }
}

fn is_poll(waiting: &Waiting) -> bool {
    matches!(waiting.purpose, Purpose::Poll(_))
}

fn make_ready(mut ready: Fifo) {
    while let Some(green) = ready.pop() {
        crate::engine::sched::ready(green);
    }
}

/// Collects events of these descriptors; their threads go into `ready`.
pub(crate) fn collect(ready: &mut Fifo) {
    let Some(nested) = NESTED.get() else { return };
    let mut places = [Event { events: 0, u64: 0 }; BATCH];
    for event in nested.wait(&mut places, Some(0)) {
        let fd = event.u64;
        if let Some(watched) = WATCHED.find(fd as usize) {
            watched.tell(fd as RawFd, event.events as i32, ready);
        }
    }
}

impl Watched {
    /// Wakes the threads that `events` concern. Preemption is off.
    fn tell(&self, fd: RawFd, events: i32, ready: &mut Fifo) {
        perturb::point("watch: telling");
        let mut lists = self.lists.lock();
        let concerns = |wanted: i32| events & (wanted | ALWAYS) != 0;
        while let Some(claimed) = lists.pollers.pop_where(|node| concerns(polled(node))) {
            wake(claimed, ready);
        }
        let mut woken = 0;
        for (list, purpose) in [(Purpose::Read, READ), (Purpose::Write, WRITE)] {
            if concerns(purpose)
                && let Some(claimed) = lists.of(list).pop()
            {
                wake(claimed, ready);
                woken |= purpose;
            }
        }
        self.arm_for_others(fd, &mut lists, woken, ready);
        self.note(&lists);
    }

    /// Arms the descriptor for the threads in the lists, but for readers and writers not for `except`: a
    /// thread that was woken for that will do so. If the descriptor is gone, wakes them: they will see
    /// it.
    fn arm_for_others(&self, fd: RawFd, lists: &mut Lists, except: i32, ready: &mut Fifo) {
        if lists.is_empty() {
            return;
        }
        let wanted = lists.events(except);
        if wanted == 0 && lists.pollers.is_empty() {
            return;
        }
        let Some(nested) = NESTED.get() else { return };
        if arm(nested, fd, wanted).is_err() {
            while let Some(claimed) = lists.pop() {
                wake(claimed, ready);
            }
        }
    }
}

fn wake(claimed: Claimed, ready: &mut Fifo) {
    // SAFETY: a claimed wait is alive until it is notified.
    if let Some(green) = unsafe { Waiter::notify_at(claimed.into_waiter()) } {
        ready.push(green);
    }
}
