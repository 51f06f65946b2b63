//! A shortage of kernel threads: threads are ready, a processor is idle, and there is no machine to
//! bring the two together, because all machines are blocked, and there can be no more. There are as
//! many as there may be, or the system refuses, or the recruiter is blocked itself.
//!
//! The shortage would not end by itself: the holder of the lock that the others wait for in the
//! kernel may be among the ready threads, preempted, or back from a wait of our own. So the way out
//! needs no new kernel thread. The monitor signals a machine whose thread waits in a system call
//! that begins anew when it is interrupted (`SystemCall::begins_anew`), most often on a futex. The
//! handler (`preempt`) suspends the thread before that system call, as if it had been preempted
//! there: it goes to the global queue, behind all that are ready now, and the machine runs the
//! first of those. When it is the thread's turn it makes its call again, and the kernel looks again
//! (at the futex's word, say). To the program, the thread was slow to come to its call, as it may
//! be at any time. A wake-up that the thread was given is not lost, since then the call has
//! returned.
//!
//! So each ready thread gets a machine, one after another, as long as any thread waits on a futex
//! (a lock, a condition variable, a barrier: std's, parking_lot's and libc's), for a lock on a
//! file, for the other end of a FIFO or for a child. A thread blocked in anything else keeps its
//! kernel thread. When its call returns, it takes an idle processor and goes on
//! (`enter::recover`), and its machine runs others afterwards.
//!
//! *Doubts.* Where the kernel does not say in which call a thread is blocked (`observer`), a thread
//! that stands still is asked: the handler sees where it is, and suspends it only before such a
//! call. Any other call has been interrupted then: the system makes it again, or it fails with EINTR. A
//! sleep of std's begins anew. So, as long as a thread gets no further, the
//! monitor waits four times as long before each new question: a sleep takes 7/3 of its time at
//! most. A thread that has changed its signal mask, and may decline, is asked in the same way. The
//! price: a thread that does have another mask is not evicted, and another such thread that got on
//! unseen is not evicted soon. Nobody waits for these to go.
//!
//! *How often.* At once for each idle processor, as long as that brings progress. The pause doubles
//! each round when every ready thread has had its turn, and all evicted threads are back at the
//! wait that they were evicted from before: a program all of whose threads wait for ever costs
//! little. It also doubles when there is no thread to evict, though others get on.
//!
//! All state is the monitor's, except the reports, which are the recruiter's.

use core::fmt;
use std::io::Write;
use std::time::Duration;

use crate::engine::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::engine::green::{Green, Oddities};
use crate::engine::sched::blocked_calls::Name;
use crate::engine::sched::recruiter::Refusal;
use crate::engine::sched::{Cluster, Machine, machine, preempt, timers};
use crate::engine::sys;
use crate::engine::sys::clock::NEVER;
use crate::engine::sys::observer::{Doing, Observer};

/// How long the monitor waits for the recruiter after a call.
const PATIENCE: u64 = 10_000_000;
const SHORTEST_PAUSE: u64 = 50_000;
const LONGEST_PAUSE: u64 = 2_000_000;
/// The longest pause while there is no thread to evict.
const LONGEST_SEARCH: u64 = 10_000_000;
/// A thread that uses next to no CPU time for so long stands still.
const STANDS_STILL: u64 = 500_000;
/// How soon the monitor first asks a thread again that may not have been able to go, and the factor
/// by which each further question comes later.
const ASK_AGAIN: u64 = 10_000_000;
const LATER: u64 = 4;
/// How many blocked machines the monitor looks at to find one to evict from.
const PROBES: usize = 64;

impl Cluster {
    /// Whether there is something to run, a processor for it, and no machine.
    pub(super) fn is_short(&self) -> bool {
        self.idle.sleeping() != 0
            && (self.has_work() || timers::any_due(self))
            && self.spare_count() == 0
    }
}

/// The monitor's memory of the shortage.
pub(super) struct Shortage {
    /// Since when the recruiter has been behind.
    behind_since: u64,
    /// No thread is evicted before this time.
    next: u64,
    pause: u64,
    /// The number of preemptions of threads without a processor once all threads that were asked to
    /// go have gone.
    awaited: u64,
    /// How many threads were evicted in this round without having got any further since the last
    /// time.
    in_vain: usize,
    /// There was a thread to evict the last time.
    found: bool,
    /// The highest value of [`progress`] so far.
    progress: u64,
    /// The machine to look at next.
    turn: usize,
}

impl Shortage {
    pub(super) const fn new() -> Shortage {
        Shortage {
            behind_since: NEVER,
            next: 0,
            pause: SHORTEST_PAUSE,
            awaited: 0,
            in_vain: 0,
            found: true,
            progress: 0,
            turn: 0,
        }
    }

    /// The monitor's look. Returns the latest time of the next one.
    pub(super) fn relieve(
        &mut self,
        cluster: &'static Cluster,
        now: u64,
        observer: &mut Observer,
    ) -> Option<u64> {
        let recruiter = &cluster.recruiter;
        self.behind_since = match recruiter.is_behind() {
            true => self.behind_since.min(now),
            false => NEVER,
        };
        if !cluster.is_short() {
            return None;
        }
        let is_held_up = self.behind_since != NEVER && now - self.behind_since >= PATIENCE;
        if !recruiter.is_refused() && !is_held_up {
            return Some(now + PATIENCE);
        }
        let progress = progress(cluster);
        if progress > self.progress {
            self.progress = progress;
            if self.found {
                self.hurry();
            }
        }
        let gone = cluster.detached_preemptions.get();
        let on_their_way = gone < self.awaited && now < self.next + PATIENCE;
        if now >= self.next && !on_their_way {
            self.awaited = gone;
            let mut found = false;
            for _ in 0..cluster.idle.sleeping() {
                let Some(evicted) = self.evict_one(cluster, now, observer) else {
                    break;
                };
                if !self.found {
                    self.hurry();
                }
                (self.found, found) = (true, true);
                match evicted {
                    Evicted::Again | Evicted::Perhaps => self.in_vain += 1,
                    Evicted::Elsewhere => self.hurry(),
                }
                self.awaited += u64::from(!matches!(evicted, Evicted::Perhaps));
            }
            self.found = found;
            if !found {
                self.pause = (self.pause * 2).min(LONGEST_SEARCH);
            } else if self.in_vain > ready(cluster) {
                (self.pause, self.in_vain) = ((self.pause * 2).min(LONGEST_PAUSE), 0);
            }
            self.next = now + self.pause;
        }
        Some(self.next.max(now + SHORTEST_PAUSE))
    }

    /// There was progress.
    fn hurry(&mut self) {
        (self.pause, self.in_vain) = (SHORTEST_PAUSE, 0);
    }

    /// Asks the next machine whose thread waits in such a call, or may do so, to give it up.
    fn evict_one(
        &mut self,
        cluster: &'static Cluster,
        now: u64,
        observer: &mut Observer,
    ) -> Option<Evicted> {
        let count = machine::count();
        let mut probes = 0;
        for _ in 0..count {
            self.turn = (self.turn + 1) % count;
            let Some(machine) = machine::get(self.turn).filter(|m| m.is_of(cluster)) else {
                continue;
            };
            let Some(green) = stray(machine) else {
                continue;
            };
            let signal = cluster.config.signal;
            if let Some(doing) = preempt::evict(machine, green, signal, now, observer) {
                return Some(match doing {
                    Doing::Call(call) if !green.oddities.has(Oddities::HIDDEN) => {
                        let digest = call.digest();
                        match green.evicted_from.swap(digest, Ordering::Relaxed) == digest {
                            true => Evicted::Again,
                            false => Evicted::Elsewhere,
                        }
                    }
                    _ => Evicted::Perhaps,
                });
            }
            probes += 1;
            if probes == PROBES {
                break;
            }
        }
        None
    }
}

/// The wait that a thread was evicted from.
enum Evicted {
    /// The same wait as the last time.
    Again,
    /// Another wait: the thread has got on, or is evicted for the first time.
    Elsewhere,
    /// Unknown, or the thread may not be able to go.
    Perhaps,
}

/// The monitor's memory of a machine whose thread may not be able to go. Monitors write it.
#[derive(Default)]
pub(crate) struct Doubt {
    /// The thread that it is about: its switch, and its CPU time when it was last asked or seen to
    /// get on.
    tick: AtomicU32,
    cpu: AtomicU64,
    /// When to ask next, and how long to wait after that.
    next: AtomicU64,
    pause: AtomicU64,
}

impl Doubt {
    /// Whether to ask the machine's thread now, which is in switch `tick` and has used `cpu`
    /// nanoseconds of CPU time.
    pub(super) fn is_due(&self, now: u64, tick: u32, cpu: u64) -> bool {
        let used = cpu.wrapping_sub(self.cpu.load(Ordering::Relaxed));
        if self.tick.swap(tick, Ordering::Relaxed) != tick || used >= preempt::HANDLING {
            self.cpu.store(cpu, Ordering::Relaxed);
            self.next.store(now + STANDS_STILL, Ordering::Relaxed);
            self.pause.store(ASK_AGAIN, Ordering::Relaxed);
            return false;
        }
        let is_due = now >= self.next.load(Ordering::Relaxed);
        if is_due {
            let pause = self.pause.load(Ordering::Relaxed);
            self.cpu.store(cpu, Ordering::Relaxed);
            self.next
                .store(now.saturating_add(pause), Ordering::Relaxed);
            self.pause
                .store(pause.saturating_mul(LATER), Ordering::Relaxed);
        }
        is_due
    }
}

/// The thread on `machine`, if it has no processor and can leave its machine to others.
fn stray(machine: &'static Machine) -> Option<&'static Green> {
    let green = machine.running()?;
    let stays = machine.processor.get().is_some() || green.oddities.has(Oddities::LOCKED);
    (!stays).then_some(green)
}

/// How many threads are ready and not running.
fn ready(cluster: &Cluster) -> usize {
    let at_processors = cluster
        .processors()
        .filter(|processor| !processor.is_retired())
        .map(|processor| cluster.policy.len(Some(processor.index)));
    cluster.policy.len(None) + at_processors.sum::<usize>()
}

/// The progress of other threads. A thread that is evicted in vain leaves its stack by the eviction
/// alone, so that is subtracted. An eviction under way makes the result one less, not one more: it
/// counts as a preemption first.
fn progress(cluster: &Cluster) -> u64 {
    let switches: u64 = cluster.processors().map(|p| p.switches.get()).sum();
    let all = switches + cluster.detached_switches.get();
    all.saturating_sub(cluster.detached_preemptions.get())
}

/// The recruiter's report on stderr, once: the calls that block, and what the user can do.
pub(super) struct Report {
    is_made: bool,
}

impl Report {
    pub(super) const fn new() -> Report {
        Report { is_made: false }
    }

    /// There has been a shortage for a while, for the reason `why`.
    pub(super) fn make(&mut self, cluster: &'static Cluster, why: Refusal) {
        if self.is_made || !cluster.is_short() || !is_read(libc::STDERR_FILENO) {
            return;
        }
        self.is_made = true;
        let mut text = [0u8; 704];
        let mut rest = &mut text[..];
        let blocked = Blocked::seen(cluster);
        let total = cluster.machines.load(Ordering::Relaxed);
        let _ = match why {
            Refusal::Limit(_) => write!(
                rest,
                "greenthread: all {total} kernel threads that there may be are in use"
            ),
            Refusal::System(number) => write!(
                rest,
                "greenthread: the system refuses more than {total} kernel threads (error {number})"
            ),
        };
        let _ = write!(rest, "{blocked}, while other threads are ready: ");
        let _ = writeln!(
            rest,
            "those that wait on a futex (std's locks, and other libraries'), a file's lock or a child \
             take turns from now on, and all is slower. What waits in greenthread's own locks, \
             channels and sockets needs no kernel thread; {} raises the limit",
            match why {
                Refusal::Limit(_) => "Builder::max_kernel_threads",
                Refusal::System(_) => "ulimit -u, or the cgroup's pids.max,",
            }
        );
        let unused = rest.len();
        let length = text.len() - unused;
        say(&text[..length]);
    }
}

/// Reports, once, that no preemption signals can be sent, by this error number.
pub(super) fn report_signals(number: i32) {
    static IS_MADE: AtomicBool = AtomicBool::new(false);
    if is_read(libc::STDERR_FILENO) && !IS_MADE.swap(true, Ordering::Relaxed) {
        let why = match number {
            libc::EAGAIN => {
                "too many signals wait for this user's processes (RLIMIT_SIGPENDING, ulimit -i)"
            }
            _ => "the system refuses rt_tgsigqueueinfo (a seccomp filter?)",
        };
        let mut text = [0; 400];
        let mut rest = &mut text[..];
        let _ = writeln!(
            rest,
            "greenthread: {why}: while that is so, threads that compute are not preempted, and each \
             keeps a kernel thread to itself"
        );
        let unused = rest.len();
        let length = text.len() - unused;
        say(&text[..length]);
    }
}

/// Writes without std's lock, which a preempted thread may hold.
fn say(text: &[u8]) {
    let arguments = [2, text.as_ptr() as usize, text.len()];
    // SAFETY: writes a valid buffer; a failure cannot be reported anywhere.
    let _ = unsafe { sys::call(libc::SYS_write, &arguments) };
}

/// Whether writing to `descriptor` blocks nobody.
fn is_read(descriptor: i32) -> bool {
    sys::poll_now(descriptor, libc::POLLOUT).is_ok_and(|ready| ready & libc::POLLOUT != 0)
}

/// How many machines are blocked in which system call.
struct Blocked {
    calls: [(i64, usize); Blocked::KINDS],
    others: usize,
    /// How many are blocked in a call that cannot be told.
    untold: usize,
}

impl Blocked {
    /// How many system calls are told apart.
    const KINDS: usize = 4;

    /// Threads may be between two calls at the moment of a look. So it looks until most of them are
    /// seen to be blocked, for a few milliseconds, and returns the look that saw the most.
    fn seen(cluster: &'static Cluster) -> Blocked {
        let running = cluster.machines().filter(|m| m.running().is_some()).count();
        let mut best = Blocked::of(cluster);
        for _ in 0..10 {
            if 2 * best.count() > running {
                break;
            }
            std::thread::sleep(Duration::from_micros(300));
            let now = Blocked::of(cluster);
            if now.count() > best.count() {
                best = now;
            }
        }
        best
    }

    fn count(&self) -> usize {
        self.calls.iter().map(|(_, count)| count).sum::<usize>() + self.others + self.untold
    }

    fn of(cluster: &'static Cluster) -> Blocked {
        let mut blocked = Blocked {
            calls: [(0, 0); Blocked::KINDS],
            others: 0,
            untold: 0,
        };
        let mut observer = Observer::new();
        for machine in cluster.machines().filter(|m| m.running().is_some()) {
            let id = machine.kernel_thread.load(Ordering::Relaxed) as i32;
            match observer.doing(id) {
                Doing::Call(call) => blocked.add(call.number),
                Doing::Other => {}
                Doing::Untold => blocked.untold += 1,
            }
        }
        blocked
    }

    fn add(&mut self, number: i64) {
        let kind = |(kind, count): &&mut (i64, usize)| *count == 0 || *kind == number;
        match self.calls.iter_mut().find(kind) {
            Some((kind, count)) => (*kind, *count) = (number, *count + 1),
            None => self.others += 1,
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.calls.iter().filter(|(_, count)| *count != 0);
        for (number, count) in told.clone() {
            write!(f, ", {count} of them blocked in {}", Name(*number))?;
        }
        if self.others != 0 {
            write!(f, ", {} in other system calls", self.others)?;
        }
        match self.untold {
            0 => Ok(()),
            _ if told.count() == 0 => {
                f.write_str(", and it cannot be told what they are blocked in")
            }
            untold => write!(f, ", {untold} in what cannot be told"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_be_able_to_go_is_asked_ever_later() {
        let doubt = Doubt::default();
        let asked = |range: core::ops::Range<u64>, tick, cpu| {
            let times = range.map(|i| i * STANDS_STILL);
            times.filter(|&now| doubt.is_due(now, tick, cpu)).count()
        };
        // Each look is half a millisecond; first the thread must stand still for one.
        assert_eq!(asked(0..2, 1, 0), 1);
        assert_eq!(asked(2..20, 1, 0), 0);
        assert_eq!(asked(20..100, 1, 0), 1);
        assert_eq!(asked(100..100_000, 1, preempt::HANDLING - 1), 5);
        // The thread has got on; or it is another thread; or another kernel thread.
        let now = 100_000;
        assert_eq!(asked(now..now + 2, 1, 3 * preempt::HANDLING), 1);
        assert_eq!(asked(now + 2..now + 4, 2, 3 * preempt::HANDLING), 1);
        assert_eq!(asked(now + 4..now + 6, 2, 0), 1);
    }
}
