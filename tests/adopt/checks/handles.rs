//! `JoinHandle`, `Thread` and `ThreadId`.

use super::*;
use std::collections::{HashMap, HashSet};
use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, Thread, ThreadId};

/// A thread that ends when told to.
fn stoppable<T: Send + 'static>(value: T) -> (Sender<()>, JoinHandle<T>) {
    let (stop, stopped) = channel();
    let body = move || {
        let _ = stopped.recv();
        value
    };
    (stop, thread::spawn(body))
}

pub fn a_handle_knows_its_thread() {
    let handle = thread::spawn(|| thread::current().id());
    let id = handle.thread().id();
    assert_eq!(handle.join().unwrap(), id);
    assert_ne!(id, thread::current().id());
}

pub fn a_handle_in_another_thread_joins() {
    let first = thread::spawn(|| 20);
    let second = thread::spawn(move || first.join().unwrap() + 1);
    let third = thread::spawn(move || second.join().unwrap() * 2);
    assert_eq!(third.join().unwrap(), 42);
}

pub fn handles_join_in_any_order() {
    let mut handles: Vec<_> = (0..60).map(|i| (i, thread::spawn(move || i * i))).collect();
    // Coprime to 60: every place is visited.
    let mut place = 0;
    while !handles.is_empty() {
        place = (place + 37) % handles.len();
        let (i, handle) = handles.remove(place);
        assert_eq!(handle.join().unwrap(), i * i);
    }
}

pub fn a_detached_thread_goes_on() {
    let (go, gone) = channel::<u32>();
    let (answer, answered) = channel();
    drop(thread::spawn(move || {
        answer.send(gone.recv().unwrap() + 1).unwrap()
    }));
    go.send(1).unwrap();
    assert_eq!(answered.recv(), Ok(2));
}

struct Tells(Sender<ThreadId>);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).unwrap();
    }
}

pub fn a_detached_threads_value_is_dropped() {
    let (tells, told) = channel();
    let (stop, handle) = stoppable(Tells(tells));
    let id = handle.thread().id();
    drop(handle);
    assert!(told.try_recv().is_err());
    drop(stop);
    assert_eq!(told.recv(), Ok(id));
}

pub fn the_value_of_an_ended_thread_goes_with_its_handle() {
    let (tells, told) = channel();
    let handle = thread::spawn(move || Tells(tells));
    wait_until(|| handle.is_finished());
    assert!(told.try_recv().is_err());
    drop(handle);
    assert_eq!(told.try_recv(), Ok(thread::current().id()));
}

pub fn is_finished_waits_for_nothing() {
    let (stop, handle) = stoppable("value");
    for _ in 0..100 {
        assert!(!handle.is_finished());
        thread::yield_now();
    }
    drop(stop);
    wait_until(|| handle.is_finished());
    assert_eq!(handle.join().unwrap(), "value");
}

pub fn is_finished_after_a_panic() {
    let handle = thread::spawn(|| panic!("on purpose"));
    wait_until(|| handle.is_finished());
    assert_eq!(died(handle.join()), "on purpose");
}

pub fn a_thread_outlives_its_end() {
    let body = || thread::current();
    let handle = thread::Builder::new().name("gone".into()).spawn(body);
    let handle = handle.unwrap();
    let outside = handle.thread().clone();
    let inside = handle.join().unwrap();
    assert_eq!(inside.id(), outside.id());
    assert_eq!(
        (inside.name(), outside.name()),
        (Some("gone"), Some("gone"))
    );
}

pub fn ids_are_unique() {
    const COUNT: usize = 200;
    let meet = Barrier::new(COUNT);
    let ids: HashSet<ThreadId> = thread::scope(|threads| {
        let body = || {
            meet.wait();
            thread::current().id()
        };
        let handles: Vec<_> = (0..COUNT).map(|_| threads.spawn(body)).collect();
        let joined = handles.into_iter().map(|handle| handle.join().unwrap());
        joined.collect()
    });
    assert_eq!(ids.len(), COUNT);
    assert!(!ids.contains(&thread::current().id()));
}

pub fn ids_are_not_used_again() {
    let in_turn = (0..300).map(|_| thread::spawn(|| thread::current().id()).join().unwrap());
    assert_eq!(in_turn.collect::<HashSet<_>>().len(), 300);
}

pub fn an_id_stays() {
    let handles: Vec<_> = (0..20)
        .map(|_| {
            thread::spawn(|| {
                let id = thread::current().id();
                (0..200).all(|_| {
                    thread::yield_now();
                    thread::current().id() == id
                })
            })
        })
        .collect();
    assert!(handles.into_iter().all(|handle| handle.join().unwrap()));
}

pub fn an_id_is_a_key() {
    let handles = (0..30).map(|i| (i, thread::spawn(move || (thread::current().id(), i))));
    let handles: Vec<_> = handles.collect();
    let by_id: HashMap<ThreadId, i32> = handles
        .iter()
        .map(|(i, handle)| (handle.thread().id(), *i))
        .collect();
    for (_, handle) in handles {
        let (id, i) = handle.join().unwrap();
        assert_eq!(by_id[&id], i);
    }
}

pub fn handles_cross_threads() {
    fn crosses<T: Send + Sync + 'static>(_: &T) {}
    let (stop, handle) = stoppable(());
    let (threads, given) = channel::<Thread>();
    crosses(&handle);
    crosses(handle.thread());
    let reader = thread::spawn(move || {
        let given: Vec<_> = given.iter().map(|thread| thread.id()).collect();
        given
    });
    threads.send(handle.thread().clone()).unwrap();
    threads.send(reader.thread().clone()).unwrap();
    drop((stop, threads));
    let expected = vec![handle.thread().id(), reader.thread().id()];
    assert_eq!(reader.join().unwrap(), expected);
    handle.join().unwrap();
}

pub fn handles_can_be_printed() {
    let handle = thread::Builder::new().name("shown".into());
    let handle = handle.spawn(|| format!("{:?}", thread::current())).unwrap();
    assert!(format!("{handle:?}").starts_with("JoinHandle"));
    let shown = format!("{:?}", handle.thread());
    assert!(shown.contains("shown"), "{shown}");
    assert!(format!("{:?}", handle.thread().id()).starts_with("ThreadId("));
    assert_eq!(handle.join().unwrap(), shown);
}
