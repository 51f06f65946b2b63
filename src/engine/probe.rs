//! The probe: what happens in the scheduler is pushed to an observer here, one call an event.
//!
//! | function | event | who calls |
//! |---|---|---|
//! | [`spawned`] | a thread was made | its spawner, before the thread is ready |
//! | [`ended`] | a thread is about to end; it has its name still | the thread |
//! | [`readied`] | a wait is over | who ends it, before the thread is ready |
//! | [`picked`] | a processor has taken a thread, to run it | the processor's owner |
//! | [`stopped`] | a thread has left its stack | the run loop, before it does what the thread asked for |
//! | [`blocked`] | a thread loses its processor and goes on without | the monitor |
//! | [`worker_has`] | a worker gets a processor, for the thread that it runs already, if it runs one | who gives it |
//! | [`worker_idle`] | a processor goes to sleep | who has it in hand |
//! | [`kernel`] | a kernel thread begins, ends, waits, goes on, spawns | that thread |
//!
//! Each of them first loads [`WORD`], one static word; if it is 0 nobody observes, and that is all. Otherwise it calls the
//! observer's function of that name in a table ([`OfThreads`]), by way of [`OBSERVER`], a static pointer. There is one observer
//! (`crate::observe`), which gives what it hears to traces, histograms and subscribers. It owns the word's bits, but for the
//! meaning of one ([`PICKS`]); two words in the record of each thread and of each worker; and one word in that of each
//! processor.
//!
//! # Invariants
//! 1. An event is told before any other thread can act on it: a wake-up before the thread's next run.
//! 2. Who gets a [`OwnedProcessor`] owns it, or has it in hand, until the call returns; who gets a [`ThreadInEvent`] owns
//!    the thread, or is called by it.
//! 3. An observer's function neither allocates, nor panics, nor blocks; and it touches no thread-local, unless a kernel
//!    thread calls it ([`kernel`], [`By::Outside`]).
//!
//! # Memory orderings
//! The word is Relaxed: an event that is about to happen while an observer comes may be missed. The table is stored, with
//! Release, before the word; a thread that sees the word and not yet the table (Acquire) misses the event, too.

#[cfg(green)]
pub(crate) use self::threads::*;
use crate::engine::atomic::{AtomicU32, Ordering::*};
use crate::engine::sched::Identity;
use crate::engine::sys::shared::AtomicStatic;

/// Who observes, in the observer's own bits; 0: nobody.
static WORD: AtomicU32 = AtomicU32::new(0);
static OBSERVER: AtomicStatic<Observer> = AtomicStatic::none();

/// The bit of the word without which picks from a processor's own queues are not told: those of every switch.
pub(crate) const PICKS: u32 = 1;

/// The observer's functions.
pub(crate) struct Observer {
    #[cfg(green)]
    pub(crate) threads: OfThreads,
    pub(crate) kernel: fn(Option<&Identity>, Kernel),
}

/// What a kernel thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// It starts the thread that is named, of kernel-thread mode.
    Spawned,
    /// It begins its life as that thread.
    Began,
    Ended,
    /// It is about to block at a waiter.
    Waits,
    /// Its wait is over.
    GoesOn,
}

/// The word.
#[inline(always)]
pub(crate) fn word() -> u32 {
    WORD.load(Relaxed)
}

/// Changes the word, and has all events told to `observer` from then on if it is not 0.
pub(crate) fn observe(observer: &'static Observer, change: impl Fn(u32) -> u32) {
    // Release: partner: Acquire in `observer`.
    OBSERVER.store(Some(observer), Release);
    let _ = WORD.fetch_update(Relaxed, Relaxed, |word| Some(change(word)));
}

/// Nobody observes any more: the process is a forked child.
#[cfg(green)]
pub(crate) fn forget() {
    WORD.store(0, Relaxed);
}

fn observer() -> Option<&'static Observer> {
    // Acquire: partner: Release in `observe`.
    OBSERVER.load(Acquire)
}

/// The calling kernel thread does `what`, to `thread` or as that one.
#[inline]
pub(crate) fn kernel(thread: Option<&Identity>, what: Kernel) {
    if word() != 0
        && let Some(observer) = observer()
    {
        (observer.kernel)(thread, what);
    }
}

/// The events of green threads, and what an observer may ask of those who take part.
#[cfg(green)]
mod threads {
    use core::ptr::from_ref;

    use super::{Acquire, Identity, PICKS, Relaxed, observer, word};
    use crate::engine::atomic::AtomicU64;
    pub(crate) use crate::engine::sched::BlockedSite;
    use crate::engine::sched::current::Entered;
    pub(crate) use crate::engine::sched::switch::Action;
    use crate::engine::sched::{self, Green, Owned, Worker, current};
    use crate::engine::sys::clock;

    /// The observer's table: a function for each event.
    pub(crate) struct OfThreads {
        pub(crate) spawned: fn(Actor<'_>, ThreadInEvent<'_>),
        pub(crate) ended: fn(ThreadInEvent<'_>),
        pub(crate) readied: fn(Actor<'_>, ThreadInEvent<'_>, ReadyReason),
        pub(crate) picked: fn(OwnedProcessor<'_>, ThreadInEvent<'_>, Pick),
        pub(crate) stopped: fn(Option<OwnedProcessor<'_>>, ThreadInEvent<'_>, Action),
        /// The processor of the worker with these words is about to be taken.
        pub(crate) blocks: fn(ObserverWords, Lost),
        /// The processor was taken, or was not: the words of the worker, and of the thread that it runs.
        pub(crate) blocked: fn(Option<OwnedProcessor<'_>>, ObserverWords, ObserverWords, Lost),
        pub(crate) worker_has: fn(OwnedProcessor<'_>, ObserverWords, Option<ThreadInEvent<'_>>),
        pub(crate) worker_idle: fn(OwnedProcessor<'_>),
    }

    /// Tells the observer of an event, if there is one. (A macro: the compiler would put a function's closure into memory
    /// before it knows whether anybody observes.)
    macro_rules! tell {
        ($event:expr) => {
            if word() != 0 {
                tell_now($event);
            }
        };
    }

    /// Tells the observer of `event`.
    #[cold]
    #[inline(never)]
    fn tell_now(event: impl FnOnce(&OfThreads)) {
        if let Some(observer) = observer() {
            event(&observer.threads);
        }
    }

    /// What has ended a wait.
    #[derive(Clone, Copy)]
    pub(crate) enum ReadyReason {
        /// Another thread.
        Woke,
        /// Its deadline.
        Fired,
        /// The driver: a descriptor is ready, or an operation is over.
        Arrived,
    }

    /// From where a processor took a thread.
    #[derive(Clone, Copy)]
    pub(crate) enum Pick {
        /// The next slot, or from the thread before: it goes on in that one's time slice.
        NextSlot,
        /// Its own queue, or the global one.
        Queue,
        /// Another processor's queue. (The others that were stolen with it come from a queue.)
        Stolen,
        /// Any of these, after it had nothing to run.
        Found,
    }

    /// How a thread was seen that loses its processor.
    #[derive(Clone, Copy)]
    pub(crate) enum Lost {
        /// Blocked in the kernel, here if that is known.
        Blocked(Option<&'static BlockedSite>),
        /// It computes, and was not to be interrupted.
        Computing,
    }

    /// Who does something to a thread.
    pub(crate) enum By<'a> {
        Thread(&'a mut Entered),
        Processor(Owned<'a>),
        /// It owns no processor of the cluster. It may be a green thread of another one.
        Outside,
    }

    /// The same for the observer: a thread and the processor that it is on, or only one of them.
    pub(crate) struct Actor<'a> {
        pub(crate) thread: Option<ThreadInEvent<'a>>,
        pub(crate) processor: Option<OwnedProcessor<'a>>,
    }

    /// The calling thread, if it is a green one of another cluster: it has its own thread pointer.
    #[cold]
    #[inline(never)]
    fn green_outside() -> Option<&'static Green> {
        current::green()
    }

    impl<'a> By<'a> {
        #[inline(always)]
        fn actor(self) -> Actor<'a> {
            let (thread, processor) = match self {
                By::Thread(entered) => (Some(entered.green), Some(entered.processor())),
                By::Processor(processor) => (None, Some(processor)),
                By::Outside => (green_outside(), None),
            };
            Actor {
                thread: thread.map(ThreadInEvent),
                processor,
            }
        }
    }

    /// A thread, during an event.
    #[derive(Clone, Copy)]
    pub(crate) struct ThreadInEvent<'a>(&'a Green);

    /// The observer's two words in the record of a thread or a worker. They outlive it: the record serves others.
    pub(crate) type ObserverWords = &'static [AtomicU64; 2];

    impl<'a> ThreadInEvent<'a> {
        #[inline(always)]
        pub(crate) fn words(self) -> &'a [AtomicU64; 2] {
            &self.0.observed
        }

        /// Its name and number. `None`: the thread is past its last instructions.
        #[inline]
        pub(crate) fn identity(self) -> Option<&'a Identity> {
            // SAFETY: the caller owns the thread, or is that thread (invariant 2), as long as this lives; it has its
            // identity from its spawn until its last instructions, when the pointer is null.
            unsafe { self.0.identity.load(Relaxed).as_ref() }
        }

        /// The words of the worker that has run the thread last.
        pub(crate) fn worker(self) -> ObserverWords {
            &self.0.worker().observed
        }

        /// By this its runtime is known.
        pub(crate) fn runtime(self) -> usize {
            from_ref(self.0.cluster()).addr()
        }

        /// What the thread waits for, which has left its stack to park, and whether it has a deadline.
        pub(crate) fn waits(self) -> (&'static &'static str, bool) {
            // SAFETY: the thread has left its park on its stack, and cannot go on yet (invariant 1).
            let parking = unsafe { *self.0.parking() };
            (&parking.reason.kind.name, parking.deadline != clock::NEVER)
        }

        /// The thread to which this one, which has left its stack, hands over.
        pub(crate) fn successor(self) -> Option<ThreadInEvent<'a>> {
            self.0.next.get().map(ThreadInEvent)
        }
    }

    /// A processor, during an event: nobody else may use what is kept for it.
    pub(crate) type OwnedProcessor<'a> = Owned<'a>;

    impl sched::Processor {
        /// By this its runtime is known.
        pub(crate) fn runtime(&self) -> usize {
            from_ref(self.cluster()).addr()
        }

        /// Whether its runtime was shut down.
        pub(crate) fn is_closed(&self) -> bool {
            self.cluster().stopping.load(Relaxed)
        }

        /// The words of the thread that it runs. A hint.
        pub(crate) fn running(&self) -> Option<ObserverWords> {
            // Acquire: to reach the worker; partner: Release in `give_to`.
            let green = self.worker.load(Acquire)?.running()?;
            Some(&green.observed)
        }
    }

    // Below, an event's parts are values before they are told: what a reference leads to could not stay in a register
    // while nobody observes.

    #[inline]
    pub(crate) fn spawned(by: By<'_>, thread: &'static Green) {
        tell!(move |to| (to.spawned)(by.actor(), ThreadInEvent(thread)));
    }

    #[inline]
    pub(crate) fn ended(thread: &'static Green) {
        tell!(move |to| (to.ended)(ThreadInEvent(thread)));
    }

    #[inline(always)]
    pub(crate) fn readied(by: By<'_>, thread: &'static Green, why: ReadyReason) {
        tell!(move |to| (to.readied)(by.actor(), ThreadInEvent(thread), why));
    }

    #[inline(always)]
    pub(crate) fn picked(processor: &mut Owned<'_>, thread: &'static Green, from: Pick) {
        let wanted = match from {
            Pick::NextSlot | Pick::Queue => PICKS,
            Pick::Stolen | Pick::Found => !0,
        };
        if word() & wanted != 0 {
            let processor = processor.lend();
            tell_now(move |to| (to.picked)(processor, ThreadInEvent(thread), from));
        }
    }

    /// `processor`: the worker's, if it still has one.
    #[inline(always)]
    pub(crate) fn stopped(processor: Option<Owned<'_>>, thread: &'static Green, action: Action) {
        tell!(move |to| (to.stopped)(processor, ThreadInEvent(thread), action));
    }

    /// `take` takes the processor of `worker`, if that still runs `thread`. The thread may go on at any moment, and end.
    pub(crate) fn blocked<'a>(
        worker: &'static Worker,
        thread: &'static Green,
        how: Lost,
        take: impl FnOnce() -> Option<Owned<'a>>,
    ) -> Option<Owned<'a>> {
        let is_told = word() != 0;
        if is_told {
            tell_now(move |to| (to.blocks)(&worker.observed, how));
        }
        let mut taken = take();
        if is_told {
            let processor = taken.as_mut().map(Owned::lend);
            tell_now(move |to| (to.blocked)(processor, &worker.observed, &thread.observed, how));
        }
        taken
    }

    #[inline]
    pub(crate) fn worker_has(processor: &mut Owned<'_>, worker: &'static Worker) {
        tell!(move |to| {
            let running = worker.running().map(ThreadInEvent);
            (to.worker_has)(processor.lend(), &worker.observed, running);
        });
    }

    #[inline]
    pub(crate) fn worker_idle(processor: &mut Owned<'_>) {
        tell!(move |to| (to.worker_idle)(processor.lend()));
    }
}
