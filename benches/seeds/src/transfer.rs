//! Transfer, of Cforall's suite: a leader waits, without giving way, until every other thread has
//! seen that it leads, and names the next one at random. It asks whether a scheduler lets each
//! thread run soon although one goes on and on: a transfer is as slow as the last of them.
//!
//! The others look and yield. Or they look and park, and a new leader wakes them all in turn.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

use crate::crew::{self, Crew};
use crate::random::Random;
use crate::report::Report;
use crate::runtime::{Parker, Runtime};

/// What the others do between two looks.
#[derive(Clone, Copy, PartialEq)]
pub enum Wait {
    Yield,
    Park,
}

struct Transfer {
    wait: Wait,
    leader: AtomicUsize,
    /// Counts leaders; changed by the leader.
    reign: AtomicU64,
    /// The last reign that each thread has seen.
    seen: Box<[Seen]>,
    /// Reigns that all have seen.
    completed: AtomicU64,
}

#[repr(align(64))]
struct Seen(AtomicU64);

/// So many threads. An operation is one transfer of leadership; a thread's operations are its looks.
pub async fn transfer<R: Runtime>(threads: usize, wait: Wait, time: Duration) -> Report {
    let transfer = Arc::new(Transfer {
        wait,
        leader: AtomicUsize::new(0),
        reign: AtomicU64::new(0),
        seen: (0..threads).map(|_| Seen(AtomicU64::new(0))).collect(),
        completed: AtomicU64::new(0),
    });
    let report = crew::run(threads, time, |crew, me| {
        member::<R>(crew, transfer.clone(), me)
    })
    .await;
    Report {
        ops: transfer.completed.load(Relaxed),
        ..report
    }
}

async fn member<R: Runtime>(crew: Arc<Crew<R>>, transfer: Arc<Transfer>, me: usize) -> u64 {
    crew.line_up(me).await;
    let mut random = Random::new(me);
    let mut looks = 0;
    while !crew.stopped() {
        looks += 1;
        // Acquire: the reign is seen that belongs to this leader.
        if transfer.leader.load(Acquire) == me {
            transfer.lead(&crew, me, &mut random);
            continue;
        }
        let reign = transfer.reign.load(Acquire);
        transfer.seen[me].0.store(reign, Release);
        match transfer.wait {
            Wait::Yield => R::yield_now().await,
            Wait::Park => crew.parker(me).park().await,
        }
    }
    looks
}

impl Transfer {
    fn lead<R: Runtime>(&self, crew: &Crew<R>, me: usize, random: &mut Random) {
        let reign = self.reign.load(Relaxed) + 1;
        self.seen[me].0.store(reign, Relaxed);
        self.reign.store(reign, Release);
        if self.wait == Wait::Park {
            crew.wake_others(me);
        }
        for seen in &self.seen {
            while seen.0.load(Acquire) != reign {
                if crew.stopped() {
                    return;
                }
                spin_loop();
            }
        }
        self.completed.store(reign, Relaxed);
        let next = random.below(self.seen.len());
        self.leader.store(next, Release);
        if self.wait == Wait::Park {
            crew.parker(next).unpark();
        }
    }
}
