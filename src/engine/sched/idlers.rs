//! The idle processors, which sleep, and the machines without a processor. Each kind has a stack,
//! so that the one that went to sleep last is woken first: its caches are warm.
//!
//! The protocol that loses no wake-up is `idle`; its proof is in `idle.md`. Here are its steps,
//! with the lists:
//! - [`Cluster::notify`]: something was made ready; wake a sleeper if no processor searches.
//! - [`Cluster::rest`]: a processor found nothing: announce, look again, sleep.
//! - [`Cluster::take_idle_processor`]: a thread comes back from the kernel without a processor.
//!
//! Invariant: a processor in the list is owned by no machine; a machine in the list owns no
//! processor.
//!
//! *Timers of sleeping processors.* A machine that lies down watches the earliest deadline of the
//! cluster unless another sleeper watches one as early (`watched`). While any processor is awake
//! the monitor watches; when it goes to sleep itself it does as a machine does. A machine that
//! stops watching without a processor in hand kicks the monitor. So does a machine that arms a
//! timer and lays a processor down without lying down itself.
//!
//! *Children.* A process may ask for a signal when the kernel thread that made it ends (PR_SET_PDEATHSIG), and it means
//! the thread. So a machine whose kernel thread has children does not retire. One that ends with the thread that
//! is locked to it *lingers* if it had children of other threads before: it runs nobody, until they are gone or the cluster
//! ends.

use core::ptr::NonNull;

use crate::engine::atomic::Ordering;
use crate::engine::green::fifo::Fifo;
use crate::engine::policy::{ForOthers, Readied};
use crate::engine::probe;
use crate::engine::sched::events::{Turn, events};
use crate::engine::sched::lifo::Lifo;
use crate::engine::sched::tuning::{IDLE_BEFORE_RETIREMENT, SPARES_KEPT};
use crate::engine::sched::wake::Slept;
use crate::engine::sched::{Cluster, Machine, Owned, Processor, RunLoop, io, timers};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::{kernel_thread, perturb};

pub(crate) struct Idlers {
    /// The idle processors.
    pub(super) processors: Lifo<Processor>,
    spares: Lifo<Machine>,
    lingering: Lifo<Machine>,
    /// The recruiter is to look at the stacks that the processors have left (`stack::reclaim`).
    pub(super) look_is_due: bool,
}

impl Idlers {
    pub(crate) const fn new() -> Idlers {
        Idlers {
            processors: Lifo::new(),
            spares: Lifo::new(),
            lingering: Lifo::new(),
            look_is_due: false,
        }
    }

    /// Takes an idle processor out, which is in the caller's hand then.
    fn pop_processor(&mut self) -> Option<Owned<'static>> {
        let processor = self.processors.pop()?;
        // SAFETY: nobody owns a processor that lies in the list, and it is in there once.
        Some(unsafe { Owned::assume(processor) })
    }

    /// Takes out the machine to wake. While other processors sleep on, a machine that only sleeps
    /// is better woken than the one that watches for events.
    fn pop_spare(&mut self) -> Option<&'static Machine> {
        let machine = self.spares.pop()?;
        if self.processors.top().is_none() || !machine.is_collecting() {
            return Some(machine);
        }
        let second = self.spares.pop();
        if second.is_some() {
            self.spares.push(machine);
        }
        second.or(Some(machine))
    }
}

/// Why a machine without a processor goes on.
pub(crate) enum Rested {
    /// It has a processor again; it searches if told so.
    Working { searching: bool },
    /// The cluster stops, or has machines enough.
    Dismissed,
}

/// One sleep of a machine without a processor, when it is over.
struct Nap {
    slept: Slept,
    /// The threads that events have made ready meanwhile.
    ready: Fifo,
    /// The deadline that it watched.
    watched: Option<u64>,
    /// Whether it had the turn at collecting events.
    collected: bool,
}

impl Cluster {
    /// A thread was made ready that others could run: wakes a sleeper unless a processor searches.
    #[inline]
    pub(crate) fn notify(&'static self) {
        perturb::point("notify");
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
        let Some(processor) = idlers.pop_processor() else {
            crate::engine::sys::die("a sleeper was claimed and none is in the list")
        };
        match idlers.pop_spare() {
            Some(machine) => {
                drop(idlers);
                perturb::point("notify: popped");
                self.wake_ups.add_shared(1);
                machine.searching.set(true);
                processor.give_to(machine);
                perturb::point("notify: given");
                machine.wake();
                self.monitor.kick_if_asleep();
            }
            None => {
                // There is no kernel thread for it: it sleeps on, and the recruiter's new machine
                // looks for work first of all.
                self.lie_down(&mut idlers, processor, true);
                drop(idlers);
                self.recruiter.call();
                // The monitor watches over the shortage.
                self.monitor.kick_if_asleep();
            }
        }
    }

    /// Lays down a processor that nobody owns: it is idle from now on, or retired if there are too
    /// many. Afterwards the caller looks at every queue. True: it has retired.
    fn lie_down(
        &self,
        idlers: &mut Idlers,
        mut processor: Owned<'static>,
        was_searching: bool,
    ) -> bool {
        probe::worker_idle(&mut processor);
        let retires = processor.is_surplus();
        if retires {
            self.idle.retire(was_searching);
            // Release: its owners' changes, for the recruiter, which owns it now.
            processor.retired.store(true, Ordering::Release);
            self.recruiter.ring();
        } else {
            idlers.processors.push(processor.shared());
            self.idle.announce_sleep(was_searching);
        }
        retires
    }

    /// Rests a processor that found nothing. On return the machine has a processor and either was
    /// woken for work or has seen some itself; or it is dismissed.
    #[cold]
    #[inline(never)]
    pub(crate) fn rest(&'static self, run: &mut RunLoop, searching: bool) -> Rested {
        let machine = run.machine();
        let Some(processor) = run.surrender() else {
            // The monitor came first, with an old look in mind (`ownership`).
            if let Some(green) = machine.handed.take() {
                // The thread is locked to this machine, which therefore waits for nothing else.
                machine.come_home();
                crate::engine::sched::ready_globally(green, Readied::Yielded);
                machine.sleep_until_woken();
                return Rested::Working { searching: false };
            }
            if searching && self.idle.found() {
                self.notify();
            }
            return self.wait_for_processor(run);
        };
        perturb::point("rest: surrendered");
        processor.machine.store(None, Ordering::Relaxed);
        crate::engine::green::current::set_scheduling(false);
        let retired = self.lie_down(&mut self.idlers.lock(), processor, searching);
        perturb::point("rest: announced");
        // The look after the announcement: see `idle.md`.
        if self.something_to_do() {
            if retired {
                self.notify();
            } else if self.get_up(machine).is_some() {
                crate::engine::green::current::set_scheduling(true);
                return Rested::Working { searching: true };
            }
        }
        self.wait_for_processor(run)
    }

    /// A machine without a processor: spare until somebody gives it one.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_for_processor(&'static self, run: &mut RunLoop) -> Rested {
        let machine = run.machine();
        machine.come_home();
        crate::engine::green::current::set_scheduling(false);
        let surplus = {
            let mut idlers = self.idlers.lock();
            idlers.spares.push(machine);
            idlers.spares.len() > SPARES_KEPT
        };
        let mut retire_at = if surplus {
            clock::now() + IDLE_BEFORE_RETIREMENT
        } else {
            NEVER
        };
        perturb::point("spare: listed");
        let mut look = true;
        loop {
            if self.stopping.load(Ordering::SeqCst) && self.withdraw(machine) {
                return Rested::Dismissed;
            }
            // A waker may have found no machine, so each new spare looks once. Later, it looks only
            // for a timer.
            if look && self.something_to_do() && self.rise(machine) {
                crate::engine::green::current::set_scheduling(true);
                return Rested::Working { searching: true };
            }
            let nap = self.nap(machine, retire_at);
            if nap.slept == Slept::Woken {
                if machine.dismissed.replace(false) {
                    io::pass_on(nap.ready);
                    return Rested::Dismissed;
                }
                crate::engine::green::current::set_scheduling(true);
                io::settle(run, nap.ready);
                return Rested::Working {
                    searching: machine.searching.replace(false),
                };
            }
            if nap.ready.len() != 0 {
                if self.rise(machine) {
                    crate::engine::green::current::set_scheduling(true);
                    // It does not search: it has found its work.
                    crate::engine::sched::stop_searching(self);
                    io::settle(run, nap.ready);
                    return Rested::Working { searching: false };
                }
                io::pass_on(nap.ready);
            }
            let now = clock::now();
            look = nap.watched.is_some_and(|deadline| now >= deadline);
            if now >= retire_at && kernel_thread::has_children() {
                retire_at = now + IDLE_BEFORE_RETIREMENT;
            }
            // A machine that watches for events does not retire: nobody would watch.
            if now >= retire_at && !look && !nap.collected && self.withdraw(machine) {
                if nap.watched.is_some() {
                    // Nobody watches that deadline now.
                    self.monitor.kick();
                }
                return Rested::Dismissed;
            }
        }
    }

    /// One sleep of a spare: by collecting events, if nobody else does, or on its wake word.
    fn nap(&self, machine: &'static Machine, retire_at: u64) -> Nap {
        let watched = self.watch_deadline();
        // A machine without prospect of a processor leaves the events to those that have one.
        let turn = match self.idle.sleeping() {
            0 => None,
            _ => events().turn(),
        };
        perturb::point("spare: sleeping");
        let (slept, ready) = match &turn {
            Some(turn) => self.collect_asleep(machine, turn, watched),
            None => {
                let until = watched.unwrap_or(NEVER).min(retire_at);
                let slept = machine.sleep((until != NEVER).then_some(until));
                (slept, Fifo::new())
            }
        };
        clock::note(clock::now());
        let collected = turn.is_some();
        drop(turn);
        if watched.is_some() {
            self.watched.watch_no_more();
        }
        perturb::point("spare: slept");
        Nap {
            slept,
            ready,
            watched,
            collected,
        }
    }

    /// Sleeps by collecting events.
    fn collect_asleep(
        &self,
        machine: &'static Machine,
        turn: &Turn,
        deadline: Option<u64>,
    ) -> (Slept, Fifo) {
        let before = clock::now();
        let (slept, ready) = machine.sleep_collecting(turn, deadline);
        if ready.len() != 0 {
            machine.events_after.set(clock::now() - before);
        }
        (slept, ready)
    }

    /// Sends a sleeper to collect events.
    pub(super) fn send_to_watch(&'static self) {
        let spare = {
            let idlers = self.idlers.lock();
            idlers.spares.top()
        };
        match spare {
            // The machine's record stays, even if the machine has left the list meanwhile.
            Some(machine) => machine.poke(),
            None => self.recruiter.call(),
        }
    }

    pub(super) fn something_to_do(&self) -> bool {
        self.policy.work_for_others() == ForOthers::Work || timers::any_due(self)
    }

    /// A machine that owns nothing and is in no list takes an idle processor, as a searcher.
    /// `None`: wakers have claimed all of them.
    fn get_up(&'static self, machine: &'static Machine) -> Option<&'static Processor> {
        let mut idlers = self.idlers.lock();
        let processor = self
            .idle
            .cancel_sleep()
            .then(|| idlers.pop_processor().or_else(missing))?;
        drop(idlers);
        perturb::point("get_up: popped");
        Some(self.put_to_work(machine, processor?))
    }

    /// The same for a machine among the spares. False: the machine is still there, or a waker has
    /// chosen it already and will wake it. It leaves the list only with a processor: else a waker
    /// could find no machine while this one is about to sleep.
    fn rise(&'static self, machine: &'static Machine) -> bool {
        let mut idlers = self.idlers.lock();
        if !idlers.spares.remove(machine) {
            return false;
        }
        if !self.idle.cancel_sleep() {
            idlers.spares.push(machine);
            return false;
        }
        let processor = idlers.pop_processor().or_else(missing);
        drop(idlers);
        perturb::point("rise: popped");
        processor
            .map(|processor| self.put_to_work(machine, processor))
            .is_some()
    }

    fn put_to_work(
        &'static self,
        machine: &'static Machine,
        processor: Owned<'static>,
    ) -> &'static Processor {
        let shared = processor.shared();
        processor.give_to(machine);
        self.monitor.kick_if_asleep();
        shared
    }

    /// Takes `machine` out of the spares; false: a waker has chosen it already and will wake it.
    fn withdraw(&self, machine: &'static Machine) -> bool {
        self.idlers.lock().spares.remove(machine)
    }

    /// The deadline that this sleeper watches, if it is earlier than the deadline that another one
    /// watches.
    pub(crate) fn watch_deadline(&self) -> Option<u64> {
        let earliest = timers::earliest(self);
        // While a processor is awake the monitor watches; a machine that goes to sleep later
        // watches then.
        if earliest == NEVER || self.idle.sleeping() == 0 {
            return None;
        }
        perturb::point("watch: earliest");
        self.watched.watch(earliest)
    }

    /// A green thread comes back from the kernel and its processor is gone: it goes on with an idle
    /// one.
    pub(crate) fn take_idle_processor(
        &'static self,
        machine: &'static Machine,
    ) -> Option<NonNull<Processor>> {
        let processor = self.get_up(machine)?;
        // It does not search: it has found its work.
        if self.idle.found() {
            self.notify();
        }
        Some(NonNull::from(processor))
    }

    /// The monitor lays down the processor that it has taken, since nothing waits for it.
    pub(super) fn lay_to_rest(&'static self, mut processor: Owned<'static>) {
        processor.machine.store(None, Ordering::Relaxed);
        io::flush(&mut processor);
        // Some of its threads would be out of reach of machines that get another processor.
        self.policy.leave(&processor.seat());
        perturb::point("lay_to_rest: left");
        self.lie_down(&mut self.idlers.lock(), processor, false);
        perturb::point("lay_to_rest: lain");
        if self.something_to_do() {
            self.notify();
        }
        // No machine that would watch the deadlines lies down here.
        self.monitor.kick_if_asleep();
    }

    fn pop_spare(&self) -> Option<&'static Machine> {
        self.idlers.lock().pop_spare()
    }

    /// How many machines have no processor and wait for one.
    pub(crate) fn spare_count(&self) -> usize {
        self.idlers.lock().spares.len()
    }

    /// The machine, which is to end, waits until its kernel thread has no children.
    pub(super) fn linger(&self, machine: &'static Machine) {
        self.idlers.lock().lingering.push(machine);
        loop {
            let is_over = self.stopping.load(Ordering::SeqCst) || !kernel_thread::has_children();
            if is_over && self.idlers.lock().lingering.remove(machine) {
                return;
            }
            if machine.sleep(Some(clock::now() + IDLE_BEFORE_RETIREMENT)) == Slept::Woken {
                machine.dismissed.set(false);
                return;
            }
        }
    }

    /// The cluster stops: wakes every machine that is spare or lingers, so that it ends.
    pub(crate) fn dismiss_spares(&self) {
        let pop_lingering = || self.idlers.lock().lingering.pop();
        while let Some(machine) = self.pop_spare().or_else(pop_lingering) {
            machine.dismissed.set(true);
            perturb::point("dismiss");
            machine.wake();
        }
    }
}

/// The idle word counted a sleeper that the list does not have.
fn missing() -> Option<Owned<'static>> {
    crate::engine::sys::die("a sleeper was counted and none is in the list")
}
