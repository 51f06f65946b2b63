//! Idle processors, which sleep, and workers without a processor: how they rest, and how the next is woken
//! so that no wake-up is lost. The proof is in `idle.md` beside this file. And the word on which a kernel thread of a
//! cluster sleeps ([`Parker`]).
//!
//! The idle word says how many processors sleep, how many are awake and how many of these search for
//! work. It answers one question without a lock: must a thread that has just made work ready wake a
//! sleeper? The lists, under a lock, decide *which* one: each kind of sleeper has a stack, so that the one that
//! went to sleep last is woken first: its caches are warm.
//!
//! # Use
//!
//! ```text
//!     readier   push
//!               claim_wake(): no  → done: nobody sleeps, or somebody searches
//!                             yes → lock; pop the last sleeper; unlock; wake it as a searcher
//!
//!     searcher  found work
//!               found() and there is more: go on as a readier                        (the ramp)
//!
//!     sleeper   lock; push itself to the list; announce_sleep(was_searching); unlock
//!               look again everywhere (queues, timers, events): nothing there → block
//!               something there, or woken by a deadline → get up
//!
//!     get up    lock
//!               not in the list               → a waker chose us: its wake-up makes us a searcher
//!               in the list, cancel_sleep()   → remove itself; unlock; go on as a searcher
//!               in the list, and it refuses   → unlock; block: a waker is on its way to the list
//!
//!     retire    lock; not into the list; retire(was_searching); unlock; more to do? as a readier
//!
//!     resizer   fewer: lock; in the list and withdraw() → out of the list; unlock
//!               more:  lock; push the new one; appear(); unlock; work to do? as a readier
//! ```
//!
//! # Invariants
//!
//! 1. While the lock is free: sleepers in the list = `sleeping` + claims whose pop is still to
//!    come. So a claimer always finds a sleeper. A sleeper that finds `sleeping` = 0 while it is in
//!    the list must not leave: the claimers have promised to wake every sleeper in it. Hence
//!    `cancel_sleep` can be refused. (A sleeper that went to sleep later may be popped in our place:
//!    then it searches instead of us, and our count is still right.)
//! 2. A sleeper gets up as a searcher, however it gets up. A searcher ends by [`IdleWord::found`],
//!    [`IdleWord::announce_sleep`] or [`IdleWord::retire`], nothing else (a searcher that stops for
//!    another reason says `found`).
//! 3. From the moment of a claim there is a searcher, though no processor runs yet: one wake-up at
//!    a time is under way.
//! 4. Every existing processor is asleep or awake; a claimed one is awake.
//! 5. A processor in the list is owned by no worker; a worker in the list of spares owns no
//!    processor.
//! 6. No wake-up is lost: only the owner leaves `WOKEN`, and its sleep then returns true. A poke changes
//!    nothing but `ASLEEP`.
//! 7. A thread that changes the word of an owner that blocks ends the blocking: `ASLEEP` is the
//!    value that the kernel compares before it blocks; and a ring ends the collecting that is about
//!    to begin, too. A poke leaves a collecting worker alone: that already does the thing that a
//!    poke asks for.
//! 8. Only a worker that has the [`Turn`] says `COLLECTING`, and has it until it has said
//!    something else: nobody else can hear the ring.
//! 9. The futex wake and the ring may come late, when the owner has gone on: they disturb the
//!    next sleep, or the worker that has the turn then. Every sleep is in a loop.
//!
//! # Memory orderings
//!
//! All changes of the word are Relaxed read-modify-writes. Two things matter: their one modification order, and
//! two SeqCst fences. One fence is in `announce_sleep` (and in `appear` and `retire`, which are
//! like it) between the announcement and the re-check; the other is in `claim_wake` between the
//! push (or `found`) and the look at the word. They are each other's partners. Data travels by the
//! queues and by the list's lock.
//!
//! The owner of a wake word sees what the waker did before `wake`, or `poke`: Release there, Acquire in `take`. A worker's
//! changes before its sleep go to the thread that chooses the worker by the list, or the queue, that the worker was chosen
//! from. The monitor's fences stand where they are.
//!
//! # Deadlines
//!
//! A worker that goes to sleep watches the earliest deadline of the cluster unless another sleeper watches one as
//! early ([`Watched`]). So while everybody sleeps, somebody watches the earliest: of two sleepers, one that has
//! set a timer and then goes to sleep, and one that wakes up and then looks at the timers again, either the
//! first finds that nobody watches, or the second sees the timer. While any processor is awake
//! the monitor watches; when it goes to sleep itself it does as a worker does. A worker that
//! stops watching without a processor in hand kicks the monitor. So does a worker that arms a
//! timer and puts a processor to sleep and does not sleep itself.
//!
//! # Children
//!
//! A process may ask for a signal when the kernel thread that made it ends (PR_SET_PDEATHSIG). So a worker whose
//! kernel thread has children does not retire. A worker that is to end with the thread that is locked to it *lingers*
//! if its kernel thread had children before: it runs nobody until the children are gone or the cluster stops.
//!
//! # The wake word
//!
//! Each worker, the monitor and the spawner has a wake word.
//! A thread sleeps on its word as a futex. A worker may also sleep by collecting events; then the bell wakes the
//! worker. The word says how its owner sleeps, and whether the owner was woken or poked.
//!
//! | from \ verb | `wake` | `poke` | `sleep` | `sleep_collecting`, at its beginning | … and its end |
//! |---|---|---|---|---|---|
//! | `ASLEEP` | `WOKEN`, futex | `POKED`, futex | blocks | `COLLECTING`, collects | (never) |
//! | `POKED` | `WOKEN` | stays | `ASLEEP`, disturbed | stays | `ASLEEP`, disturbed |
//! | `WOKEN` | stays | stays | `ASLEEP`, **woken** | stays | `ASLEEP`, **woken** |
//! | `COLLECTING` | `WOKEN`, bell | stays | (never) | (never) | `ASLEEP`, disturbed |
//!
//! Only the owner of a word sleeps. A worker is woken by the thread that has chosen it (that has taken the worker out of
//! the spares, or has taken the thread that is locked to the worker out of a queue), and not again before the worker has
//! noticed. Any thread wakes the spawner, and any thread pokes. The word of a worker that runs, and of the spawner, is
//! `ASLEEP` as long as nobody wakes or pokes its owner. When a cluster stops, its workers are poked, and the bell is
//! rung for a worker that collects.
//!
//! The monitor sleeps only while all processors do. Most of the time the monitor runs, and a thread that wakes a
//! processor need not wake it. So its word is `WOKEN` until the monitor sleeps ([`sleep_beside`](Parker::sleep_beside)).
//! [`kick`](Parker::kick) wakes the monitor, and only looks while the monitor is awake; [`rouse`](Parker::rouse) also cuts
//! short the monitor's wait for its next look. The monitor writes that it sleeps, fences, and looks for something to do. A
//! thread that gives the monitor something to do does so, fences, and looks whether the monitor sleeps. One of the two
//! sees the other: so the monitor never sleeps beside a processor that is awake, or a deferred wake.

use crate::engine::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use crate::engine::policy::{ForOthers, Readied};
use crate::engine::probe;
use crate::engine::sched::events::{self, Turn};
use crate::engine::sched::tuning::{IDLE_BEFORE_RETIREMENT, SPARES_KEPT};
use crate::engine::sched::{
    Cluster, Fifo, Owned, Processor, RunLoop, Worker, ready_globally, run::stop_searching,
};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::{die, futex, kernel_thread, perturb, shared::Lifo};

// ==== the idle word ====

/// One sleeping processor: the lowest 16 bits count them. (There are at most 4096.)
const SLEEPER: u64 = 1;
/// One searching processor: the next 16 bits count them.
const SEARCHER: u64 = 1 << 16;
/// One processor that is awake, searching or not: the high half counts them.
const AWAKE: u64 = 1 << 32;

/// Sleeping, searching and waking processors. See the file's header.
pub(crate) struct IdleWord(AtomicU64);

impl IdleWord {
    /// A word with `awake` processors awake; none sleeps and none searches.
    pub(crate) fn new(awake: u32) -> Self {
        Self(AtomicU64::new(u64::from(awake) * AWAKE))
    }

    // ---- a processor out of work ----

    /// Becomes a searcher, unless there are `limit` already.
    #[must_use]
    pub(crate) fn start_search(&self, limit: u32) -> bool {
        self.change(|w| (searching(w) < limit).then(|| w + SEARCHER))
    }

    /// Whether `change` accepts the word, which is changed then.
    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, change).is_ok()
    }

    /// A searcher stops searching. True: it was the last, and must see whether another is needed
    /// ([`Self::claim_wake`]): readiers relied on it and it can do only one thing at a time. It may
    /// look for work first, after a SeqCst fence (partner: in `claim_wake`).
    #[must_use = "the last searcher must call claim_wake"]
    pub(crate) fn found(&self) -> bool {
        let before = searching(self.0.fetch_sub(SEARCHER, Relaxed));
        if before == 0 {
            die("a processor that does not search has found something");
        }
        before == 1
    }

    /// Called under the list's lock, with ourselves in the list. Afterwards the caller must check
    /// everything again before it blocks.
    pub(crate) fn announce_sleep(&self, was_searching: bool) {
        self.stop(was_searching, SLEEPER);
        // Partner: the fence in `claim_wake`.
        fence(SeqCst);
    }

    /// The processor stops in one step, so that no thread sees it in neither state, or in both.
    fn stop(&self, was_searching: bool, then: u64) {
        let gone = AWAKE + if was_searching { SEARCHER } else { 0 };
        let before = self.0.fetch_add(then.wrapping_sub(gone), Relaxed);
        perturb::point("idle: announced");
        if awake(before) == 0 || was_searching && searching(before) == 0 {
            die("a processor goes to sleep that is not awake, or does not search");
        }
    }

    /// Called under the list's lock, with ourselves in the list. True: we sleep no more, are a
    /// searcher, and leave the list. False: every sleeper in the list is going to be woken; stay in
    /// it and block.
    #[must_use]
    pub(crate) fn cancel_sleep(&self) -> bool {
        self.sleeper_to_searcher(|_| true)
    }

    // ---- a thread that has made work ready ----

    /// Called after the push. True: the caller, nobody else, must pop one sleeper from the list and
    /// wake it, as a searcher.
    #[must_use = "true means that the caller must wake one sleeper"]
    pub(crate) fn claim_wake(&self) -> bool {
        // Partner: the fence in `announce_sleep`.
        fence(SeqCst);
        self.sleeper_to_searcher(|w| searching(w) == 0)
    }

    /// One sleeper becomes a searcher, if there is one and `allowed`.
    fn sleeper_to_searcher(&self, allowed: impl Fn(u64) -> bool) -> bool {
        perturb::point("idle: claiming");
        self.change(|w| (sleeping(w) > 0 && allowed(w)).then(|| w - SLEEPER + SEARCHER + AWAKE))
    }

    // ---- more processors, or fewer ----

    /// Called under the list's lock, not in the list: a processor that was awake goes out of use.
    /// Afterwards the caller must check everything as a sleeper does, and wake a sleeper for any
    /// work that it sees.
    pub(crate) fn retire(&self, was_searching: bool) {
        self.stop(was_searching, 0);
        // Partner: the fence in `claim_wake`: readiers relied on us, if we searched.
        fence(SeqCst);
    }

    /// Called under the list's lock: a sleeper in it goes out of use, and leaves the list. False:
    /// all sleepers in the list are going to be woken.
    #[must_use]
    pub(crate) fn withdraw(&self) -> bool {
        self.change(|w| (sleeping(w) > 0).then(|| w - SLEEPER))
    }

    /// Called under the list's lock, with a new processor in the list, asleep. Afterwards the
    /// caller must check everything, as any sleeper does, and wake a sleeper for any work that it
    /// sees.
    pub(crate) fn appear(&self) {
        self.0.fetch_add(SLEEPER, Relaxed);
        // Partner: the fence in `claim_wake`: a readier may have found nobody to wake.
        fence(SeqCst);
    }

    // ---- for all threads ----

    /// Whether nobody sleeps or searches. A hint.
    #[inline(always)]
    pub(crate) fn is_everybody_busy(&self) -> bool {
        self.0.load(Relaxed) as u32 == 0
    }

    /// How many processors are awake, woken ones that do not run yet included.
    pub(crate) fn awake(&self) -> u32 {
        awake(self.0.load(Relaxed))
    }

    /// How many processors sleep.
    pub(crate) fn sleeping(&self) -> u32 {
        sleeping(self.0.load(Relaxed))
    }

    /// How many processors search.
    pub(crate) fn searching(&self) -> u32 {
        searching(self.0.load(Relaxed))
    }
}

fn sleeping(word: u64) -> u32 {
    word as u16 as u32
}

fn searching(word: u64) -> u32 {
    (word >> 16) as u16 as u32
}

fn awake(word: u64) -> u32 {
    (word >> 32) as u32
}

// ==== the sleepers ====

pub(crate) struct Idlers {
    /// The idle processors.
    pub(super) processors: Lifo<Processor>,
    spares: Lifo<Worker>,
}

impl Idlers {
    pub(crate) const fn new() -> Idlers {
        Idlers {
            processors: Lifo::new(),
            spares: Lifo::new(),
        }
    }

    /// Takes out an idle processor that the idle word has counted; the caller has it in hand then.
    fn pop_processor(&mut self) -> Owned<'static> {
        let Some(processor) = self.processors.pop() else {
            die("a sleeper was counted and none is in the list")
        };
        // SAFETY: nobody owns a processor that lies in the list, and it is in there once.
        unsafe { Owned::assume(processor) }
    }

    /// Takes out the worker to wake. While other processors sleep on, a worker that only sleeps
    /// is better woken than the one that watches for events.
    fn pop_spare(&mut self) -> Option<&'static Worker> {
        let worker = self.spares.pop()?;
        if self.processors.iter().next().is_none() || !worker.parker.is_collecting() {
            return Some(worker);
        }
        let second = self.spares.pop();
        if second.is_some() {
            self.spares.push(worker);
        }
        second.or(Some(worker))
    }
}

/// Why a worker without a processor goes on.
pub(crate) enum Rested {
    /// It has a processor again; it searches if told so.
    Working { searching: bool },
    /// The cluster stops, or has workers enough.
    Dismissed,
}

impl Cluster {
    /// A thread was made ready that others could run: wakes a sleeper unless a processor searches.
    #[inline]
    pub(crate) fn notify(&'static self) {
        if self.idle.claim_wake() {
            self.wake_claimed();
        }
    }

    /// Wakes the sleeper that a successful claim stands for.
    #[cold]
    #[inline(never)]
    fn wake_claimed(&'static self) {
        perturb::point("notify: claimed");
        let mut idlers = self.idlers.lock();
        let processor = idlers.pop_processor();
        match idlers.pop_spare() {
            Some(worker) => {
                drop(idlers);
                perturb::point("notify: popped");
                self.wake_ups.add_shared(1);
                worker.searching.set(true);
                processor.give_to(worker);
                perturb::point("notify: given");
                worker.parker.wake();
            }
            None => {
                // No kernel thread is there to run the processor, so the processor goes back to sleep. The spawner makes a
                // worker, which looks for work first of all.
                self.put_to_sleep(&mut idlers, processor, true);
                drop(idlers);
                self.spawner.call();
            }
        }
        // The monitor must be awake while a processor is, or while a worker is missing.
        self.monitor.kick();
    }

    /// Puts a processor to sleep that nobody owns: the processor is idle from now on, or retired if there are too
    /// many. Afterwards the caller looks at every queue.
    fn put_to_sleep(&self, idlers: &mut Idlers, mut processor: Owned<'static>, searching: bool) {
        probe::worker_idle(&mut processor);
        if processor.is_surplus() {
            self.idle.retire(searching);
            // Release: its owners' changes, for the spawner, which owns it now; partner: Acquire in `is_retired`.
            processor.retired.store(true, Release);
            self.spawner.ring();
        } else {
            idlers.processors.push(processor.shared());
            self.idle.announce_sleep(searching);
        }
    }

    /// Rests a processor that found nothing. On return the worker has a processor and either was
    /// woken for work or has seen some itself; or it is dismissed.
    #[cold]
    #[inline(never)]
    pub(crate) fn rest(&'static self, run: &mut RunLoop, searching: bool) -> Rested {
        let worker = run.worker();
        if let Some(processor) = run.surrender() {
            perturb::point("rest: surrendered");
            processor.worker.store(None, Relaxed);
            self.put_to_sleep(&mut self.idlers.lock(), processor, searching);
            perturb::point("rest: announced");
        } else if let Some(green) = worker.handed.take() {
            // The monitor has taken the processor because of an earlier look at this worker (`processor`). The thread is
            // locked to this worker, so the worker sleeps until the thread is handed over to it again.
            worker.use_native_tls();
            ready_globally(green, Readied::Yielded);
            worker.sleep_until_woken();
            return Rested::Working { searching: false };
        } else if searching && self.idle.found() {
            self.notify();
        }
        // `wait_for_processor` begins with the look for work that must follow the announcement: see `idle.md`.
        self.wait_for_processor(run)
    }

    /// A worker without a processor: spare until somebody gives it one.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_for_processor(&'static self, run: &mut RunLoop) -> Rested {
        let worker = run.worker();
        worker.use_native_tls();
        let spares = {
            let mut idlers = self.idlers.lock();
            idlers.spares.push(worker);
            idlers.spares.len()
        };
        let mut retire_at = match spares > SPARES_KEPT {
            true => clock::now() + IDLE_BEFORE_RETIREMENT,
            false => NEVER,
        };
        perturb::point("spare: listed");
        // False: a waker has chosen the worker already, and will wake it.
        let withdraws = || self.idlers.lock().spares.remove(worker);
        let mut looks = true;
        let (searching, arrivals) = loop {
            if self.stopping.load(SeqCst) && withdraws() {
                return Rested::Dismissed;
            }
            // A waker may have found no spare before this worker became one, so each new spare looks once. Afterwards a
            // spare looks only when the deadline that it watched has come.
            if looks && self.something_to_do() && self.get_up(worker) {
                break (true, None);
            }
            let watched = self.watch_deadline();
            let before = clock::now();
            let (is_woken, ready, collected) = self.nap(worker, watched, retire_at);
            let now = clock::now();
            clock::note(now);
            if watched.is_some() {
                self.watched.watch_no_more();
            }
            perturb::point("spare: slept");
            if is_woken {
                break (worker.searching.replace(false), Some((ready, now - before)));
            }
            if ready.len() != 0 {
                if self.get_up(worker) {
                    // The worker does not search: it has found its work.
                    stop_searching(self);
                    break (false, Some((ready, now - before)));
                }
                events::pass_on(ready);
            }
            looks = watched.is_some_and(|deadline| now >= deadline);
            if now >= retire_at && kernel_thread::has_children() {
                retire_at = now + IDLE_BEFORE_RETIREMENT;
            }
            // A worker that has watched for events does not retire: no other worker would watch in its place.
            if now >= retire_at && !looks && !collected && withdraws() {
                if watched.is_some() {
                    // The monitor must see to the deadline, which no sleeper watches now.
                    self.monitor.kick();
                }
                return Rested::Dismissed;
            }
        };
        if let Some((ready, slept_for)) = arrivals {
            events::settle(run, ready, slept_for);
        }
        Rested::Working { searching }
    }

    /// One sleep of a spare: by collecting events, if nobody else does, or on its wake word. Returns whether the worker was
    /// woken, the threads that events have made ready meanwhile, and whether the worker had the turn at collecting them.
    fn nap(&self, worker: &Worker, watched: Option<u64>, retire_at: u64) -> (bool, Fifo, bool) {
        // While no processor sleeps, the worker cannot get one, and leaves the events to the workers that have one.
        let has_prospect = self.idle.sleeping() != 0;
        let turn = has_prospect.then(events::turn).flatten();
        perturb::point("spare: sleeping");
        let Some(turn) = turn else {
            let until = watched.unwrap_or(NEVER).min(retire_at);
            let is_woken = worker.parker.sleep((until != NEVER).then_some(until));
            return (is_woken, Fifo::new(), false);
        };
        let (is_woken, ready) = worker.parker.sleep_collecting(&turn, watched);
        (is_woken, ready, true)
    }

    /// Sends a sleeper to collect events.
    pub(super) fn send_to_watch(&'static self) {
        let spare = self.idlers.lock().spares.iter().next();
        match spare {
            // The worker's record stays, even if the worker has left the list meanwhile.
            Some(worker) => worker.parker.poke(),
            None => self.spawner.call(),
        }
    }

    pub(super) fn something_to_do(&self) -> bool {
        self.policy.work_for_others() == ForOthers::Work || events::is_any_timer_due(self)
    }

    /// A spare worker takes an idle processor, as a searcher. False: wakers have claimed all idle processors, or
    /// one of them has chosen this worker, and will wake it. The worker leaves the list only with a processor: else a
    /// waker could find no worker while this one is about to sleep.
    fn get_up(&'static self, worker: &'static Worker) -> bool {
        let mut idlers = self.idlers.lock();
        if !idlers.spares.remove(worker) {
            return false;
        }
        if !self.idle.cancel_sleep() {
            idlers.spares.push(worker);
            return false;
        }
        let processor = idlers.pop_processor();
        drop(idlers);
        perturb::point("get_up: popped");
        processor.give_to(worker);
        self.monitor.kick();
        true
    }

    /// A green thread comes back from the kernel and its processor is gone: its worker, which is no spare, goes on
    /// with an idle one. `None`: wakers have claimed all of them.
    pub(crate) fn take_idle_processor(
        &'static self,
        worker: &'static Worker,
    ) -> Option<&'static Processor> {
        let mut idlers = self.idlers.lock();
        let processor = self.idle.cancel_sleep().then(|| idlers.pop_processor())?;
        drop(idlers);
        let taken = processor.shared();
        processor.give_to(worker);
        self.monitor.kick();
        // The worker does not search: it has found its work.
        if self.idle.found() {
            self.notify();
        }
        Some(taken)
    }

    /// The deadline that this sleeper watches, if it is earlier than the deadline that another one
    /// watches.
    pub(crate) fn watch_deadline(&self) -> Option<u64> {
        let earliest = events::earliest_deadline(self);
        // While every processor is awake, the monitor watches the deadlines. A worker that puts its processor to sleep later
        // watches from then on.
        if earliest == NEVER || self.idle.sleeping() == 0 {
            return None;
        }
        perturb::point("watch: earliest");
        self.watched.watch(earliest)
    }

    /// Puts a processor to sleep that was taken from its worker: no thread waits for the processor.
    pub(super) fn put_taken_to_sleep(&'static self, mut processor: Owned<'static>) {
        processor.worker.store(None, Relaxed);
        events::flush(&mut processor);
        // The policy moves the threads that only this processor's owner could take.
        self.policy.leave(processor.seat());
        perturb::point("put_taken_to_sleep: left");
        self.put_to_sleep(&mut self.idlers.lock(), processor, false);
        perturb::point("put_taken_to_sleep: asleep");
        if self.something_to_do() {
            self.notify();
        }
        // The worker does not go to sleep here, so it does not watch the deadlines: the monitor must.
        self.monitor.kick();
    }

    /// How many workers have no processor and wait for one.
    pub(crate) fn spare_count(&self) -> usize {
        self.idlers.lock().spares.len()
    }
}

// ==== the deadline that is watched ====

pub(crate) struct Watched(AtomicU64);

impl Watched {
    /// Nobody watches.
    pub(crate) fn new() -> Watched {
        Watched(AtomicU64::new(NEVER))
    }

    /// The caller, who is about to sleep, watches `earliest`, unless another sleeper watches a deadline as
    /// early (`None`).
    pub(crate) fn watch(&self, earliest: u64) -> Option<u64> {
        // SeqCst: a timer was set before; partner: the fence in `watch_no_more`. So one of two that watch in
        // turn sees the earlier deadline.
        fence(SeqCst);
        let watched = self.0.fetch_min(earliest, Relaxed);
        (earliest < watched).then_some(earliest)
    }

    /// The caller, who watched, is awake.
    pub(crate) fn watch_no_more(&self) {
        self.0.store(NEVER, Relaxed);
        // SeqCst: the caller's next look at the timers comes after it; partner: the fence in `watch`.
        fence(SeqCst);
    }
}

// ==== the wake word ====

/// Nobody has woken or poked the owner.
const ASLEEP: u32 = 0;
/// The owner was given the thing that it waits for; of the monitor: it runs.
const WOKEN: u32 = 1;
/// The owner is to look again for the thing that it waits for.
const POKED: u32 = 2;
/// The owner sleeps by collecting events.
const COLLECTING: u32 = 3;

/// The word that one kernel thread sleeps on: `ASLEEP`, until another thread wakes it. See the file's header.
#[derive(Default)]
pub(crate) struct Parker(AtomicU32);

impl Parker {
    /// The owner takes what the word says.
    fn take(&self) -> u32 {
        // Acquire: the things that the owner was given; partner: Release in `wake` and `poke`.
        self.0.swap(ASLEEP, Acquire)
    }

    /// Blocks until [`wake`](Parker::wake) or [`poke`](Parker::poke), or until `deadline`. True: the owner was woken. If
    /// not, the owner was disturbed: by a poke, or its time is up.
    pub(crate) fn sleep(&self, deadline: Option<u64>) -> bool {
        loop {
            match self.take() {
                ASLEEP if deadline.is_none_or(|deadline| clock::now() < deadline) => {
                    futex::wait(&self.0, ASLEEP, deadline);
                }
                told => return told == WOKEN,
            }
        }
    }

    /// The same, but collects events meanwhile; some events disturb the owner, too.
    pub(crate) fn sleep_collecting(&self, turn: &Turn, deadline: Option<u64>) -> (bool, Fifo) {
        let nanos = deadline.map(|d| d.saturating_sub(clock::now()));
        let announced = self
            .0
            .compare_exchange(ASLEEP, COLLECTING, Relaxed, Relaxed);
        let ready = match announced {
            Ok(_) => turn.collect(nanos),
            Err(_) => Fifo::new(),
        };
        (self.take() == WOKEN, ready)
    }

    /// Ends its sleep, for good: it has been given the thing that it waits for.
    pub(crate) fn wake(&self) {
        // Release: the things that it was given; partner: Acquire in `take`.
        if self.0.swap(WOKEN, Release) == COLLECTING {
            events::ring();
        } else {
            futex::wake(&self.0, 1);
        }
    }

    /// Ends its sleep, or the next one, without a reason of its own.
    pub(crate) fn poke(&self) {
        // Release: the reason, such as that the cluster stops; partner: Acquire in `take`.
        let poked = self.0.compare_exchange(ASLEEP, POKED, Release, Relaxed);
        if poked.is_ok() {
            futex::wake(&self.0, 1);
        }
    }

    /// Whether it sleeps by collecting events. A hint.
    pub(crate) fn is_collecting(&self) -> bool {
        self.0.load(Relaxed) == COLLECTING
    }

    /// Whether somebody has woken it since its last sleep. A hint.
    pub(crate) fn is_woken(&self) -> bool {
        self.0.load(Relaxed) == WOKEN
    }

    // ---- the monitor ----

    /// The word of the monitor, which runs.
    pub(crate) fn awake() -> Parker {
        Parker(AtomicU32::new(WOKEN))
    }

    /// The monitor must not sleep: a processor has woken up, or nobody watches a deadline.
    #[inline]
    pub(crate) fn kick(&self) {
        // SeqCst: partner: the fence in `sleep_beside`: the monitor sees what the caller has done, or we
        // see that it sleeps.
        fence(SeqCst);
        if self.0.load(Relaxed) == ASLEEP {
            self.wake();
        }
    }

    /// The monitor is to look soon, asleep or not: a thread was handed over, or the cluster stops.
    pub(crate) fn rouse(&self) {
        // SeqCst: partner: the fence in `sleep_beside`: the monitor sees what the caller has done, or we are
        // the last to change the word.
        fence(SeqCst);
        // The monitor may be awake and wait for its next look: this call ends that wait, too.
        self.wake();
    }

    /// The monitor sleeps until it is kicked (true), or until a deadline that no sleeping worker watches.
    pub(crate) fn sleep_beside(
        &self,
        cluster: &'static Cluster,
        not_before: u64,
        everybody_sleeps: impl Fn() -> bool,
    ) -> bool {
        self.0.store(ASLEEP, Relaxed);
        perturb::point("monitor: asleep");
        // SeqCst: partner: the fences in `kick` and `rouse`.
        fence(SeqCst);
        let mut kicked = true;
        while kicked && self.0.load(Relaxed) == ASLEEP && everybody_sleeps() {
            let watches = cluster.watch_deadline();
            let until = watches.map(|deadline| deadline.max(not_before));
            futex::wait(&self.0, ASLEEP, until);
            if let Some(deadline) = watches {
                cluster.watched.watch_no_more();
                kicked = clock::now() < deadline;
            }
        }
        self.0.store(WOKEN, Relaxed);
        kicked
    }

    /// The monitor waits for its next look, which [`rouse`](Parker::rouse) makes come at once, mostly: if it is just
    /// about to wait, it waits until then.
    pub(crate) fn rest(&self, until: u64) {
        futex::wait(&self.0, WOKEN, Some(until));
    }
}
