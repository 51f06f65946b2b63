//! Threads that die of a panic which is part of the test, and of which the output says nothing.

#![allow(dead_code)] // every test file uses its own part of this

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

/// A panic payload that the hook keeps quiet about.
pub struct Killed;

pub fn quietly() {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Killed>() {
                loud(info);
            }
        }));
    });
}

pub fn die() -> ! {
    panic_any(Killed)
}

/// Runs `body` and expects it to die.
pub fn killed<T>(body: impl FnOnce() -> T) {
    quietly();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(_) => panic!("it lives"),
        Err(payload) => assert!(payload.is::<Killed>(), "of something else"),
    }
    assert!(!greenthread::panicking() && !std::thread::panicking());
}
