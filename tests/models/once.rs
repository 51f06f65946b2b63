//! Models of `Once`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use loom::{cell::UnsafeCell, thread};

use crate::sync::once::Once;

struct World {
    once: Once,
    /// How often a closure ran, and what it made.
    runs: UnsafeCell<usize>,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            once: Once::new(),
            runs: UnsafeCell::new(0),
        })
    }

    fn run(&self) {
        // SAFETY: what the model checks.
        self.runs.with_mut(|runs| unsafe { *runs += 1 });
    }

    fn see(&self, expected: usize) {
        // SAFETY: what the model checks.
        self.runs
            .with(|runs| assert_eq!(unsafe { *runs }, expected, "lost or doubled"));
    }
}

/// Two threads call, a third looks whether one has returned. At most 3 preemptions.
pub(crate) fn runs_once() {
    crate::check(Some(3), || {
        let world = World::new();
        let callers = [(); 2].map(|()| {
            let world = world.clone();
            thread::spawn(move || {
                world.once.call_once(|| world.run());
                world.see(1);
            })
        });
        if world.once.is_completed() {
            world.see(1);
        }
        for caller in callers {
            caller.join().unwrap();
        }
        assert!(world.once.is_completed());
        world.see(1);
    });
}

struct OnPurpose;

impl World {
    /// A call whose closure panics if it is the first. True: it returned.
    fn call(&self) -> bool {
        let call = || {
            self.once.call_once_force(|state| {
                self.run();
                if !state.is_poisoned() {
                    resume_unwind(Box::new(OnPurpose));
                }
            });
        };
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(()) => {
                self.see(2);
                true
            }
            Err(payload) if payload.is::<OnPurpose>() => false,
            Err(found) => resume_unwind(found),
        }
    }
}

/// Two threads call. The first closure panics, the second does not. At most 3 preemptions.
pub(crate) fn panics_once() {
    crate::check(Some(3), || {
        let world = World::new();
        let callers = [(); 2].map(|()| {
            let world = world.clone();
            thread::spawn(move || world.call())
        });
        let returned = callers.map(|caller| caller.join().unwrap());
        assert!(returned[0] != returned[1], "lost or doubled");
        assert!(world.once.is_completed());
    });
}

/// One thread waits; another calls twice, and panics first. At most 3 preemptions.
pub(crate) fn waits() {
    crate::check(Some(3), || {
        let world = World::new();
        let waiter = thread::spawn({
            let world = world.clone();
            move || {
                world.once.wait_force();
                world.see(2);
            }
        });
        assert!(!world.call());
        assert!(world.call());
        waiter.join().unwrap();
    });
}
