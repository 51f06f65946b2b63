//! One green thread: its record.
//!
//! Records are never freed ([`records`]), so one is `&'static`; it is used again for another thread
//! when this one has ended. What a thread needs to run, a stack and a thread-local block, it gets
//! when it first does ([`room`]): until then it is this record and the closure it is to call. Who
//! may touch the fields that are not atomic:
//!
//! | the thread is … | owner |
//! |---|---|
//! | new | the spawner |
//! | in a queue, or in a list of free records | whoever takes it out |
//! | running | the kernel thread that runs it |
//! | parked | whoever wins its ticket (`wait::ticket`) |
//!
//! Each change of owner goes through a queue or a ticket, which publish all that was written
//! before.
//!
//! Invariants:
//! 1. `off` is not zero whenever the thread is not running user code on its own stack: while it is
//!    suspended, while it is in the runtime, and before and after its life. It is written by the
//!    thread itself (or its signal handler) only; the monitor reads it.
//! 2. `machine` is the kernel thread that resumed it last, right while `off` is not zero.
//! 3. A thread that has no room has [`Oddities::NEW`].
//!
//! Fields that belong to others are hooks: this folder makes room for them, and their owners declare what
//! they are. An intrusive link, a timer's entry and a waiter lie in lower files; an address that only an
//! upper folder understands is a [`Hook`] (`sched::record` has `sched`'s).

pub(crate) mod context;
pub(crate) mod current;
pub(crate) mod fifo;
mod hook;
pub(crate) mod identity;
mod links;
pub(crate) mod records;
pub(crate) mod room;
pub(crate) mod ticket;
pub(crate) mod timer;
pub(crate) mod waiter;

use core::cell::{Cell, UnsafeCell};

use self::context::{Bounds, Context};
pub(crate) use self::hook::Hook;
pub(crate) use self::identity::Identity;
pub(crate) use self::links::Links;
pub(crate) use self::room::Room;
use self::waiter::Waiter;
use crate::engine::arch::{self, FloatControl};
use crate::engine::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::engine::sys::clock;
use crate::engine::sys::signal::Mask;
use crate::engine::tls;

#[repr(C, align(64))]
pub(crate) struct Green {
    // What queues and every switch touch.
    pub(crate) thread_pointer: Cell<*mut u8>,
    tcache: Cell<*mut usize>,
    pub(crate) oddities: Oddities,
    pub(crate) off: AtomicU32,
    /// The kernel thread that resumed it last (`sched`'s).
    pub(crate) machine: Hook,
    /// The next thread in an intrusive queue, or the one that it hands over to.
    pub(crate) next: Cell<Option<&'static Green>>,
    /// It is an arrival (`sched::outbox`).
    pub(crate) arrived: Cell<bool>,
    /// It took the last room that its processor had at hand, or there was none.
    pub(crate) took_last: Cell<bool>,
    /// It has announced that it blocks; the monitor reads it.
    pub(crate) announced: AtomicBool,
    /// It is in a call that may block (`thread::may_block`); the monitor does not signal it.
    pub(crate) in_call: AtomicBool,
    /// A digest of what it waited for when it was last evicted (`sched::shortage`). Monitors write it:
    /// the record may be another cluster's as soon as the signal is sent.
    pub(crate) evicted_from: AtomicU8,
    /// How many times it is locked to a kernel thread.
    pub(crate) locks: Cell<u16>,
    pub(crate) context: Context,

    // What waiting and the edges touch.
    /// Its cluster (`sched`'s).
    pub(crate) cluster: Hook,
    /// The name and number, owned by the thread; null before and after its life.
    pub(crate) identity: AtomicPtr<Identity>,
    main: Cell<Option<Main>>,
    room: Cell<Option<&'static Room>>,
    /// What it waits for, and until when (or for ever: `clock::NEVER`), if it is about to park or
    /// parked.
    pub(crate) waiter: Cell<*const Waiter>,
    pub(crate) deadline: Cell<u64>,
    /// The processor in whose heap the timer is, or was (`sched`'s).
    pub(crate) timer_home: Hook,
    pub(crate) timer: UnsafeCell<timer::Entry>,
    /// What a policy may look at, and may need. Set at each spawn.
    pub(crate) priority: AtomicU64,
    pub(crate) heap: Links,
    pub(crate) mask: Cell<Mask>,
    /// The kernel thread that it is locked to (`sched`'s).
    pub(crate) locked_to: Hook,
}

/// Four cache lines: a million waiting threads have a million of them.
const _: () = assert!(size_of::<Green>() == 256);

/// What a thread is to do: called once, with its record and an address, as the first code on its
/// stack. It must not unwind.
pub(crate) type Main = (unsafe fn(&'static Green, *const ()), *const ());

/// What is unusual about a thread, a bit each, so that the switch asks but one question of most.
/// Written by the thread, its signal handler and the kernel thread that runs it: never at once, but
/// the handler may come between, hence read-modify-write.
pub(crate) struct Oddities(AtomicU32);

impl Oddities {
    /// Its signal mask was seen to differ from its kernel thread's.
    pub(crate) const MASK: u32 = 1;
    /// Preempted, it keeps the malloc cache that it may be in the middle of using.
    pub(crate) const CACHE: u32 = 2;
    /// It is locked to a kernel thread.
    pub(crate) const LOCKED: u32 = 4;
    /// It has not run yet, and has no room.
    pub(crate) const NEW: u32 = 8;
    /// From this bit up: what differs from the default in how it computes with floating-point numbers,
    /// while it does not run.
    const FLOATS: u32 = 8;

    const fn new() -> Oddities {
        Oddities(AtomicU32::new(Oddities::NEW))
    }

    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    #[inline(always)]
    pub(crate) fn has(&self, oddity: u32) -> bool {
        self.0.load(Ordering::Relaxed) & oddity != 0
    }

    pub(crate) fn add(&self, oddity: u32) {
        self.0.fetch_or(oddity, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, oddity: u32) {
        self.0.fetch_and(!oddity, Ordering::Relaxed);
    }

    /// It is to compute with floating-point numbers in that way when it goes on.
    pub(crate) fn keep_floats(&self, floats: FloatControl) {
        self.add(floats.difference() << Oddities::FLOATS);
    }

    /// In which way, if not in the default one; it goes on.
    #[inline]
    pub(crate) fn take_floats(&self) -> Option<FloatControl> {
        const REST: u32 = (1 << Oddities::FLOATS) - 1;
        let all = self.0.load(Ordering::Relaxed);
        if all <= REST {
            return None;
        }
        self.remove(!REST);
        Some(FloatControl::with_difference(all >> Oddities::FLOATS))
    }

    /// The thread has a room now, with or without a malloc cache in it. It does not run, so no
    /// handler comes between.
    fn settle(&self, has_cache: bool) {
        let kept = self.0.load(Ordering::Relaxed) & !Oddities::NEW;
        let cache = u32::from(has_cache) * Oddities::CACHE;
        self.0.store(kept | cache, Ordering::Relaxed);
    }

    /// As at first; the thread has ended.
    fn reset(&self) {
        self.0.store(Oddities::NEW, Ordering::Relaxed);
    }
}

// SAFETY: the table above says who touches what; the handovers are Release/Acquire.
unsafe impl Sync for Green {}
// SAFETY: as above.
unsafe impl Send for Green {}

impl Green {
    fn new() -> Green {
        Green {
            thread_pointer: Cell::new(core::ptr::null_mut()),
            tcache: Cell::new(core::ptr::null_mut()),
            oddities: Oddities::new(),
            off: AtomicU32::new(1),
            machine: Hook::new(),
            context: Context::new(),
            next: Cell::new(None),
            arrived: Cell::new(false),
            cluster: Hook::new(),
            identity: AtomicPtr::new(core::ptr::null_mut()),
            waiter: Cell::new(core::ptr::null()),
            deadline: Cell::new(clock::NEVER),
            timer: UnsafeCell::new(timer::Entry::new()),
            timer_home: Hook::new(),
            priority: AtomicU64::new(0),
            heap: Links::new(),
            mask: Cell::new(0),
            announced: AtomicBool::new(false),
            in_call: AtomicBool::new(false),
            locked_to: Hook::new(),
            evicted_from: AtomicU8::new(0),
            locks: Cell::new(0),
            room: Cell::new(None),
            main: Cell::new(None),
            took_last: Cell::new(false),
        }
    }

    /// Says what the thread is to do.
    ///
    /// # Safety
    /// The thread is new and the caller's; `main`'s function may be called with its address, once,
    /// whenever the thread first runs, and does not unwind.
    pub(crate) unsafe fn prepare(&self, main: Main) {
        self.main.set(Some(main));
    }

    /// The thread, which is prepared, has not run, and is the caller's, lives in `room` from now
    /// on. Neither allocates nor touches a thread-local.
    #[inline]
    pub(crate) fn move_in(&'static self, room: &'static Room) {
        room.let_to(self);
        self.thread_pointer.set(room.thread_pointer);
        self.tcache.set(room.tcache);
        self.room.set(Some(room));
        self.oddities.settle(room.has_cache());
        let main = move || match self.main.take() {
            // SAFETY: the promise made to `prepare`.
            Some((run, with)) => unsafe { run(self, with) },
            None => crate::engine::sys::die("a thread was started that has nothing to do"),
        };
        // SAFETY: the room's stack is free, and the caller's; the record never moves.
        unsafe { self.context.prepare(room.stack, main) }
    }

    /// The thread has ended: its room is free again, its record as good as new.
    #[inline]
    pub(crate) fn move_out(&self) -> &'static Room {
        self.oddities.reset();
        match self.room.take() {
            Some(room) => room,
            None => crate::engine::sys::die("a thread has ended that lived nowhere"),
        }
    }

    /// Asks for the record itself, for who is about to run a thread that has been in a queue for
    /// long.
    pub(crate) fn prefetch_record(&self) {
        const LINE: usize = 64;
        let record = core::ptr::from_ref(self).cast::<u8>();
        (0..3).for_each(|line| arch::prefetch(record.wrapping_add(line * LINE)));
    }

    /// Asks for the memory that a parked thread will touch when it goes on, before it does.
    pub(crate) fn prefetch(&self) {
        // A wait is some calls deep: what lies about it are their frames.
        const LINE: usize = 64;
        const BELOW: usize = 4 * LINE;
        const FRAMES: usize = 20;
        let frames = self.waiter.get().cast::<u8>().wrapping_sub(BELOW);
        for line in 0..FRAMES {
            arch::prefetch(frames.wrapping_add(line * LINE));
        }
        let thread_pointer = self.thread_pointer.get();
        arch::prefetch(tls::stack_top(thread_pointer).wrapping_sub(LINE));
        arch::prefetch(self.tcache.get().cast());
        arch::prefetch(thread_pointer);
    }

    /// The name of the thread that asks, which is this one.
    pub(crate) fn name(&self) -> Option<&str> {
        // SAFETY: the thread keeps its identity while it runs.
        unsafe { self.identity.load(Ordering::Relaxed).as_ref() }.and_then(Identity::name)
    }

    /// The stack, from the lowest usable address up. `None`: it has no room, so it does not run,
    /// whatever made the caller think so.
    pub(crate) fn stack(&self) -> Option<Bounds> {
        self.room.get().map(|room| room.stack)
    }

    /// Whether it lives in `room`, still.
    fn lives_in(&self, room: &Room) -> bool {
        self.room.get().is_some_and(|own| core::ptr::eq(own, room))
    }

    /// malloc's word for its per-thread cache, in this thread's block; null where it was not found.
    #[inline(always)]
    pub(crate) fn tcache(&self) -> *mut usize {
        self.tcache.get()
    }
}
