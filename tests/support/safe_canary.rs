//! A value that dies of undefined behaviour.

use super::die;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A value that notices whether it is whole and dropped once. `deadly`: its drop panics.
pub struct Canary {
    pub guts: Vec<u64>,
    pub deadly: bool,
}

pub static BORN: AtomicUsize = AtomicUsize::new(0);
pub static DEAD: AtomicUsize = AtomicUsize::new(0);

impl Canary {
    pub fn new(seed: usize) -> Canary {
        BORN.fetch_add(1, SeqCst);
        Canary {
            guts: (0..1 + seed as u64 % 40).map(|i| i * 0x0101_0101).collect(),
            deadly: false,
        }
    }

    pub fn check(&self) {
        let whole = |(i, &gut): (usize, &u64)| gut == i as u64 * 0x0101_0101;
        assert!(!self.guts.is_empty() && self.guts.iter().enumerate().all(whole));
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.check();
        self.guts.iter_mut().for_each(|gut| *gut = u64::MAX);
        assert!(
            DEAD.fetch_add(1, SeqCst) < BORN.load(SeqCst),
            "dropped twice"
        );
        if self.deadly && !std::thread::panicking() && !greenthread::panicking() {
            die();
        }
    }
}
