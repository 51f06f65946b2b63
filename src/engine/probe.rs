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
//! | [`worker_idle`] | a processor lies down | who has it in hand |
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
//! 2. Who gets a [`Processor`] owns it, or has it in hand, until the call returns; who gets a [`Thread`] owns
//!    the thread, or is called by it.
//! 3. An observer's function neither allocates, nor panics, nor blocks; and it touches no thread-local, unless a kernel
//!    thread calls it ([`kernel`], [`By::Outside`]).
//!
//! # Memory orderings
//! The word is Relaxed: an event that is about to happen while an observer comes may be missed. The table is stored, with
//! Release, before the word; a thread that sees the word and not yet the table (Acquire) misses the event, too.

#[cfg(green)]
pub(crate) use self::threads::*;
use crate::engine::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
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
    pub(crate) use crate::engine::sched::BlockedPlace;
    use crate::engine::sched::current::Entered;
    pub(crate) use crate::engine::sched::switch::Action;
    use crate::engine::sched::{self, Green, Owned, Worker, current};
    use crate::engine::sys::clock;

    /// Declares the observer's table, and for each event a function that finds the table and tells it.
    macro_rules! events {
        ($($(#[$doc:meta])* $name:ident($($part:ident: $type:ty),*);)*) => {
            pub(crate) struct OfThreads {
                $($(#[$doc])* pub(crate) $name: fn($($type),*),)*
            }

            mod told {
                use super::*;

                $(#[cold]
                #[inline(never)]
                pub(super) fn $name($($part: $type),*) {
                    if let Some(observer) = observer() {
                        (observer.threads.$name)($($part),*);
                    }
                })*
            }
        };
    }

    events! {
        spawned(by: Actor<'_>, thread: Thread<'_>);
        ended(thread: Thread<'_>);
        readied(by: Actor<'_>, thread: Thread<'_>, why: Readied);
        picked(processor: Processor<'_>, thread: Thread<'_>, from: Pick);
        stopped(processor: Option<Processor<'_>>, thread: Thread<'_>, action: Action);
        /// The processor of the worker with these words is about to be taken.
        blocks(worker: Words, how: Lost);
        /// The processor was taken, or was not: the words of the worker, and of the thread that it runs.
        blocked(processor: Option<Processor<'_>>, worker: Words, thread: Words, how: Lost);
        worker_has(processor: Processor<'_>, worker: Words, running: Option<Thread<'_>>);
        worker_idle(processor: Processor<'_>);
    }

    /// What has ended a wait.
    #[derive(Clone, Copy)]
    pub(crate) enum Readied {
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

    /// Why a thread has left its stack.
    #[derive(Clone, Copy)]
    pub(crate) enum Stop<'a> {
        Yielded,
        Preempted,
        /// It waits for this; with or without a deadline.
        Parked(&'static str, bool),
        /// To this one.
        HandedOver(Option<Thread<'a>>),
        Ended,
    }

    /// How a thread was seen that loses its processor.
    #[derive(Clone, Copy)]
    pub(crate) enum Lost {
        /// Blocked in the kernel, here if that is known.
        Blocked(Option<&'static BlockedPlace>),
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
        pub(crate) thread: Option<Thread<'a>>,
        pub(crate) processor: Option<Processor<'a>>,
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
                By::Thread(entered) => (Some(entered.green()), Some(entered.processor())),
                By::Processor(processor) => (None, Some(processor)),
                By::Outside => (green_outside(), None),
            };
            Actor {
                thread: thread.map(Thread),
                processor,
            }
        }
    }

    /// A thread, during an event.
    #[derive(Clone, Copy)]
    pub(crate) struct Thread<'a>(&'a Green);

    /// The observer's two words in the record of a thread or a worker. They outlive it: the record serves others.
    pub(crate) type Words = &'static [AtomicU64; 2];

    impl<'a> Thread<'a> {
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
        pub(crate) fn worker(self) -> Words {
            &self.0.worker().observed
        }

        /// By this its runtime is known.
        pub(crate) fn runtime(self) -> usize {
            from_ref(self.0.cluster()).addr()
        }
    }

    /// A processor, during an event: nobody else may use what is kept for it.
    pub(crate) type Processor<'a> = Owned<'a>;

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
        pub(crate) fn running(&self) -> Option<Words> {
            // Acquire: to reach the worker; partner: Release in `give_to`.
            let green = self.worker.load(Acquire)?.running()?;
            Some(&green.observed)
        }

        /// The first processor of the calling green thread's runtime.
        #[cfg(test)]
        pub(crate) fn first_here() -> Option<&'static sched::Processor> {
            current::green().map(|green| green.cluster().processor(0))
        }
    }

    impl<'a> Stop<'a> {
        /// Why `thread` has left its stack, with this action.
        pub(crate) fn of(Thread(green): Thread<'a>, action: Action) -> Stop<'a> {
            match action {
                Action::Yield => Stop::Yielded,
                Action::Preempt => Stop::Preempted,
                Action::Park => {
                    // SAFETY: the thread has left its park on its stack, and cannot go on yet (invariant 1).
                    let parking = unsafe { *green.parking() };
                    let name = parking.reason.kind.name;
                    Stop::Parked(name, parking.deadline != clock::NEVER)
                }
                Action::HandOver => Stop::HandedOver(green.next.get().map(Thread)),
                Action::Exit => Stop::Ended,
            }
        }
    }

    // Below, an event's parts are values before they are told: what a reference leads to could not stay in a register
    // while nobody observes.

    #[inline]
    pub(crate) fn spawned(by: By<'_>, thread: &'static Green) {
        if word() != 0 {
            told::spawned(by.actor(), Thread(thread));
        }
    }

    #[inline]
    pub(crate) fn ended(thread: &'static Green) {
        if word() != 0 {
            told::ended(Thread(thread));
        }
    }

    #[inline(always)]
    pub(crate) fn readied(by: By<'_>, thread: &'static Green, why: Readied) {
        if word() != 0 {
            told::readied(by.actor(), Thread(thread), why);
        }
    }

    #[inline(always)]
    pub(crate) fn picked(processor: &mut Owned<'_>, thread: &'static Green, from: Pick) {
        let wanted = match from {
            Pick::NextSlot | Pick::Queue => PICKS,
            Pick::Stolen | Pick::Found => !0,
        };
        if word() & wanted != 0 {
            told::picked(processor.lend(), Thread(thread), from);
        }
    }

    /// `processor`: the worker's, if it still has one.
    #[inline(always)]
    pub(crate) fn stopped(processor: Option<Owned<'_>>, thread: &'static Green, action: Action) {
        if word() != 0 {
            told::stopped(processor, Thread(thread), action);
        }
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
            told::blocks(&worker.observed, how);
        }
        let mut taken = take();
        if is_told {
            let processor = taken.as_mut().map(Owned::lend);
            told::blocked(processor, &worker.observed, &thread.observed, how);
        }
        taken
    }

    #[inline]
    pub(crate) fn worker_has(processor: &mut Owned<'_>, worker: &'static Worker) {
        if word() != 0 {
            let running = worker.running().map(Thread);
            told::worker_has(processor.lend(), &worker.observed, running);
        }
    }

    #[inline]
    pub(crate) fn worker_idle(processor: &mut Owned<'_>) {
        if word() != 0 {
            told::worker_idle(processor.lend());
        }
    }
}
