//! Models of threads that wait for descriptors which are not ours: calls that take things from a file, and
//! threads that poll it, while somebody else puts things there, collects the events, and closes the
//! descriptor and opens another file under its number.
//!
//! The sources of `driver::watch` run on a small kernel (`library/kernel.rs`), whose epoll instance tells of a
//! registration once. A call tries before it waits, as the functions in front do. Who is never woken is a
//! deadlock: there is something for everybody before the last join. At the end the descriptors that are open
//! are those of the program.
//!
//! The kernel asks for a call's number at the moment of the call: not modelled is a thread that is preempted
//! between the two, and finds the file that has the number by then.

use std::{os::fd::RawFd, pin::Pin};

use loom::thread::{self, JoinHandle};

use crate::driver::watch::{Call, Interest, Direction, closing, collect, look_again, wait_for_any};
use crate::driver::watch::Direction::{Read, Write};
use crate::sched::current::in_handler;
use crate::sched::Fifo;
use crate::sched::{events, signals};
use crate::sys::kernel;
use crate::sys::kernel::File;
use crate::wait::something;

/// The files, in the order in which they are opened.
const F: File = 0;
const G: File = 1;
/// The first number of the program.
const N: RawFd = 3;

/// The program and who collects events for it.
struct World {
    collector: JoinHandle<()>,
}

impl World {
    /// F is open; there is room for so many numbers.
    fn new(numbers: usize) -> World {
        kernel::begin(numbers);
        events::begin();
        // The records and the epoll instance are made before others come.
        let _ = poll_once(0, Some(0));
        assert_eq!(kernel::open(), N);
        World {
            collector: thread::spawn(|| {
                while kernel::has_event() {
                    collect(&mut Fifo::new());
                }
            }),
        }
    }

    /// All that wait have been joined, and these descriptors are open.
    fn end(self, descriptors: &[(RawFd, File)]) {
        kernel::end();
        self.collector.join().unwrap();
        assert_eq!(kernel::descriptors(), descriptors, "lost or doubled");
        assert!(!events::is_in_use(), "lost or doubled");
        let before = kernel::duplicates();
        for &(fd, _) in descriptors {
            closing(fd);
        }
        assert_eq!(kernel::duplicates(), before, "somebody is said to wait");
    }
}

/// How a call ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Done {
    From(File),
    Closed,
    TimedOut,
    /// The thread cannot wait, and blocks.
    Blocked,
}

use Done::{Blocked, Closed, From, TimedOut};

/// Makes a call as the functions in front do.
fn make(call: Pin<Box<Call>>, direction: Direction, deadline: Option<u64>) -> Done {
    let attempt = |call: &Call| {
        let answer = match direction {
            Write => kernel::write(|| call.fd()),
            _ => kernel::read(|| call.fd()),
        };
        match answer {
            Ok(file) => Some(From(file)),
            Err(libc::EBADF) => Some(Closed),
            Err(_) => None,
        }
    };
    loop {
        if let Some(done) = attempt(&call) {
            return done;
        }
        match call.as_ref().wait(direction, deadline) {
            Ok(true) => {}
            Ok(false) => return attempt(&call).unwrap_or(TimedOut),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EBADF));
                return attempt(&call).unwrap_or(Blocked);
            }
        }
    }
}

fn spawn(direction: Direction, deadline: Option<u64>) -> JoinHandle<Done> {
    thread::spawn(move || make(Box::pin(Call::new(N, something())), direction, deadline))
}

fn read() -> JoinHandle<Done> {
    spawn(Read, None)
}

/// A reader that has waited once in vain.
fn read_again(deadline: Option<u64>) -> JoinHandle<Done> {
    let call = Box::pin(Call::new(N, something()));
    assert!(!call.as_ref().wait(Read, Some(0)).unwrap(), "lost or doubled");
    thread::spawn(move || make(call, Read, deadline))
}

/// Waits until something can be read, or the descriptor is closed.
fn poll(fd: RawFd) -> Result<(), i32> {
    while !kernel::poll(fd)? {
        let _ = poll_once(fd, None);
    }
    Ok(())
}

fn poll_once(fd: RawFd, deadline: Option<u64>) -> Result<bool, i32> {
    let events = libc::EPOLLIN;
    let come = wait_for_any(&[Interest { fd, events }], deadline);
    come.map_err(|error| error.raw_os_error().unwrap())
}

/// As the program closes a descriptor.
fn close(fd: RawFd) {
    closing(fd);
    kernel::close(fd);
    look_again(fd);
}

/// Two readers wait, and two things come, one after the other. At most 3 preemptions.
pub(crate) fn watched_by_two() {
    crate::check_newest(Some(3), || {
        let world = World::new(1);
        let readers = [read(), read()];
        kernel::put(F, 1, 0);
        kernel::put(F, 1, 0);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), From(F));
        }
        world.end(&[(N, F)]);
    });
}

/// Two things come at once, with one event. At most 1 preemption; 3 with newest values only.
pub(crate) fn watched_with_two_items() {
    fn model() {
        let world = World::new(1);
        let readers = [read(), read()];
        kernel::put(F, 2, 0);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), From(F));
        }
        world.end(&[(N, F)]);
    }
    crate::check_newest(Some(3), model);
    crate::check(Some(1), model);
}

/// Somebody who does not wait takes the first thing, perhaps, and a reader was woken in vain. At most 2
/// preemptions.
pub(crate) fn watched_beside_another_taker() {
    crate::check_newest(Some(2), || {
        let world = World::new(1);
        let readers = [read(), read()];
        kernel::put(F, 1, 0);
        let taken = usize::from(kernel::read(|| N).is_ok());
        kernel::put(F, 1 + taken, 0);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), From(F));
        }
        world.end(&[(N, F)]);
    });
}

/// A reader and a writer wait for one number, and both things come at once, or the second when the first was
/// taken. At most 2 preemptions.
pub(crate) fn watched_both_ways() {
    crate::check_newest(Some(2), || {
        let world = World::new(1);
        let calls = [Read, Write].map(|direction| spawn(direction, None));
        kernel::put(F, 1, 1);
        for call in calls {
            assert_eq!(call.join().unwrap(), From(F));
        }
        world.end(&[(N, F)]);
    });
    for order in [[Read, Write], [Write, Read]] {
        crate::check_newest(Some(2), move || {
            let world = World::new(1);
            let calls = order.map(|direction| (direction, spawn(direction, None)));
            for (direction, call) in calls {
                let things = usize::from(direction == Read);
                kernel::put(F, things, 1 - things);
                assert_eq!(call.join().unwrap(), From(F));
            }
            world.end(&[(N, F)]);
        });
    }
}

/// Beside a reader or a writer somebody polls the descriptor. At most 2 preemptions.
pub(crate) fn watched_by_a_poller() {
    for direction in [Read, Write] {
        crate::check_newest(Some(2), move || {
            let world = World::new(1);
            let poller = thread::spawn(|| poll(N));
            let call = spawn(direction, None);
            kernel::put(F, 2, 0);
            assert_eq!(poller.join().unwrap(), Ok(()));
            kernel::put(F, 0, 1);
            assert_eq!(call.join().unwrap(), From(F));
            world.end(&[(N, F)]);
        });
    }
}

/// One of two readers waits for a time only. At most 2 preemptions.
pub(crate) fn watched_for_a_time() {
    for deadline in [0, 1] {
        crate::check_newest(Some(2), move || {
            let world = World::new(1);
            let hasty = spawn(Read, Some(deadline));
            let patient = read();
            kernel::put(F, 1, 0);
            match hasty.join().unwrap() {
                TimedOut => {}
                done => {
                    assert_eq!(done, From(F));
                    kernel::put(F, 1, 0);
                }
            }
            assert_eq!(patient.join().unwrap(), From(F));
            world.end(&[(N, F)]);
        });
    }
}

/// The descriptor of a reader that has waited is closed, and another file gets its number. At most 3
/// preemptions.
pub(crate) fn watched_and_closed() {
    crate::check_newest(Some(3), || {
        let world = World::new(2);
        let reader = read_again(None);
        close(N);
        assert_eq!(kernel::open(), N);
        kernel::put(G, 1, 0);
        kernel::put(F, 1, 0);
        assert_eq!(reader.join().unwrap(), From(F));
        world.end(&[(N, G)]);
    });
}

/// The same, and the event came before. At most 3 preemptions.
pub(crate) fn watched_and_closed_when_woken() {
    crate::check_newest(Some(3), || {
        let world = World::new(2);
        let reader = read_again(None);
        kernel::put(F, 1, 0);
        close(N);
        assert_eq!(kernel::open(), N);
        kernel::put(G, 1, 0);
        assert_eq!(reader.join().unwrap(), From(F));
        world.end(&[(N, G)]);
    });
}

/// The same, for a time. At most 3 preemptions.
pub(crate) fn watched_and_closed_in_time() {
    for deadline in [0, 1] {
        crate::check_newest(Some(3), move || {
            let world = World::new(2);
            let reader = read_again(Some(deadline));
            close(N);
            kernel::put(F, 1, 0);
            assert!([From(F), TimedOut].contains(&reader.join().unwrap()), "lost or doubled");
            world.end(&[]);
        });
    }
}

/// A signal handler closes the descriptor of a reader that has waited, and another file gets its number. At most 3
/// preemptions.
pub(crate) fn watched_and_closed_by_a_handler() {
    crate::check_newest(Some(3), || {
        let world = World::new(2);
        let reader = read_again(None);
        in_handler(|| close(N));
        assert_eq!(kernel::open(), N);
        kernel::put(G, 1, 0);
        signals::do_chore();
        kernel::put(F, 1, 0);
        assert_eq!(reader.join().unwrap(), From(F));
        world.end(&[(N, G)]);
    });
}

/// The same, and the program waits for the new file before the monitor has come. At most 2 preemptions.
pub(crate) fn watched_and_closed_by_a_handler_beside_a_newcomer() {
    crate::check_newest(Some(2), || {
        let world = World::new(2);
        let reader = read_again(None);
        in_handler(|| close(N));
        assert_eq!(kernel::open(), N);
        let newcomer = read();
        signals::do_chore();
        kernel::put(F, 1, 0);
        assert_eq!(reader.join().unwrap(), From(F));
        kernel::put(G, 1, 0);
        assert_eq!(newcomer.join().unwrap(), From(G));
        world.end(&[(N, G)]);
    });
}

/// A handler closes it, and nobody is left who would read what it has kept. At most 3 preemptions.
pub(crate) fn watched_and_closed_by_a_handler_in_time() {
    for deadline in [0, 1] {
        crate::check_newest(Some(3), move || {
            let world = World::new(2);
            let reader = read_again(Some(deadline));
            in_handler(|| close(N));
            signals::do_chore();
            kernel::put(F, 1, 0);
            assert!([From(F), TimedOut].contains(&reader.join().unwrap()), "lost or doubled");
            world.end(&[]);
        });
    }
}

/// Two readers go on with one duplicate. At most 2 preemptions.
pub(crate) fn watched_by_two_and_closed() {
    crate::check_newest(Some(2), || {
        let world = World::new(2);
        let readers = [read_again(None), read_again(None)];
        close(N);
        assert_eq!(kernel::open(), N);
        kernel::put(F, 2, 0);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), From(F));
        }
        world.end(&[(N, G)]);
    });
}

/// A reader comes while the descriptor is closed: it finds the one file or the other, or none. At most 2
/// preemptions.
pub(crate) fn watched_by_a_newcomer() {
    crate::check_newest(Some(2), || {
        let world = World::new(3);
        let reader = read_again(None);
        let newcomer = read();
        close(N);
        assert_eq!(kernel::open(), N);
        kernel::put(F, 2, 0);
        kernel::put(G, 1, 0);
        assert_eq!(reader.join().unwrap(), From(F));
        assert_ne!(newcomer.join().unwrap(), TimedOut);
        world.end(&[(N, G)]);
    });
}

/// The program closes the duplicate, too, which is none of its own, and opens files under both numbers. At most
/// 3 preemptions.
pub(crate) fn watched_and_closed_twice() {
    crate::check_newest(Some(3), || {
        let world = World::new(3);
        let reader = read_again(None);
        close(N);
        assert_eq!(kernel::open(), N);
        close(N + 1);
        assert_eq!(kernel::open(), N + 1);
        kernel::put(G, 1, 0);
        kernel::put(F, 1, 0);
        assert_eq!(reader.join().unwrap(), From(F));
        world.end(&[(N, G), (N + 1, G + 1)]);
    });
}

/// There is no number left for the second duplicate. At most 2 preemptions.
pub(crate) fn watched_and_closed_twice_without_duplicate() {
    crate::check_newest(Some(2), || {
        let world = World::new(2);
        let reader = read_again(None);
        close(N);
        assert_eq!(kernel::open(), N);
        close(N + 1);
        assert_eq!(kernel::open(), N + 1);
        kernel::put(G + 1, 1, 0);
        assert!([Closed, From(G + 1), Blocked].contains(&reader.join().unwrap()));
        world.end(&[(N, G), (N + 1, G + 1)]);
    });
}

/// The number is closed without a word, and the file is open under another one. At most 3 preemptions.
pub(crate) fn watched_and_closed_unseen() {
    crate::check_newest(Some(3), || {
        let world = World::new(2);
        assert_eq!(kernel::duplicate(N, N), Ok(N + 1));
        let readers = [read(), read()];
        kernel::close(N);
        kernel::put(F, 1, 0);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Closed);
        }
        world.end(&[(N + 1, F)]);
    });
}

/// There is no number left for a duplicate: all look again. At most 2 preemptions.
pub(crate) fn watched_without_duplicate() {
    crate::check_newest(Some(2), || {
        let world = World::new(1);
        let readers = [read_again(None), read()];
        close(N);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Closed);
        }
        world.end(&[]);
    });
}

/// A descriptor that is polled is closed. At most 3 preemptions.
pub(crate) fn watched_by_a_poller_and_closed() {
    // A load must not count as a store here, as it does where it sees newest values only.
    crate::check(Some(3), || {
        let world = World::new(2);
        let poller = thread::spawn(|| poll(N));
        close(N);
        assert_eq!(poller.join().unwrap(), Err(libc::EBADF));
        world.end(&[]);
    });
}
