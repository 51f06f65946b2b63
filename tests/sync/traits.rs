//! The types of `greenthread::sync` have the auto traits that std's have, for every kind of
//! content.
//!
//! The idea: whether a type has a trait is a constant (an inherent constant hides a trait's), so
//! the two are compared while compiling.

#[macro_use]
#[path = "../support/implements.rs"]
mod implements;

use greenthread::sync as green;
use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::sync as std_sync;

/// Send but not Sync; neither; Sync but not Send; both.
type Contents = (
    Cell<u8>,
    Rc<u8>,
    std_sync::MutexGuard<'static, u8>,
    Vec<String>,
);

macro_rules! same {
    ($ours:ty, $theirs:ty) => {
        const {
            assert!(implements!($ours, Send) == implements!($theirs, Send));
            assert!(implements!($ours, Sync) == implements!($theirs, Sync));
            assert!(implements!($ours, Unpin) == implements!($theirs, Unpin));
            assert!(implements!($ours, UnwindSafe) == implements!($theirs, UnwindSafe));
            assert!(implements!($ours, RefUnwindSafe) == implements!($theirs, RefUnwindSafe));
        }
    };
    ($($name:ident),*; $content:ty) => {
        $(same!(green::$name<$content>, std_sync::$name<$content>);)*
    };
    (guards $($name:ident),*; $content:ty) => {
        $(same!(green::$name<'static, $content>, std_sync::$name<'static, $content>);)*
    };
}

macro_rules! same_for_all {
    ($($content:ty),*) => {
        $(
            same!(Mutex, RwLock; $content);
            same!(guards MutexGuard, RwLockReadGuard, RwLockWriteGuard; $content);
        )*
    };
}

#[test]
fn auto_traits_are_those_of_std() {
    same_for_all!(
        Cell<u8>,
        Rc<u8>,
        std_sync::MutexGuard<'static, u8>,
        Vec<String>,
        *mut u8,
        &'static Cell<u8>,
        &'static mut u8,
        Contents,
        [u8],
        dyn Send,
        dyn Sync
    );
    same!(green::Condvar, std_sync::Condvar);
    same!(green::WaitTimeoutResult, std_sync::WaitTimeoutResult);
    same!(green::Barrier, std_sync::Barrier);
    same!(green::BarrierWaitResult, std_sync::BarrierWaitResult);
    const {
        assert!(implements!(green::Semaphore, Sync) && implements!(green::Semaphore, UnwindSafe));
        assert!(implements!(green::SemaphorePermit<'static>, Send));
        assert!(implements!(green::OwnedSemaphorePermit, Send));
        assert!(implements!(green::WaitGroup, Send) && implements!(green::WaitGroup, Sync));
        assert!(implements!(green::WaitGroup, UnwindSafe));
    }
}

#[test]
fn constants_sizes_and_conversions() {
    static MUTEX: green::Mutex<u8> = green::Mutex::new(1);
    static LOCK: green::RwLock<u8> = green::RwLock::new(2);
    static CONDVAR: green::Condvar = green::Condvar::new();
    static BARRIER: green::Barrier = green::Barrier::new(1);
    static SEMAPHORE: green::Semaphore = green::Semaphore::new(3);
    assert_eq!(*MUTEX.lock().unwrap() + *LOCK.read().unwrap(), 3);
    CONDVAR.notify_all();
    assert!(BARRIER.wait().is_leader());
    assert_eq!(SEMAPHORE.available_permits(), 3);

    assert_eq!(size_of::<green::Mutex<u64>>(), 16 + 8);
    assert_eq!(size_of::<green::RwLock<u64>>(), 24 + 8);
    assert_eq!(size_of::<green::Condvar>(), 8);

    assert_eq!(green::Mutex::from(7).into_inner().unwrap(), 7);
    assert_eq!(green::RwLock::from(7).into_inner().unwrap(), 7);
    assert_eq!(green::Mutex::<u8>::default().into_inner().unwrap(), 0);
    assert_eq!(green::RwLock::<u8>::default().into_inner().unwrap(), 0);
    let _ = (green::Condvar::default(), green::WaitGroup::default());

    // Unsized contents, and a guard as a reference.
    let slice: &green::Mutex<[u8]> = &green::Mutex::new([1, 2, 3]);
    slice.lock().unwrap()[1] = 5;
    assert_eq!(slice.lock().unwrap().iter().sum::<u8>(), 9);
    let slice: Box<green::RwLock<[u8]>> = Box::new(green::RwLock::new([1, 2, 3]));
    slice.write().unwrap()[1] = 5;
    assert_eq!(slice.read().unwrap().iter().sum::<u8>(), 9);
    fn shorter<'a>(
        guard: green::RwLockReadGuard<'a, &'static str>,
        _: &'a str,
    ) -> green::RwLockReadGuard<'a, &'a str> {
        guard // a reader is covariant, as std's
    }
    let text = green::RwLock::new("text");
    assert_eq!(*shorter(text.read().unwrap(), &String::from("x")), "text");
}

#[test]
fn debug_is_that_of_std() {
    macro_rules! shown {
        ($sync:ident) => {{
            let mut all = Vec::new();
            let mutex = $sync::Mutex::new(5);
            all.push(format!("{mutex:?} {mutex:#?}"));
            let guard = mutex.lock().unwrap();
            all.push(format!("{mutex:?} {guard:?} {guard}"));
            drop(guard);
            std::panic::catch_unwind(|| {
                let _guard = mutex.lock().unwrap();
                std::panic::resume_unwind(Box::new(()));
            })
            .unwrap_err();
            all.push(format!("{mutex:?} {:?}", mutex.lock()));
            let lock = $sync::RwLock::new(5);
            all.push(format!("{lock:?} {lock:#?}"));
            let guard = lock.read().unwrap();
            all.push(format!("{lock:?} {guard:?} {guard}"));
            drop(guard);
            let guard = lock.write().unwrap();
            all.push(format!("{lock:?} {guard:?} {guard}"));
            drop(guard);
            std::panic::catch_unwind(|| {
                let _guard = lock.write().unwrap();
                std::panic::resume_unwind(Box::new(()));
            })
            .unwrap_err();
            all.push(format!("{lock:?} {:?}", lock.read()));
            all.push(format!("{:?}", lock.try_write()));
            let barrier = $sync::Barrier::new(1);
            all.push(format!("{barrier:?} {:?}", barrier.wait()));
            let condvar = $sync::Condvar::new();
            let none = std::time::Duration::ZERO;
            let mutex = $sync::Mutex::new(());
            let (_guard, result) = condvar.wait_timeout(mutex.lock().unwrap(), none).unwrap();
            all.push(format!("{condvar:?} {result:?}"));
            all
        }};
    }
    assert_eq!(shown!(green), shown!(std_sync));
}
