//! Stands in for the library's `sys`: its lock and its table, and a futex in virtual time.

#[path = "../../../../src/sys/lock.rs"]
pub(crate) mod lock;
#[path = "../../../../src/sys/table.rs"]
pub(crate) mod table;

pub(crate) fn die(message: &str) -> ! {
    panic!("{message}");
}

pub(crate) mod futex {
    use crate::atomic::AtomicU32;
    use crate::engine;

    pub(crate) fn wait(word: &AtomicU32, expected: u32, _deadline: Option<u64>) {
        let address = core::ptr::from_ref(word).addr();
        engine::futex_wait(address, || {
            word.load(crate::atomic::Ordering::Relaxed) == expected
        });
    }

    pub(crate) fn wake(word: *const AtomicU32, count: u32) {
        engine::futex_wake(word.addr(), count);
    }
}
