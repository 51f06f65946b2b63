//! Models of turns: a caller and a coroutine that hand over to each other, each a green thread or a
//! kernel thread. What the two say to each other is in cells that one at a time may touch.
//!
//! Each answer is the order plus one. A turn that is lost is a deadlock.

use loom::thread::{self, JoinHandle};

use crate::{
    coroutine::turns::{self, Called, Caller, News, Order},
    sched::thread as green,
};

#[derive(Clone, Copy)]
enum Kind {
    Green,
    Kernel,
}

use Kind::{Green, Kernel};

impl Kind {
    fn spawn<T: 'static>(self, main: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        match self {
            Green => green::spawn(main),
            Kernel => thread::spawn(main),
        }
    }
}

/// Runs until it is told to unwind.
fn coroutine(called: Called<u32, u32>) {
    let mut answer = 0;
    while let Order::Resume(order) = called.suspend(News::Yielded(answer)) {
        answer = order + 1;
    }
}

fn yielded(news: News<u32>) -> u32 {
    match news {
        News::Yielded(answer) => answer,
        News::Ended | News::Stuck => panic!("lost or doubled"),
    }
}

fn begin(kind: Kind) -> Caller<u32, u32> {
    let (mut caller, side) = turns::pair();
    kind.spawn(move || coroutine(side));
    assert_eq!(yielded(caller.first_news()), 0, "lost or doubled");
    caller
}

fn ask(caller: &mut Caller<u32, u32>, question: u32) {
    let answer = yielded(caller.resume(Order::Resume(question)));
    assert_eq!(answer, question + 1, "lost or doubled");
}

fn end(mut caller: Caller<u32, u32>) {
    assert!(matches!(caller.resume(Order::Unwind), News::Ended), "lost or doubled");
}

/// From the first turn to the end.
fn between(caller: Kind, coroutine: Kind, bound: usize) {
    crate::check(Some(bound), move || {
        let caller = caller.spawn(move || {
            let mut caller = begin(coroutine);
            ask(&mut caller, 1);
            ask(&mut caller, 2);
            end(caller);
        });
        caller.join().unwrap();
    });
}

/// At most 6 preemptions.
pub(crate) fn green_to_green() {
    between(Green, Green, 6);
}

/// At most 3 preemptions.
pub(crate) fn kernel_to_green() {
    between(Kernel, Green, 3);
}

/// At most 3 preemptions.
pub(crate) fn green_to_kernel() {
    between(Green, Kernel, 3);
}

/// At most 3 preemptions.
pub(crate) fn kernel_to_kernel() {
    between(Kernel, Kernel, 3);
}

/// Another thread is the caller each time. At most 3 preemptions.
pub(crate) fn the_caller_changes() {
    for [first, second, third] in [[Green, Kernel, Green], [Kernel, Green, Kernel]] {
        crate::check(Some(3), move || {
            let caller = first.spawn(|| {
                let mut caller = begin(Green);
                ask(&mut caller, 1);
                caller
            });
            let mut caller = caller.join().unwrap();
            let caller = second.spawn(move || {
                ask(&mut caller, 2);
                caller
            });
            let mut caller = caller.join().unwrap();
            let last = third.spawn(move || {
                ask(&mut caller, 3);
                end(caller);
            });
            last.join().unwrap();
        });
    }
}
