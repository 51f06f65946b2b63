//! What is left of locks and channels when a thread panics.

use super::*;
use std::sync::mpsc::{RecvError, SendError, channel};
use std::sync::{Arc, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, TryLockError};

/// Runs it in a thread, which it ends by a panic.
fn dies<T: Send + Sync + 'static>(shared: &Arc<T>, body: fn(&T)) {
    let shared = shared.clone();
    let handle = thread::spawn(move || body(&shared));
    assert!(handle.join().is_err());
}

fn die_with<T>(_held: T) {
    panic!("on purpose");
}

pub fn a_panic_poisons_a_mutex() {
    let mutex = Arc::new(Mutex::new(1));
    dies(&mutex, |mutex| {
        let mut guard = mutex.lock().unwrap();
        *guard = 2;
        die_with(guard);
    });
    assert!(mutex.is_poisoned());
    assert_eq!(*mutex.lock().unwrap_err().into_inner(), 2);
    let tried = mutex.try_lock();
    assert!(matches!(tried, Err(TryLockError::Poisoned(_))));
    drop(tried);
    // Every thread sees it.
    let seen = mutex.clone();
    assert!(thread::spawn(move || seen.lock().is_err()).join().unwrap());
}

pub fn a_caught_panic_poisons_too() {
    let mutex = Arc::new(Mutex::new(()));
    let shared = mutex.clone();
    let handle = thread::spawn(move || caught(|| die_with(shared.lock().unwrap())).is_err());
    assert!(handle.join().unwrap() && mutex.is_poisoned());
}

pub fn a_guard_dropped_before_poisons_nothing() {
    let mutex = Arc::new(Mutex::new(()));
    dies(&mutex, |mutex| {
        drop(mutex.lock().unwrap());
        die_with(());
    });
    assert!(!mutex.is_poisoned() && mutex.lock().is_ok());
}

pub fn poison_can_be_cleared() {
    let mutex = Arc::new(Mutex::new(1));
    let lock = Arc::new(RwLock::new(1));
    dies(&mutex, |mutex| die_with(mutex.lock().unwrap()));
    dies(&lock, |lock| die_with(lock.write().unwrap()));
    mutex.clear_poison();
    lock.clear_poison();
    assert_eq!((*mutex.lock().unwrap(), *lock.read().unwrap()), (1, 1));
}

pub fn what_was_poisoned_can_be_taken() {
    let mutex = Arc::new(Mutex::new(String::from("kept")));
    dies(&mutex, |mutex| die_with(mutex.lock().unwrap()));
    let mut mutex = Arc::into_inner(mutex).unwrap();
    assert_eq!(mutex.get_mut().unwrap_err().into_inner(), "kept");
    assert_eq!(mutex.into_inner().unwrap_err().into_inner(), "kept");
}

pub fn a_writer_poisons() {
    let lock = Arc::new(RwLock::new(0));
    dies(&lock, |lock| die_with(lock.write().unwrap()));
    assert!(lock.is_poisoned() && lock.read().is_err() && lock.write().is_err());
    assert!(matches!(lock.try_read(), Err(TryLockError::Poisoned(_))));
}

pub fn a_reader_poisons_nothing() {
    let lock = Arc::new(RwLock::new(0));
    dies(&lock, |lock| die_with(lock.read().unwrap()));
    assert!(!lock.is_poisoned() && lock.write().is_ok());
}

pub fn a_condvar_tells_of_poison() {
    let both = Arc::new((Mutex::new(false), Condvar::new()));
    let waits = both.clone();
    let waiter = thread::spawn(move || {
        let (mutex, changed) = &*waits;
        let mut guard = mutex.lock();
        loop {
            match guard {
                Ok(locked) if !*locked => guard = changed.wait(locked),
                Ok(_) => return false,
                Err(_) => return true,
            }
        }
    });
    dies(&both, |(mutex, changed)| {
        let mut guard = mutex.lock().unwrap();
        *guard = true;
        changed.notify_all();
        die_with(guard);
    });
    assert!(waiter.join().unwrap());
}

pub fn a_panic_poisons_once() {
    let once = Arc::new(Once::new());
    dies(&once, |once| once.call_once(|| die_with(())));
    assert!(!once.is_completed());
    dies(&once, |once| once.call_once(|| ()));
    assert!(!once.is_completed());
}

pub fn call_once_force_tells_of_poison() {
    let once = Arc::new(Once::new());
    dies(&once, |once| once.call_once(|| die_with(())));
    once.call_once_force(|state| assert!(state.is_poisoned()));
    assert!(once.is_completed());
    let shared = once.clone();
    let again = thread::spawn(move || shared.call_once(|| unreachable!()));
    again.join().unwrap();
}

pub fn a_once_lock_is_tried_again() {
    let lock = Arc::new(OnceLock::<u32>::new());
    dies(&lock, |lock| {
        lock.get_or_init(|| {
            die_with(());
            1
        });
    });
    assert_eq!(lock.get(), None);
    assert_eq!(*lock.get_or_init(|| 2), 2);
}

pub fn a_lazy_lock_is_poisoned() {
    let lock = Arc::new(LazyLock::<u32>::new(|| {
        die_with(());
        1
    }));
    dies(&lock, |lock| _ = **lock);
    dies(&lock, |lock| _ = **lock);
}

pub fn a_sender_goes_with_a_panic() {
    let (sender, receiver) = channel();
    let handle = thread::spawn(move || {
        sender.send(1).unwrap();
        die_with(sender);
    });
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(receiver.recv(), Err(RecvError));
    assert!(handle.join().is_err());
}

pub fn a_receiver_goes_with_a_panic() {
    let (sender, receiver) = channel();
    let handle = thread::spawn(move || {
        let first: u32 = receiver.recv().unwrap();
        assert_eq!(first, 0, "on purpose");
    });
    sender.send(1).unwrap();
    assert!(handle.join().is_err());
    assert_eq!(sender.send(2), Err(SendError(2)));
}
