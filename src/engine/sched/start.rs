//! A thread's first time on a processor, when it gets a stack (with a thread-local block), and
//! its last, when it leaves it to others.
//!
//! A thread that has been spawned is a record in a queue. Most threads run to their end without
//! waiting, and the next one can have the same stack, still in the CPU's caches: ten thousand spawned
//! at once need a few stacks, not ten thousand.
//!
//! A new stack needs memory from malloc, whose locks a preempted thread may hold; so the scheduler
//! takes free stacks only, from its processor's cache and the common list. Threads make sure that
//! there is one, while they are preemptible:
//!
//! - a processor begins with one;
//! - a thread that spawns makes one if its processor (or, from outside, the common list) has none
//!   ([`stock_up`]; if there is no memory for one, `spawn` fails);
//! - a thread that has moved into its processor's last stack, or had to wait for one, makes another
//!   before anything else.
//!
//! That can be too late, as when such a thread is preempted at once. Then the thread without a stack
//! waits in a list, for a *finder*: the first worker with such a thread gives its processor away,
//! and is thus free to wait for malloc, if another worker is there to run the queues: a thread in a
//! queue may hold malloc's lock, and a worker cannot be made without that lock either. (If there is
//! none yet, the thread goes to the back of the queue while the spawner makes one.) The finder makes a
//! stack for the first thread of the list, which will make the next one itself,
//! and puts the others back into the queue: while it was at work, a
//! processor without a stack has sent there every new thread that it came by, thousands perhaps, and
//! most of them can have the stack of one that ends. It leaves when the list is empty. If there is no
//! memory it puts all back after a while.
//!
//! Invariants:
//! 1. A thread is in the list only if there is a finder that will look into it again: both are
//!    under the list's lock.
//! 2. A stack in a processor's cache is furnished.
//!
//! It needs no orderings of its own: a thread, a record or a stack changes hands by a queue, by a
//! list under its lock, or with the processor.

use super::idle::Rested;
use super::{Cluster, Owned, RunLoop, Worker, current, ready_globally};
use crate::engine::policy::Readied;
use crate::engine::sched::list::Fifo;
use crate::engine::sched::thread_stack::ThreadStack;
use crate::engine::sched::tuning::{PAUSE, SAY_SO};
use crate::engine::sched::{Green, records};
use crate::engine::sys::lock::Lock;
use crate::engine::sys::perturb;
use crate::engine::{stack, tls};
use std::io::{self, Write};

/// Threads that have no stack.
pub(crate) struct WaitingForStack(Lock<List>);

struct List {
    waiting: Fifo,
    has_finder: bool,
}

impl WaitingForStack {
    pub(crate) const fn new() -> WaitingForStack {
        WaitingForStack(Lock::new(List {
            waiting: Fifo::new(),
            has_finder: false,
        }))
    }

    /// True: the caller is the finder from now on.
    fn add(&self, green: &'static Green) -> bool {
        let mut list = self.0.lock();
        list.waiting.push(green);
        !core::mem::replace(&mut list.has_finder, true)
    }

    /// The thread to find a room for next; `None`: the caller is the finder no longer.
    fn next(&self) -> Option<&'static Green> {
        let mut list = self.0.lock();
        let green = list.waiting.pop();
        list.has_finder = green.is_some();
        green
    }

    /// All threads that wait; the caller is still the finder.
    fn take(&self) -> Fifo {
        core::mem::take(&mut self.0.lock().waiting)
    }
}

/// `green`, which is new, moves into a stack, if there is one at hand.
#[inline]
pub(super) fn move_in(processor: &mut Owned<'_>, green: &'static Green) -> bool {
    #[cfg(test)]
    if tests::refuses(processor.cluster()) {
        return false;
    }
    let stacks = &mut processor.own().stacks;
    if !stacks.fetch() {
        return false;
    }
    let Some(slot) = stacks.pop() else {
        return false;
    };
    green.took_last.set(stacks.is_empty());
    green.move_in(ThreadStack::on(slot));
    true
}

/// There was no room for `green`: it waits for one. This worker makes it, unless another worker
/// is the finder already.
#[cold]
#[inline(never)]
pub(super) fn find_stack(run: &mut RunLoop, green: &'static Green) -> Rested {
    let worker = run.worker();
    worker.use_native_tls();
    let cluster = worker.cluster();
    // A spare that gets a processor meanwhile runs the queues, too; if it is held up by a lock of malloc's in its turn,
    // the monitor evicts what it runs.
    if cluster.spare_count() == 0 && !cluster.spawner.is_refused() {
        cluster.spawner.call();
        ready_globally(green, Readied::Arrived);
        return Rested::Working { searching: false };
    }
    if !cluster.waiting_for_stack.add(green) {
        return Rested::Working { searching: false };
    }
    perturb::point("find_stack: waits");
    current::set_scheduling(false);
    if let Some(processor) = run.surrender() {
        cluster.lay_down(processor);
    }
    let mut failures = 0_u32;
    while let Some(green) = cluster.waiting_for_stack.next() {
        match ThreadStack::find(cluster.config.stack_size) {
            Ok(stack) => {
                // Its processor may have no room for the next thread either.
                green.took_last.set(true);
                green.move_in(stack);
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                if failures == SAY_SO {
                    // This is not `eprintln!`, which panics if nobody reads it.
                    let text = "greenthread: threads that were spawned wait for a stack";
                    let _ = writeln!(io::stderr(), "{text}: {error}");
                }
                std::thread::sleep(PAUSE);
            }
        }
        // The policy has had each of them as a new thread before.
        ready_globally(green, Readied::Arrived);
        let mut others = cluster.waiting_for_stack.take();
        while let Some(other) = others.pop() {
            ready_globally(other, Readied::Arrived);
        }
    }
    cluster.wait_for_processor(run)
}

/// The thread has ended: its block is reset, and others can use its stack and its record.
#[inline(always)]
pub(super) fn bury(
    worker: &'static Worker,
    processor: Option<&mut Owned<'_>>,
    green: &'static Green,
) {
    let cluster = worker.cluster();
    green.locks.set(0);
    let stack = green.move_out();
    // SAFETY: the thread has ended, nobody uses its block.
    unsafe { tls::recycle(stack.thread_pointer) };
    stack.fiber.end(stack.slot().bottom(), stack.slot().top());
    match processor {
        Some(processor) => {
            let own = processor.own();
            own.stacks.push(stack.slot());
            own.records.push(green);
            processor.counts.ended.add(1);
        }
        None => {
            stack::release(stack.slot());
            records::release(green);
            cluster.live_count.outside.ended.add_shared(1);
        }
    }
    perturb::point("bury: counted");
    if cluster.was_last() {
        worker.use_native_tls();
        say_drained(cluster);
    }
}

#[cold]
#[inline(never)]
fn say_drained(cluster: &'static Cluster) {
    cluster.drained.wake();
}

/// Makes sure that there is a room for the next thread that starts: on the caller's processor, if
/// the caller is a green thread of `cluster`, else in the common list. Preemptible.
#[cold]
#[inline(never)]
pub(crate) fn stock_up(cluster: &'static Cluster) -> io::Result<()> {
    let size = cluster.config.stack_size;
    let is_stocked = match super::enter() {
        Some(mut entered) if core::ptr::eq(entered.worker().cluster(), cluster) => {
            entered.processor().own().stacks.fetch()
        }
        _ => {
            let _off = current::preemption_off();
            stack::is_stocked(size)
        }
    };
    if is_stocked {
        return Ok(());
    }
    let stack = ThreadStack::find(size)?;
    match super::enter() {
        Some(mut entered) if core::ptr::eq(entered.worker().cluster(), cluster) => {
            entered.processor().own().stacks.keep(stack.slot());
        }
        _ => {
            let _off = current::preemption_off();
            stack::release(stack.slot());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::atomic::{AtomicUsize, Ordering};
    use crate::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Ready, Seat};
    use crate::runtime::{Mode, Runtime};
    use std::sync::Arc;

    /// Clusters with stacks of this size find no stack at hand, every other time.
    const SCARCE: usize = 2 * stack::MIN_SIZE;
    static ASKED: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn refuses(cluster: &Cluster) -> bool {
        cluster.config.stack_size == SCARCE
            && ASKED.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
    }

    /// One queue, and a count of the threads that were given as new.
    #[derive(Default)]
    struct Counting(Lock<Queue>, Arc<AtomicUsize>);

    impl Policy for Counting {
        fn ready(&self, thread: Ready, how: Readied, _: Option<&Seat>) -> ForOthers {
            if how == Readied::Spawned {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
            self.0.lock().push(thread);
            ForOthers::Work
        }

        fn next(&self, _: &Seat, _: Others) -> Option<Next> {
            self.0.lock().pop().map(Next::from)
        }

        fn len(&self, processor: Option<usize>) -> usize {
            processor.map_or_else(|| self.0.lock().len(), |_| 0)
        }
    }

    /// Threads that find no stack, from outside and from each other, all run, once, and are new to
    /// the policy once.
    #[test]
    fn who_finds_no_room_gets_one() {
        const THREADS: usize = 2_000;
        let spawned = Arc::new(AtomicUsize::new(0));
        let runtime = Runtime::builder()
            .policy(Counting(Lock::default(), spawned.clone()))
            .processors(4)
            .stack_size(SCARCE)
            .build()
            .unwrap();
        if runtime.mode() == Mode::Kernel {
            return;
        }
        let runs: Arc<Vec<AtomicUsize>> =
            Arc::new((0..2 * THREADS).map(|_| AtomicUsize::new(0)).collect());
        let threads = (0..THREADS).map(|i| {
            let runs = runs.clone();
            runtime.spawn(move || {
                let others = runs.clone();
                let child =
                    crate::spawn(move || others[THREADS + i].fetch_add(1, Ordering::Relaxed));
                runs[i].fetch_add(1, Ordering::Relaxed);
                if i % 3 == 0 {
                    crate::yield_now();
                }
                assert_eq!(child.join().unwrap(), 0);
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
        assert!(ASKED.load(Ordering::Relaxed) >= 2 * THREADS);
        assert_eq!(spawned.load(Ordering::Relaxed), 2 * THREADS);
        runtime.shutdown();
    }
}
