//! Models of a table's places: threads take places and give them back, or are gone without a word. What a place has is
//! its owner's, and one thread's only.

use std::sync::atomic::{AtomicI32 as Untracked, Ordering::Relaxed as Plain};

use loom::thread;

use crate::atomic::{
    AtomicBool, Cell,
    Ordering::{Acquire, Release},
};
use crate::engine::inspect::kernel::{Place, Places};

struct World {
    places: Places,
    table: Vec<Thing>,
    /// The threads that are gone, by their numbers.
    gone: Vec<AtomicBool>,
}

struct Thing {
    place: Place,
    /// Who has it, as it believes.
    owner: Untracked,
    data: Cell<i32>,
}

impl World {
    fn new(size: usize) -> &'static World {
        let thing = |_| Thing {
            place: Place::default(),
            owner: Untracked::new(0),
            data: Cell::new(0),
        };
        Box::leak(Box::new(World {
            places: Places::new(),
            table: (0..size).map(thing).collect(),
            gone: (0..8).map(|_| AtomicBool::new(false)).collect(),
        }))
    }

    /// The kernel's answer is never out of date, as a load's might be: a thread that has taken a place exists. Acquire: what
    /// the thread has done.
    fn has_gone(&self, thread: i32) -> bool {
        let gone = &self.gone[thread as usize];
        gone.compare_exchange(true, true, Acquire, Acquire).is_ok()
    }

    fn take(&self, thread: i32) -> usize {
        let takes = |i: usize| self.table[i].place.take(thread, |other| self.has_gone(other));
        let found = self.places.find(self.table.len(), takes);
        let place = found.expect("a place");
        let before = self.table[place].owner.swap(thread, Plain);
        assert!(before == 0 || self.has_gone(before), "two owners");
        self.table[place].data.set(thread);
        place
    }

    /// It still has the place.
    fn check(&self, place: usize, thread: i32) {
        let owner = self.table[place].owner.load(Plain);
        assert_eq!(owner, thread, "two owners");
        assert_eq!(self.table[place].data.get(), thread, "two owners");
    }

    fn give_back(&self, place: usize, thread: i32) {
        self.check(place, thread);
        self.table[place].owner.store(0, Plain);
        self.table[place].place.give_back();
    }

    /// Release: what it has done.
    fn is_gone(&self, thread: i32, gone: bool) {
        // A swap: the checker may forget a plain store beside the other's question.
        self.gone[thread as usize].swap(gone, Release);
    }
}

/// A place whose thread has given it back and is gone is taken by one of two threads.
pub(crate) fn taken_by_one() {
    crate::check(Some(3), || {
        let world = World::new(3);
        let place = world.take(1);
        world.give_back(place, 1);
        world.is_gone(1, true);
        let other = thread::spawn(|| {
            let place = world.take(2);
            world.check(place, 2);
        });
        let place = world.take(3);
        world.check(place, 3);
        other.join().unwrap();
        world.check(place, 3);
    });
}

/// The thread that is gone gave its place back, and one with its number takes it again; another one looks at it meanwhile.
pub(crate) fn taken_again_by_another() {
    crate::check(Some(3), || {
        let world = World::new(4);
        let places = [world.take(1), world.take(4)];
        let other = thread::spawn(|| {
            let place = world.take(2);
            world.check(place, 2);
        });
        world.give_back(places[0], 1);
        world.is_gone(1, true);
        world.is_gone(1, false);
        let place = world.take(1);
        world.check(place, 1);
        other.join().unwrap();
        world.check(place, 1);
        world.check(places[1], 4);
    });
}

/// One thread takes two places, while another one takes two and gives the first one back.
pub(crate) fn taken_beside_two_changes() {
    crate::check(Some(2), || {
        let world = World::new(4);
        let places = [world.take(1), world.take(2)];
        world.give_back(places[1], 2);
        world.give_back(places[0], 1);
        let other = thread::spawn(|| {
            let places = [world.take(3), world.take(4)];
            world.give_back(places[0], 3);
            world.check(places[1], 4);
        });
        let places = [world.take(5), world.take(6)];
        world.check(places[0], 5);
        world.check(places[1], 6);
        other.join().unwrap();
        world.check(places[1], 6);
    });
}

/// The threads of a place write to it one after the other; one of them is gone without a word.
pub(crate) fn handed_on() {
    crate::check(Some(3), || {
        let world = World::new(4);
        let other = thread::spawn(|| {
            let place = world.take(1);
            world.give_back(place, 1);
            let place = world.take(2);
            world.check(place, 2);
            world.is_gone(2, true);
        });
        let place = world.take(3);
        world.give_back(place, 3);
        let place = world.take(4);
        world.check(place, 4);
        other.join().unwrap();
    });
}
