//! Stands in for the library's `driver`: its protocol files, and the turn at collecting events with
//! its bell.

#[path = "../../../src/engine/driver/uring/inbox.rs"]
pub(crate) mod inbox;
#[path = "../../../src/engine/driver/readiness.rs"]
pub(crate) mod readiness;

pub(crate) mod epoll {
    use std::{cell::RefCell, sync::Arc};

    use crate::{
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
        green::fifo::Fifo,
        sys::futex,
    };

    /// All Relaxed: the bell orders nothing for who hears it.
    pub(crate) struct Readiness {
        taken: AtomicBool,
        /// 1: it was rung, and nobody has heard it.
        bell: AtomicU32,
    }

    // On a kernel thread that runs one model.
    std::thread_local! {
        static READINESS: RefCell<Option<Arc<Readiness>>> = const { RefCell::new(None) };
    }

    /// For the beginning of an execution in which events are collected.
    pub(crate) fn begin() {
        READINESS.set(Some(Arc::new(Readiness {
            taken: AtomicBool::new(false),
            bell: AtomicU32::new(0),
        })));
    }

    pub(crate) fn readiness() -> Arc<Readiness> {
        READINESS.with_borrow(|readiness| readiness.clone().expect("it has begun"))
    }

    pub(crate) struct Turn(Arc<Readiness>);

    /// A turn that is none: for a mutant.
    pub(crate) fn for_all() -> Turn {
        Turn(readiness())
    }

    impl Readiness {
        pub(crate) fn turn(self: Arc<Self>) -> Option<Turn> {
            (!self.taken.swap(true, Relaxed)).then(|| Turn(self))
        }

        /// Ends the wait of who has the turn, or the next one's.
        pub(crate) fn ring(&self) {
            self.bell.swap(1, Relaxed);
            futex::wake(&self.bell, 1);
        }
    }

    impl Turn {
        /// Nothing comes but rings. It may return early, as the real one does.
        pub(crate) fn collect(&self, nanos: Option<u64>) -> Fifo {
            if self.0.bell.swap(0, Relaxed) == 0 && nanos != Some(0) {
                futex::wait(&self.0.bell, 0, None);
                self.0.bell.swap(0, Relaxed);
            }
            Fifo::new()
        }
    }

    impl Drop for Turn {
        fn drop(&mut self) {
            self.0.taken.swap(false, Relaxed);
        }
    }
}
