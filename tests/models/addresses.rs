//! Models of the table of threads that wait at addresses: waits, wake-ups and moves, while a time runs out.
//!
//! Each address has a word, and a thread waits while the word is 0. The table ends no wait without a
//! reason, so a thread that was woken finds its word changed. A thread that is never woken is a deadlock.

use std::sync::{Arc, Mutex};

use loom::thread::{self, JoinHandle};

use crate::{
    atomic::{
        AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
    sched::{current, thread as green},
    libc::addresses::{ANY, Addresses, Beside, Bucket, Events, How, Waited, Waiting},
    sys::clock,
    wait::{queue::Position, something},
};

const ALL: usize = usize::MAX;

/// Addresses: the table of the models has two buckets. This is in one of them,
const A: usize = 4;
/// this too,
const B: usize = 8;
/// and this is in the other.
const C: usize = 16;

#[derive(Clone, Copy)]
enum Kind {
    Green,
    Kernel,
}

use Kind::{Green, Kernel};

struct World {
    table: Addresses,
    /// One for each address.
    words: [AtomicU32; 3],
    /// How many threads have queued.
    queued: AtomicU32,
    /// They, in their order.
    order: Mutex<Vec<usize>>,
}

// SAFETY: what one thread at a time may touch is what the model checks.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

/// A thread's wait.
#[derive(Clone, Copy)]
struct Waiter {
    address: usize,
    events: Events,
    position: Position,
    deadline: Option<u64>,
}

/// Any event, behind the others, for ever.
fn at(address: usize) -> Waiter {
    Waiter {
        address,
        events: ANY,
        position: Position::Back,
        deadline: None,
    }
}

impl Waiter {
    fn until(self, deadline: u64) -> Waiter {
        let deadline = Some(deadline);
        Waiter { deadline, ..self }
    }
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            // A table is a static; the checker's few buckets may leak.
            table: Addresses::new([something(); 2], Box::leak(Box::new(core::array::from_fn(|_| Bucket::new())))),
            words: [0; 3].map(AtomicU32::new),
            queued: AtomicU32::new(0),
            order: Mutex::new(Vec::new()),
        })
    }

    fn word(&self, address: usize) -> &AtomicU32 {
        &self.words[match address {
            A => 0,
            B => 1,
            _ => 2,
        }]
    }

    /// `None`: the word had changed before.
    fn wait(&self, name: usize, waiter: Waiter) -> Option<Waited> {
        let how = match current::green() {
            Some(_) => How::Park,
            None => How::Block,
        };
        let Waiter {
            address,
            events,
            position,
            deadline,
        } = waiter;
        let mut refuse = |_, _: Beside<'_>| match self.word(address).load(Relaxed) {
            0 => {
                self.order.lock().unwrap().push(name);
                self.queued.fetch_or(1 << name, Relaxed);
                Ok(())
            }
            _ => Err(()),
        };
        let place = [Waiting::new(address, events)];
        self.table
            .wait(&place, how, position, deadline, &mut refuse, &|| ())
            .ok()
    }

    /// Waits as [`World::wait`], on a thread of its own.
    fn spawn(
        self: &Arc<World>,
        kind: Kind,
        name: usize,
        waiter: Waiter,
    ) -> JoinHandle<Option<Waited>> {
        let world = self.clone();
        let main = move || world.wait(name, waiter);
        match kind {
            Green => green::spawn(main),
            Kernel => thread::spawn(main),
        }
    }

    /// Changes the word, then wakes. (A plain store would have a choice: see `check_newest`.)
    fn wake(&self, address: usize, most: usize) -> usize {
        self.word(address).swap(1, Relaxed);
        self.table.wake(address, ANY, most)
    }

    /// [`World::wait`]; a thread that was woken wakes the next one.
    fn wait_and_pass_on(&self, name: usize, waiter: Waiter) -> Option<Waited> {
        let waited = self.wait(name, waiter);
        if waited == Some(Waited::Woken(0)) {
            let word = self.word(waiter.address).load(Relaxed);
            assert_eq!(word, 1, "lost or doubled");
            self.table.wake(waiter.address, ANY, 1);
        }
        waited
    }

    /// At the end.
    fn is_empty(&self) -> bool {
        [A, B, C].map(|address| self.table.wake(address, ANY, ALL)) == [0; 3]
    }
}

/// One waits, one wakes. No bound.
pub(crate) fn one_waits_at_an_address() {
    for kind in [Green, Kernel] {
        crate::check(None, move || {
            let world = World::new();
            let waiter = world.spawn(kind, 0, at(A));
            let woken = world.wake(A, 1);
            let waited = waiter.join().unwrap();
            assert_eq!(woken == 1, waited == Some(Waited::Woken(0)), "lost or doubled");
        });
    }
}

/// One waits at two addresses, in two buckets; a thread wakes at each. At most 2 preemptions.
pub(crate) fn one_waits_at_two_addresses() {
    for kind in [Green, Kernel] {
        crate::check(Some(2), move || {
            let world = World::new();
            let places = [A, C];
            let waits = world.clone();
            let main = move || {
                let how = match current::green() {
                    Some(_) => How::Park,
                    None => How::Block,
                };
                let mut refuse = |number: usize, _: Beside<'_>| {
                    match waits.word(places[number]).load(Relaxed) {
                        0 => Ok(()),
                        _ => Err(()),
                    }
                };
                let waiting = places.map(|address| Waiting::new(address, ANY));
                let back = Position::Back;
                waits.table.wait(&waiting, how, back, None, &mut refuse, &|| ()).ok()
            };
            let waiter = match kind {
                Green => green::spawn(main),
                Kernel => thread::spawn(main),
            };
            let other = world.clone();
            let other = thread::spawn(move || other.wake(C, 1));
            let woken = [world.wake(A, 1), other.join().unwrap()];
            match waiter.join().unwrap() {
                Some(Waited::Woken(number)) => {
                    assert_eq!(woken[number], 1, "lost or doubled");
                    assert_eq!(woken[1 - number], 0, "lost or doubled");
                }
                _ => assert_eq!(woken, [0; 2], "lost or doubled"),
            }
            assert!(world.is_empty(), "lost or doubled");
        });
    }
}

/// Two wait at one address, a green thread and a kernel thread; each is woken by a call of its own. At
/// most 2 preemptions.
pub(crate) fn two_at_an_address() {
    crate::check(Some(2), || {
        let world = World::new();
        let waiters = [(Green, 0), (Kernel, 1)].map(|(kind, name)| world.spawn(kind, name, at(A)));
        let mut woken = world.wake(A, 1);
        woken += world.wake(A, 1);
        let waited = waiters.map(|waiter| waiter.join().unwrap());
        let counted = waited.iter().flatten().count();
        assert_eq!(woken, counted, "lost or doubled");
        assert!(world.is_empty(), "lost or doubled");
    });
}

/// Two wait at two addresses in one bucket. At most 2 preemptions.
pub(crate) fn two_in_a_bucket() {
    crate::check(Some(2), || {
        let world = World::new();
        let waiters = [(Green, 0, A), (Kernel, 1, B)].map(|(kind, name, address)| {
            let world = world.clone();
            let main = move || {
                let waited = world.wait(name, at(address));
                let word = world.word(address).load(Relaxed);
                assert_eq!(word, 1, "lost or doubled");
                waited
            };
            match kind {
                Green => green::spawn(main),
                Kernel => thread::spawn(main),
            }
        });
        let woken = [B, A].map(|address| world.wake(address, ALL));
        let waited = waiters.map(|waiter| usize::from(waiter.join().unwrap().is_some()));
        assert_eq!([woken[1], woken[0]], waited, "lost or doubled");
    });
}

/// Two wait at one address; the time of one is up, or a signal ends its wait. One is woken: the other
/// one, if that one has gone. At most 2 preemptions.
pub(crate) fn time_is_up_at_an_address() {
    for deadline in [0, 1, clock::SIGNAL] {
        crate::check(Some(2), move || {
            let world = World::new();
            let waiters = [at(A).until(deadline), at(A)].into_iter().enumerate();
            let waiters = waiters.map(|(name, waiter)| {
                let world = world.clone();
                thread::spawn(move || world.wait_and_pass_on(name, waiter))
            });
            let waiters = waiters.collect::<Vec<_>>();
            world.wake(A, 1);
            for waiter in waiters {
                let _ = waiter.join().unwrap();
            }
            assert!(world.is_empty(), "lost or doubled");
        });
    }
}

/// Three wait at one address, each for its own event, and are woken in `turn`: their places in the
/// order in which they stand. If not all have come, all are sent away.
fn three(first_position: Position, last_position: Position, turn: [usize; 3]) {
    let world = World::new();
    let positions = [first_position, Position::Back, last_position];
    let waiters = [0, 1, 2].map(|name| {
        let waiter = Waiter {
            events: 1 << name,
            position: positions[name],
            ..at(A)
        };
        world.spawn(if name == 1 { Green } else { Kernel }, name, waiter)
    });
    thread::yield_now(); // all queue, unless the checker has other plans
    if world.queued.load(SeqCst) == 0b111 {
        let mut stand = Vec::new();
        for &name in &*world.order.lock().unwrap() {
            match positions[name] {
                Position::Back => stand.push(name),
                Position::Front => stand.insert(0, name),
            }
        }
        world.word(A).swap(1, Relaxed);
        for place in turn {
            // Of those that are left, with an event that only this one waits for; or as the first.
            let event = match place {
                FIRST => ANY,
                place => 1 << stand[place],
            };
            let woken = world.table.wake(A, event, 1);
            assert_eq!(woken, 1, "lost or doubled");
            if place == FIRST {
                let name = stand.remove(0);
                let again = world.table.wake(A, 1 << name, 1);
                assert_eq!(again, 0, "lost or doubled");
            }
        }
    } else {
        world.wake(A, ALL);
    }
    for waiter in waiters {
        let _ = waiter.join().unwrap();
    }
    assert!(world.is_empty(), "lost or doubled");
}

/// The first of those that are left, whatever it waits for.
const FIRST: usize = ALL;

/// In every turn. At most 1 preemption.
pub(crate) fn three_events() {
    for turn in [[0, 2, 1], [2, 1, 0], [1, 2, 0], [FIRST; 3]] {
        crate::check_newest(Some(1), move || three(Position::Back, Position::Back, turn));
    }
}

/// Two go before the one that is there. At most 1 preemption.
pub(crate) fn in_front() {
    for turn in [[FIRST; 3], [2, 1, 0]] {
        crate::check_newest(Some(1), move || {
            three(Position::Front, Position::Front, turn)
        });
    }
}

/// A thread that is woken waits again. Those that wake all wake it once. At most 2 preemptions.
pub(crate) fn comes_again() {
    crate::check(Some(2), || {
        let world = World::new();
        let waiters = [(Green, 0), (Kernel, 1)].map(|(kind, name)| {
            let world = world.clone();
            let main = move || {
                while world.wait(name, at(A)).is_some() {}
            };
            match kind {
                Green => green::spawn(main),
                Kernel => thread::spawn(main),
            }
        });
        // The word has not changed: both wait, and wait again.
        let woken = world.table.wake(A, ANY, ALL);
        assert!(woken <= 2, "lost or doubled");
        let _ = world.wake(A, ALL);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(world.is_empty(), "lost or doubled");
    });
}

/// Two wait at one address, and are moved to the other bucket, and woken there; the time of one is up
/// meanwhile. At most 2 preemptions.
pub(crate) fn moved() {
    let run = |deadline, woken_first| {
        let world = World::new();
        let patient = world.spawn(Green, 0, at(A));
        let other = match deadline {
            Some(deadline) => world.spawn(Kernel, 1, at(A).until(deadline)),
            None => world.spawn(Kernel, 1, at(A)),
        };
        world.word(A).swap(1, Relaxed);
        let [woken, moved] = world
            .table
            .requeue([A, C], ANY, [woken_first, ALL], None)
            .unwrap();
        assert!(woken <= woken_first, "lost or doubled");
        let woken_there = world.table.wake(C, ANY, ALL);
        assert!(woken_there <= moved, "lost or doubled");
        let waited = [patient, other].map(|waiter| waiter.join().unwrap());
        let of = |how| waited.iter().filter(|&&waited| waited == Some(how)).count();
        assert_eq!(
            of(Waited::Woken(0)),
            woken + woken_there,
            "lost or doubled"
        );
        assert!(deadline.is_some() || moved == woken_there, "lost or doubled");
        assert!(world.is_empty(), "lost or doubled");
    };
    crate::check(Some(2), move || run(None, 1));
    crate::check(Some(2), move || run(Some(0), 0));
    crate::check(Some(2), move || run(Some(1), 0));
}

/// The same, in one bucket. At most 2 preemptions.
pub(crate) fn moved_in_the_bucket() {
    crate::check(Some(2), || {
        let world = World::new();
        let waiters = [at(A), at(A).until(0), at(B)].into_iter().enumerate();
        let waiters = waiters.map(|(name, waiter)| world.spawn(Kernel, name, waiter));
        let waiters = waiters.collect::<Vec<_>>();
        for address in [A, B] {
            world.word(address).swap(1, Relaxed);
        }
        let moving = world.table.requeue([A, B], ANY, [0, ALL], None);
        let [_, moved] = moving.unwrap();
        let woken = world.table.wake(B, ANY, ALL);
        assert!(woken <= moved + 1, "lost or doubled");
        for waiter in waiters {
            let _ = waiter.join().unwrap();
        }
        assert!(world.is_empty(), "lost or doubled");
    });
}

/// One is moved while another wakes all that wait where it goes: it is woken, or found there later. At
/// most 3 preemptions.
pub(crate) fn moved_beside_a_waker() {
    crate::check(Some(3), || {
        let world = World::new();
        let waiter = world.spawn(Green, 0, at(A));
        let mover = thread::spawn({
            let world = world.clone();
            move || {
                world.word(A).swap(1, Relaxed);
                let moving = world.table.requeue([A, C], ANY, [0, ALL], None);
                moving.unwrap()[1]
            }
        });
        let mut woken = world.table.wake(C, ANY, ALL);
        let moved = mover.join().unwrap();
        woken += world.table.wake(C, ANY, ALL);
        assert_eq!(woken, moved, "lost or doubled");
        let waited = waiter.join().unwrap();
        assert_eq!(waited.is_some(), moved == 1, "lost or doubled");
    });
}

/// Threads are moved to and fro. At most 1 preemption.
pub(crate) fn moved_to_and_fro() {
    crate::check(Some(1), || {
        let world = World::new();
        let waiter = world.spawn(Kernel, 0, at(A).until(0));
        let mover = |from, to| {
            let world = world.clone();
            thread::spawn(move || {
                let _ = world.table.requeue([from, to], ANY, [0, ALL], None);
            })
        };
        for mover in [mover(A, C), mover(C, A)] {
            mover.join().unwrap();
        }
        let woken = [A, C].map(|address| world.wake(address, 1));
        let waited = waiter.join().unwrap();
        let counted = usize::from(waited == Some(Waited::Woken(0)));
        assert_eq!(woken[0] + woken[1], counted, "lost or doubled");
    });
}
