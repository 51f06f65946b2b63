//! Descriptors that are not ours: threads wait until one may be ready.
//!
//! Code that knows nothing of green threads owns them, and may close one at any time, unseen, and open another
//! file under its number. So nothing that was learnt about a descriptor is relied on. Each wait
//! registers it anew, for one event, in an epoll instance of their own (nested in the driver's,
//! so that no registration of a [`Source`](super::Source) is touched). If it is ready already, the event comes at
//! once.
//!
//! There is a record for each *number*, with two lists:
//!
//! | list | a thread in it | an event wakes |
//! |---|---|---|
//! | `waiting` | a *taker* will make a call on the descriptor, and take something | the first that reads, the first that writes |
//! | | a *poller* looks at the descriptor, and takes nothing (`poll`, `select`) | all that wait for such an event |
//! | `calls` | makes a call that takes something, has waited, and is not done | nobody |
//!
//! A call that has waited stays in `calls` until it ends, also while its thread runs or is about to run. So the one who
//! closes the descriptor finds the call, and gives it a duplicate. The call looks up its number before each try
//! ([`Call::fd`]). When a descriptor is closed, or another file takes its number:
//!
//! | when | who | what it does |
//! |---|---|---|
//! | before it is closed | calls that have waited | go on with a duplicate ([`closing`]) |
//! | after it was closed | all others | look again ([`look_again`]) |
//!
//! The second step is for threads that poll the descriptor, for those that have come between the steps, and for all
//! if there is no descriptor left for a duplicate.
//!
//! A signal handler may have interrupted the holder of a record's lock. It makes the duplicate, and keeps it in the
//! record. Each call *settles* that before it looks at its number: the calls that have waited get the duplicate. The
//! second step is the monitor's (`sched::signals`).
//!
//! Invariants:
//! 1. *No event is lost.* While threads are in a record's lists, its descriptor is armed for their
//!    events, or an event of it was collected and will be told, or a taker was woken by one and will pass it on: when
//!    that thread's call is over, or waits again, the descriptor is armed for those that are left.
//! 2. An event may be another file's that had the number before. A woken thread tries again.
//! 3. A descriptor that is closed stays open for the calls that have waited for it and are not over, as it
//!    does for threads that are blocked in the kernel: they go on with a duplicate. The last call that was moved to
//!    a duplicate closes it.
//! 4. A record's lists are under its lock, with preemption off. A call is in the lists of the record whose
//!    number it has; number and `moved` change under the locks of both records, the old number's and the new
//!    one's.
//!
//! Orderings: the locks order all, but for `is_waited_for`: a thread stores it before it arms a descriptor, and
//! who closes that loads it afterwards. Both calls take the kernel's reference to the file, which orders them.

use core::{cell::Cell, marker::PhantomPinned, pin::Pin, ptr};
use std::os::fd::{AsRawFd, RawFd};
use std::{io, sync::OnceLock};

use super::epoll::{INSTANCE, making_ready};
use crate::engine::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::engine::atomic::{AtomicBool, AtomicI32};
use crate::engine::sched::events::{self, BATCH};
use crate::engine::sched::{Fifo, current, current::count_parked, signals};
use crate::engine::sys::epoll::{Epoll, Event};
use crate::engine::sys::shared::{Lock, Table};
use crate::engine::sys::{self, perturb};
use crate::engine::wait::queue::{Ended, List, Node, Wait};
use crate::engine::wait::{Locator, WaitKind, WaitReason};

/// Room for so many numbers: 2^24.
const SEGMENTS: usize = 24;

static WATCHED: Table<Watched, SEGMENTS> = Table::new();
static NESTED: OnceLock<Epoll> = OnceLock::new();
/// The process whose descriptors these are. A child of `vfork` shares the memory and not the descriptors.
static OWNER: OnceLock<u32> = OnceLock::new();

/// They come unasked, and concern every thread.
const ALWAYS: i32 = libc::EPOLLERR | libc::EPOLLHUP;

/// The first number that a duplicate may get: a program may want the standard ones again.
const ABOVE_STANDARD: RawFd = 3;
/// No descriptor.
const NONE: RawFd = -1;

/// The record of a number.
struct Watched {
    fd: RawFd,
    lists: Lock<Lists>,
    /// Whether a thread or a call is in the lists: a hint for threads without the lock.
    is_waited_for: AtomicBool,
    /// A signal handler has closed the descriptor, or has shut it down: its threads are to look again.
    is_to_look_again: AtomicBool,
    /// The duplicate that the handler has made before, for the calls that have waited; or [`NONE`].
    kept: AtomicI32,
}

#[derive(Default)]
struct Lists {
    /// The tag of a node is the events that its thread waits for, and [`TAKES`].
    waiting: List,
    /// Nobody claims these nodes.
    calls: List,
}

/// In a tag: the thread is a taker, which waits for one of [`EVENTS`].
const TAKES: usize = 1 << 32;
const EVENTS: [i32; 2] = [libc::EPOLLIN, libc::EPOLLOUT];

/// The event that a call waits for, as `poll(2)` and epoll name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// There is something to read, or a connection to accept.
    Read = libc::EPOLLIN as isize,
    /// There is space to write, or a connect has ended.
    Write = libc::EPOLLOUT as isize,
}

/// A descriptor, and the events of epoll that a thread waits for there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interest {
    pub(crate) fd: RawFd,
    pub(crate) events: i32,
}

/// A call on a descriptor, which may have to wait. It takes something if the descriptor is ready, so
/// an event wakes one such call, and that passes the rest on when it ends.
#[repr(C)] // the node first: a pointer to it is one to this
pub(crate) struct Call {
    /// In `calls`.
    node: Node,
    /// In `waiting`.
    waiting: Node,
    fd: AtomicI32,
    /// `fd` is a duplicate of ours.
    moved: AtomicBool,
    /// It is in `calls`.
    has_waited: Cell<bool>,
    kind: &'static WaitKind,
    /// The lists have the nodes' addresses.
    _pinned: PhantomPinned,
}

/// For reports: a `poll`, or the like; a call.
static DESCRIPTORS: WaitKind = WaitKind::outside("descriptors").fails();
pub(crate) static DESCRIPTOR: WaitKind = WaitKind::outside("descriptor").with(FD).fails();
/// The same for a call that frames do not end.
pub(crate) static UNENDED: WaitKind = WaitKind::outside("descriptor").with(FD);
/// In `epoll_wait`.
pub(crate) static COLLECTED: WaitKind = WaitKind::outside("descriptor").with(FD).returns();
const FD: Locator = Locator::Descriptor { at: 0 };

/// The events that a node waits for.
fn wanted(node: &Node) -> i32 {
    node.tag.get() as i32
}

fn takes(node: &Node) -> bool {
    node.tag.get() & TAKES != 0
}

impl Lists {
    /// The events that the threads wait for; those of takers without `except`.
    fn events(&self, except: i32) -> i32 {
        let events = self.waiting.iter().map(|node| match takes(node) {
            true => wanted(node) & !except,
            false => wanted(node),
        });
        events.fold(0, |all, events| all | events)
    }

    /// Takes all threads out; they go into `ready`.
    fn wake_all(&mut self, ready: &mut Fifo) {
        while let Some(claimed) = self.waiting.pop() {
            claimed.notify(ready);
        }
    }
}

impl Watched {
    fn new(index: usize) -> Watched {
        Watched {
            fd: index as RawFd,
            lists: Lock::default(),
            is_waited_for: AtomicBool::new(false),
            is_to_look_again: AtomicBool::new(false),
            kept: AtomicI32::new(NONE),
        }
    }

    /// The record of `fd`. Allocates if no number as high was watched before.
    fn of(fd: RawFd) -> io::Result<&'static Watched> {
        let index = usize::try_from(fd).map_err(|_| refused(libc::EBADF))?;
        if let Some(watched) = WATCHED.find(index) {
            return Ok(watched);
        }
        // The kernel gives out small numbers, one after the other, so the table seldom grows.
        WATCHED.grow_to((index + 1).next_power_of_two(), Watched::new);
        WATCHED.find(index).ok_or_else(|| refused(libc::EMFILE))
    }

    /// Changes the lists. Threads that `change` puts into its list are ready afterwards.
    fn change<T>(&self, change: impl FnOnce(&mut Lists, &mut Fifo) -> T) -> T {
        making_ready(|ready| {
            let mut lists = self.lists.lock();
            let answer = change(&mut lists, ready);
            self.note(&lists);
            answer
        })
    }

    /// Notes whether a thread or a call is in the lists, which have changed.
    fn note(&self, lists: &Lists) {
        let is_waited_for = !lists.waiting.is_empty() || !lists.calls.is_empty();
        self.is_waited_for.store(is_waited_for, Relaxed);
    }

    /// Puts a thread into the list, in front if it has been there before, and arms the descriptor.
    ///
    /// # Safety
    /// The node is in no list, and lives until it is out of this one.
    unsafe fn queue(&self, lists: &mut Lists, node: &Node, again: bool) -> io::Result<()> {
        // SAFETY: the node lives for as long as it is in the list, as the caller promises here too.
        unsafe {
            match again {
                true => lists.waiting.push_front(node),
                false => lists.waiting.push_back(node),
            }
        }
        // The flag is set before the descriptor is armed. A thread that closes the descriptor after that finds this thread in
        // the list; one that closed it before makes the arming fail.
        self.note(lists);
        let armed = self.arm(lists.events(0));
        if armed.is_err() {
            // SAFETY: it was queued above.
            unsafe { lists.waiting.remove(node) };
        }
        armed
    }

    /// Asks for one event of `events`.
    fn arm(&self, events: i32) -> io::Result<()> {
        perturb::point("watch: arming");
        // The nested instance exists before any thread is in a list.
        let nested = NESTED.get().ok_or_else(|| refused(libc::EBADF))?;
        nested.arm(self.fd, events, self.fd as u64)
    }

    /// Arms the descriptor for the threads in the list, but for takers not for `except`: a thread that was woken for that
    /// will do so. If the descriptor is gone, wakes them: they will see it.
    fn arm_for_others(&self, lists: &mut Lists, except: i32, ready: &mut Fifo) {
        let events = lists.events(except);
        // A poller may wait for nothing but errors and hang-ups, which the kernel reports unasked.
        let is_wanted = events != 0 || lists.waiting.iter().any(|node| !takes(node));
        if is_wanted && self.arm(events).is_err() {
            lists.wake_all(ready);
        }
    }

    /// Wakes the threads that `events` concern. Preemption is off.
    fn tell(&self, events: i32, ready: &mut Fifo) {
        perturb::point("watch: telling");
        let mut lists = self.lists.lock();
        let concerns = |wanted: i32| events & (wanted | ALWAYS) != 0;
        let is_told = |node: &Node| !takes(node) && concerns(wanted(node));
        while let Some(claimed) = lists.waiting.pop_where(is_told) {
            claimed.notify(ready);
        }
        let mut woken = 0;
        for event in EVENTS.into_iter().filter(|&event| concerns(event)) {
            let is_first = |node: &Node| takes(node) && wanted(node) == event;
            if let Some(claimed) = lists.waiting.pop_where(is_first) {
                claimed.notify(ready);
                woken |= event;
            }
        }
        self.arm_for_others(&mut lists, woken, ready);
        self.note(&lists);
    }
}

fn refused(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// The epoll instance of these descriptors.
fn nested() -> io::Result<&'static Epoll> {
    if let Some(nested) = NESTED.get() {
        return Ok(nested);
    }
    let new = Epoll::without_bell()?;
    INSTANCE.add_watched(new.as_raw_fd())?;
    OWNER.get_or_init(std::process::id);
    signals::register_chore(do_chore);
    // If another thread has made an instance too, this one is dropped, which closes and so unregisters it.
    let _ = NESTED.set(new);
    Ok(NESTED.wait())
}

/// Collects events of these descriptors; their threads go into `ready`.
pub(crate) fn collect(ready: &mut Fifo) {
    let Some(nested) = NESTED.get() else { return };
    let mut places = [Event { events: 0, u64: 0 }; BATCH];
    for event in nested.wait(&mut places, Some(0)) {
        let fd = event.u64;
        if let Some(watched) = WATCHED.find(fd as usize) {
            watched.tell(event.events as i32, ready);
        }
    }
}

/// Blocks the calling thread, a green one, until something may have come that it waits for, or until
/// `deadline`: then the answer is false. An error: the descriptors cannot be watched, and the caller is
/// to make the blocking call.
pub(crate) fn wait_for_any(interests: &[Interest], deadline: Option<u64>) -> io::Result<bool> {
    let wait = Wait::new(WaitReason::new(&DESCRIPTORS, interests.as_ptr()));
    let of = |interest: &Interest| {
        let node = Node::new(&wait);
        node.tag.set(interest.events as usize);
        node
    };
    let nodes: Vec<Node> = interests.iter().map(of).collect();
    let places = || interests.iter().zip(&nodes);
    let queue = || {
        for (interest, node) in places() {
            let watched = Watched::of(interest.fd)?;
            // SAFETY: it is in no list, and taken out below, before this returns.
            let armed = watched.change(|lists, _| unsafe { watched.queue(lists, node, false) });
            match armed {
                // The descriptor is of a file that is always ready, or no events are wanted. The caller has looked at it
                // already, and its events had not come.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
                armed => armed?,
            }
        }
        count_parked();
        Ok(())
    };
    wait_in(&wait, deadline, queue, || {
        for (interest, node) in places() {
            if let Ok(watched) = Watched::of(interest.fd) {
                // SAFETY: it is in this list, or in none.
                watched.change(|lists, _| unsafe { lists.waiting.remove(node) });
            }
        }
    })
}

/// Blocks the calling thread, which `queue` puts into lists, and `leave` takes out of those in which it is still.
fn wait_in(
    wait: &Wait,
    deadline: Option<u64>,
    queue: impl FnOnce() -> io::Result<()>,
    leave: impl FnOnce(),
) -> io::Result<bool> {
    nested()?;
    events::add_source(&INSTANCE);
    let queued = queue();
    perturb::point("watch: queued");
    let deadline = deadline.filter(|_| queued.is_ok());
    // If a waker has the claim, the waker is about to wake this thread, and the wait below returns.
    let gives_up = queued.is_err() && wait.give_up();
    let has_come = !gives_up && matches!(wait.wait(deadline), Ended::Taken(_));
    leave();
    events::remove_source();
    match queued {
        Err(error) if !has_come => Err(error),
        _ => Ok(has_come),
    }
}

impl Call {
    /// A call on the descriptor that the program names `fd`.
    pub(crate) fn new(fd: RawFd, kind: &'static WaitKind) -> Call {
        Call {
            kind,
            node: Node::default(),
            waiting: Node::default(),
            fd: AtomicI32::new(fd),
            moved: AtomicBool::new(false),
            has_waited: Cell::new(false),
            _pinned: PhantomPinned,
        }
    }

    /// The descriptor's number: another one if it was closed since the call has waited.
    pub(crate) fn fd(&self) -> RawFd {
        match self.has_waited.get() {
            true => self.settled(),
            false => self.fd.load(Relaxed),
        }
    }

    /// As [`wait_for_any`], for this descriptor.
    pub(crate) fn wait(
        self: Pin<&Self>,
        direction: Direction,
        deadline: Option<u64>,
    ) -> io::Result<bool> {
        let this = self.get_ref();
        let again = this.has_waited.get();
        if !again {
            // SAFETY: the node is in no list. The call is pinned, and takes it out when it is dropped.
            this.change(|_, lists, _| unsafe { lists.calls.push_back(this.node()) })?;
            this.has_waited.set(true);
        }
        let wait = Wait::new(WaitReason::new(this.kind, &raw const this.fd));
        this.waiting.wait.set(&wait);
        this.waiting.tag.set(direction as usize | TAKES);
        let queue = || {
            // SAFETY: it is in no list, and taken out below, before this returns.
            this.change(|watched, lists, _| unsafe {
                watched.queue(lists, &this.waiting, again)
            })??;
            if !again {
                count_parked(); // a call once, however often it waits
            }
            Ok(())
        };
        wait_in(&wait, deadline, queue, || {
            // SAFETY: it is in this list, or in none. There is a record since it is in `calls`.
            let _ = this.change(|_, lists, _| unsafe { lists.waiting.remove(&this.waiting) });
        })
    }

    /// The node in `calls`, as a pointer to all of this.
    fn node(&self) -> *const Node {
        ptr::from_ref(self).cast()
    }

    /// The call of a node in `calls`.
    fn of(node: &Node) -> &Call {
        // SAFETY: `wait` alone puts nodes there, each the first part of a call that takes it out before it is gone.
        unsafe { &*ptr::from_ref(node).cast() }
    }

    /// Its number, once the calls that have waited for that have what a signal handler has kept for them.
    fn settled(&self) -> RawFd {
        if let Ok(watched) = Watched::of(self.fd.load(Relaxed)) {
            watched.settle();
        }
        self.fd.load(Relaxed)
    }

    /// Changes the lists that it is in, or is to be in. Threads that `change` puts into its list are ready
    /// afterwards.
    fn change<T>(
        &self,
        change: impl FnOnce(&'static Watched, &mut Lists, &mut Fifo) -> T,
    ) -> io::Result<T> {
        let mut change = Some(change);
        loop {
            let watched = Watched::of(self.settled())?;
            let answer = watched.change(|lists, ready| {
                // If the numbers differ, another thread has moved the call meanwhile.
                let is_here = self.fd.load(Relaxed) == watched.fd;
                let change = change.take_if(|_| is_here)?;
                Some(change(watched, lists, ready))
            });
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }
}

impl Drop for Call {
    /// Arms the descriptor for the threads that wait for it; closes a duplicate that nobody else uses.
    fn drop(&mut self) {
        if !self.has_waited.get() {
            return;
        }
        let left = self.change(|watched, lists, ready| {
            // SAFETY: it is in this list.
            unsafe { lists.calls.remove(self.node()) };
            watched.arm_for_others(lists, 0, ready);
            let is_user = |node: &Node| Call::of(node).moved.load(Relaxed);
            let is_last = self.moved.load(Relaxed) && !lists.calls.iter().any(is_user);
            (watched, is_last)
        });
        // The change cannot fail: the call is in `calls`, so its descriptor has a record.
        let Ok((watched, is_last)) = left else { return };
        watched.forget_kept();
        if is_last {
            close_duplicate(watched.fd);
        }
    }
}

// ---- a descriptor is closed ----

impl Watched {
    /// Lets all threads look again.
    #[cold]
    fn wake_all(&self) {
        self.change(Lists::wake_all);
    }

    /// The calls that have waited go on with a duplicate, if there can be one.
    fn close(&self) {
        self.settle();
        self.give(sys::duplicate(self.fd, ABOVE_STANDARD).ok(), false);
    }

    /// The same in a signal handler: the duplicate is kept for them.
    fn keep(&self) {
        let kept = sys::duplicate(self.fd, ABOVE_STANDARD).unwrap_or(NONE);
        // Relaxed: a thread that opens another file under this number does so later. The kernel's lock of the table of
        // descriptors orders the two.
        let is_first = self.kept.compare_exchange(NONE, kept, Relaxed, Relaxed);
        if is_first.is_err() && kept != NONE {
            sys::close(kept);
        }
        // Once the descriptor is closed, its number can no longer be disarmed. (All its threads will look again.)
        disarm(self.fd);
    }

    /// Gives the calls that have waited what a handler has kept for them.
    #[inline]
    fn settle(&self) {
        // Acquire: the numbers of the calls; partner: Release in `give`.
        let kept = self.kept.load(Acquire);
        if kept != NONE {
            self.give(Some(kept), true);
        }
    }

    /// What a handler has kept is closed, if there is no call any more that it was for.
    fn forget_kept(&self) {
        if self.kept.load(Relaxed) == NONE {
            return;
        }
        let kept = self.change(|lists, _| match lists.calls.is_empty() {
            true => self.kept.swap(NONE, Relaxed),
            false => NONE,
        });
        if kept != NONE {
            close_duplicate(kept);
        }
    }

    /// The calls that have waited go on with `duplicate`; `is_kept`: it is the one that a handler has kept.
    #[cold]
    fn give(&self, duplicate: Option<RawFd>, is_kept: bool) {
        let give = |lists: &mut Lists, theirs: Option<(&Watched, &mut Lists)>, ready: &mut Fifo| {
            if is_kept && duplicate != Some(self.kept.load(Relaxed)) {
                return true; // another thread has settled it
            }
            let is_used = match theirs {
                Some((to, theirs)) => lists.move_calls(to, theirs, ready),
                None => {
                    // If the number was a duplicate that a call had to close, the program closes it now, and no call does.
                    let calls = lists.calls.iter().map(Call::of);
                    calls.for_each(|call| call.moved.store(false, Relaxed));
                    false
                }
            };
            if is_kept {
                // Release: the numbers of the calls; partner: Acquire in `settle`.
                self.kept.store(NONE, Release);
            }
            disarm(self.fd);
            is_used
        };
        // The locks are taken in the order of the numbers, so that no two threads wait for each other.
        let is_used = match duplicate.and_then(|fd| Watched::of(fd).ok()) {
            None => self.change(|lists, ready| give(lists, None, ready)),
            Some(to) if to.fd < self.fd => to.change(|theirs, ready| {
                self.change(|lists, _| give(lists, Some((to, theirs)), ready))
            }),
            Some(to) => self.change(|lists, ready| {
                to.change(|theirs, _| give(lists, Some((to, theirs)), ready))
            }),
        };
        if let Some(duplicate) = duplicate.filter(|_| !is_used) {
            close_duplicate(duplicate);
        }
    }
}

impl Lists {
    /// The calls go on with `to`, a duplicate, whose lists are `theirs`. False: there is none. Both locks are held.
    fn move_calls(&mut self, to: &Watched, theirs: &mut Lists, ready: &mut Fifo) -> bool {
        let mut moved = false;
        while let Some(node) = self.calls.first().map(ptr::from_ref) {
            // SAFETY: the call is alive while its nodes are in a list, and they are in these.
            unsafe {
                let call = Call::of(&*node);
                self.calls.remove(node);
                theirs.calls.push_back(node);
                if call.waiting.is_queued() {
                    self.waiting.remove(&call.waiting);
                    theirs.waiting.push_back(&call.waiting);
                }
                call.fd.store(to.fd, Relaxed);
                call.moved.store(true, Relaxed);
            }
            moved = true;
        }
        if moved {
            to.arm_for_others(theirs, 0, ready);
        }
        moved
    }
}

/// No events of `fd` are asked for. A thread in `epoll_wait` has a reference to a file that it looks at: if that is the
/// last one, the kernel closes the file only when that call returns.
fn disarm(fd: RawFd) {
    if let Some(nested) = NESTED.get() {
        nested.remove(fd);
    }
}

/// Closes a duplicate of ours that no call uses.
fn close_duplicate(fd: RawFd) {
    disarm(fd);
    sys::close(fd);
}

/// The record of `fd`, if threads may wait for it, or have waited when a handler closed it, and it is this process's.
#[inline]
fn waited_for(fd: RawFd) -> Option<&'static Watched> {
    let watched = WATCHED.find(usize::try_from(fd).ok()?)?;
    let is_waited_for = watched.is_waited_for.load(Relaxed) || watched.kept.load(Relaxed) != NONE;
    let is_ours = || OWNER.get() == Some(&std::process::id());
    (is_waited_for && is_ours()).then_some(watched)
}

/// The program is about to close `fd`, or to put another file in its place: calls that have waited for it
/// go on with a duplicate.
#[inline]
pub(crate) fn closing(fd: RawFd) {
    match waited_for(fd) {
        None => {}
        Some(watched) if current::is_hidden() => watched.keep(),
        Some(watched) => watched.close(),
    }
}

/// All threads that wait for `fd` look again: the program has shut it down, or closed it. In the second case
/// these are threads that poll it, and those that have come since [`closing`].
#[inline]
pub(crate) fn look_again(fd: RawFd) {
    match waited_for(fd) {
        None => {}
        Some(watched) if current::is_hidden() => {
            watched.is_to_look_again.store(true, Relaxed);
            signals::leave_chore();
        }
        Some(watched) => watched.wake_all(),
    }
}

/// Lets the threads look again that handlers have left to the monitor.
fn do_chore() {
    let all = (0..WATCHED.len()).filter_map(|fd| WATCHED.find(fd));
    // Relaxed: `signals` orders the handler's accesses before these.
    for watched in all.filter(|watched| watched.is_to_look_again.swap(false, Relaxed)) {
        watched.wake_all();
        watched.forget_kept();
    }
}

/// The numbers from `first` to `last` that may be waited for.
pub(crate) fn watched_from(first: u32, last: u32) -> impl Iterator<Item = RawFd> {
    let end = WATCHED.len().min((last as usize).saturating_add(1));
    (first as usize..end).map(|fd| fd as RawFd)
}
