//! The monitor: a kernel thread without a processor that looks after the kernel threads that have
//! one.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | when it looks, and where it sleeps |
//! | `look` | what the monitor sees and does at a processor |
//! | `post` | how it sleeps, and is woken |
//! | `strays` | machines that burn CPU time without a processor |
//!
//! It looks every tick: 20 µs after a hand-off, backing off to 10 ms while there is none, but never
//! past the end of a time slice or a deadline. It counts a slice from the look that first saw it;
//! while work waits it looks once more soon after, since that slice may have been a short one. When
//! every processor sleeps it sleeps too, until it is kicked.
//!
//! Its actions at a processor whose thread has not left it since the last look:
//!
//! | the thread … | the monitor … |
//! |---|---|
//! | announced that it blocks | takes the processor if work waits, or nobody looks for events (`io`), or after 10 ms |
//! | is blocked in the kernel (it uses no CPU time, and the kernel says so, or the kernel does not tell and this lasts 20 ms) | the same, without a signal |
//! | runs longer than its slice while work waits, or than a 20th of it while others wait behind the thread, out of reach | ends the slice, sends the signal, again every 50 µs |
//! | … and is in a call that may block (`announce::may_block`) | the same, except the signal: the thread looks at the end of the call |
//! | … and 1 ms of CPU time later still runs, or was seen blocked in a call of the program's own assembly | takes the processor; the thread goes on under the OS |
//!
//! It takes a surplus processor (`resize`), or ends its time slice, even if nothing waits.
//!
//! At a machine without a processor that computes for long, it sends the signal, so that the thread
//! queues for a processor (`strays`).
//!
//! When no machine is left for a processor: `shortage`.
//!
//! Taking a processor: `ownership`. A processor that was taken is laid to rest, and a sleeper is
//! woken for the threads that wait in it.
//!
//! It runs with signals blocked and never allocates: its memory of each processor is in the
//! processor.

mod look;
mod post;
pub(super) mod strays;

use std::io;

use self::look::Look;
pub(super) use self::look::Seen as SeenOfProcessor;
pub(crate) use self::post::Post;
use crate::engine::atomic::Ordering;
use crate::engine::inspect::quiet;
use crate::engine::sched::events::events;
use crate::engine::sched::shortage::Shortage;
use crate::engine::sched::tuning::{LONGEST_TICK, QUIET_LOOKS, QUOTA, SHORTEST_TICK, SOON};
use crate::engine::sched::{Cluster, recruiter};
use crate::engine::sys::observer::Observer;
use crate::engine::sys::{clock, kernel_thread};

/// Starts the monitor.
pub(crate) fn post(cluster: &'static Cluster) -> io::Result<()> {
    cluster.employ("gt-monitor", watch)
}

/// How often the monitor looks.
struct Pace {
    tick: u64,
    /// Looks in a row without an event.
    quiet: u32,
}

impl Pace {
    const QUICK: Pace = Pace {
        tick: SHORTEST_TICK,
        quiet: 0,
    };

    /// Called after a look. An event calls for the next look soon; without events, looks become
    /// rare.
    fn adapt(&mut self, event: bool) {
        if event {
            *self = Pace::QUICK;
        } else if self.quiet < QUIET_LOOKS {
            self.quiet += 1;
        } else {
            self.tick = (self.tick * 2).min(LONGEST_TICK);
        }
    }
}

/// The monitor's memory from one look to the next.
struct Watch {
    cluster: &'static Cluster,
    observer: Observer,
    shortage: Shortage,
    pace: Pace,
    /// When the quota of CPU time is to be read again, and strays looked at.
    quota_at: u64,
    strays_at: u64,
    first_stray: usize,
    /// How many switches there had been at the last look.
    switched: u64,
}

/// The result of a look.
struct Seen {
    at: u64,
    /// The latest time of the next look.
    next: u64,
    /// Nothing has happened, and no thread was run.
    at_rest: bool,
}

/// The monitor's life.
fn watch(cluster: &'static Cluster) {
    kernel_thread::set_precise_timers();
    let mut watch = Watch {
        cluster,
        observer: Observer::new(),
        shortage: Shortage::new(),
        pace: Pace::QUICK,
        quota_at: clock::now() + QUOTA,
        strays_at: 0,
        first_stray: 0,
        switched: 0,
    };
    while !cluster.stopping.load(Ordering::SeqCst) {
        let seen = watch.look();
        watch.wait(seen);
    }
}

impl Watch {
    /// Looks at everything once.
    fn look(&mut self) -> Seen {
        let cluster = self.cluster;
        cluster.take_handed();
        let now = clock::now();
        clock::note(now);
        let switched: u64 = cluster.processors().map(|p| p.switches.get()).sum();
        let mut look = Look::new(cluster, &mut self.observer, now);
        for processor in cluster.processors() {
            look.at_timers(processor);
            if !processor.is_retired() {
                let mut seen = processor.seen.take();
                look.at(processor, &mut seen);
                processor.seen.set(seen);
            }
        }
        if now >= self.quota_at {
            cluster.doubt_quota();
            recruiter::ask_to_reclaim(cluster);
            self.quota_at = now + QUOTA;
        }
        if now >= self.strays_at {
            self.first_stray = look.at_strays(self.first_stray);
            self.strays_at = now + LONGEST_TICK;
        }
        if look.stuck && cluster.idle.sleeping() != 0 {
            cluster.notify();
        }
        let relief = self.shortage.relieve(cluster, now, look.observer);
        look.next = look.next.min(relief);
        if cluster.see_to_events(now) {
            look.next = look.next.min(now + SOON);
        }
        let (event, next) = (look.event, look.next);
        self.pace.adapt(event);
        let has_switched = switched != core::mem::replace(&mut self.switched, switched);
        Seen {
            at: now,
            next,
            // It does not sleep at once: processors that sleep only for moments would have to kick
            // it each time.
            at_rest: self.pace.tick == LONGEST_TICK && !event && !has_switched,
        }
    }

    /// Waits for the next look; or sleeps, if all processors do.
    fn wait(&mut self, seen: Seen) {
        let cluster = self.cluster;
        let tick = self.pace.tick;
        let everybody_sleeps = || {
            let sleeps = cluster.idle.awake() == 0
                && !cluster.stopping.load(Ordering::SeqCst)
                && !events().is_unwatched()
                && !cluster.is_short()
                && cluster.handed.is_empty();
            if sleeps {
                // While this sleeps nobody else asks.
                recruiter::ask_to_reclaim(cluster);
            }
            sleeps
        };
        if seen.at_rest && everybody_sleeps() {
            quiet::tell();
            if cluster
                .monitor
                .sleep(cluster, seen.at + tick, everybody_sleeps)
            {
                self.pace = Pace::QUICK;
            }
            return;
        }
        let until = seen.next.min(seen.at + tick).max(seen.at + SHORTEST_TICK);
        let is_over = || {
            clock::now() >= until
                || cluster.stopping.load(Ordering::SeqCst)
                || !cluster.handed.is_empty()
        };
        while !is_over() {
            cluster.monitor.rest(until);
        }
    }
}
