//! Models of an operation's way to the ring's keeper and back: the inbox, the bell, and the waiter
//! that lies in the operation, on the stack of the thread that waits.

use core::ptr;
use std::sync::Arc;

use loom::thread::{self, Thread};

use crate::{
    atomic::Cell,
    driver::inbox::{Inbox, Linked},
    wait::{Outcome, Waiter, wait_reason},
};

struct Operation {
    link: Cell<*const Operation>,
    /// What is to be cancelled; null is a question, which has an answer.
    cancels: *const Operation,
    question: u32,
    result: Cell<u32>,
    waiter: Waiter,
}

const CANCELLED: u32 = 1000;

// SAFETY: one cell, which nothing else uses.
unsafe impl Linked for Operation {
    fn link(&self) -> &Cell<*const Operation> {
        &self.link
    }
}

impl Operation {
    fn new(question: u32, cancels: *const Operation) -> Operation {
        Operation {
            link: Cell::new(ptr::null()),
            cancels,
            question,
            result: Cell::new(0),
            waiter: Waiter::new(),
        }
    }

    /// The keeper's last look.
    unsafe fn complete(operation: *const Operation, result: u32) {
        // SAFETY: its thread waits until it is woken.
        unsafe {
            (*operation).result.set(result);
            Waiter::wake_at(&raw const (*operation).waiter);
        }
    }
}

/// The keeper, and the kernel behind it. It answers questions at once, or only when they are
/// cancelled.
#[derive(Clone, Copy, PartialEq)]
enum Kernel {
    Answers,
    Holds,
}

/// Ends after `count` operations. It waits in the kernel as often as it can, but for the first time
/// if that `returns_early`, for a reason that has nothing to do with the inbox.
fn keep(inbox: &Inbox<Operation>, kernel: Kernel, mut count: u32, mut returns_early: bool) {
    let mut held = ptr::null();
    while count > 0 {
        for operation in inbox.take() {
            // SAFETY: taken, and not completed yet.
            unsafe {
                let (cancels, question) = ((*operation).cancels, (*operation).question);
                if !cancels.is_null() {
                    assert!(ptr::eq(cancels, held), "cancelled before it began");
                    Operation::complete(operation, 0);
                    Operation::complete(held, CANCELLED);
                } else if kernel == Kernel::Holds {
                    held = operation;
                } else {
                    Operation::complete(operation, question + 1);
                }
            }
            count -= 1;
        }
        if count > 0 && inbox.rest() {
            if !std::mem::take(&mut returns_early) {
                thread::park();
            }
            inbox.rouse();
        }
    }
}

fn submit(inbox: &Inbox<Operation>, keeper: &Thread, operation: &Operation) {
    // SAFETY: the caller waits for its completion.
    if unsafe { inbox.push(operation) } {
        keeper.unpark();
    }
}

fn ask(inbox: &Inbox<Operation>, keeper: &Thread, question: u32) {
    let operation = Operation::new(question, ptr::null());
    submit(inbox, keeper, &operation);
    assert_eq!(operation.waiter.wait(wait_reason(), None), Outcome::Notified);
    assert_eq!(operation.result.get(), question + 1, "lost or doubled");
}

fn run(
    kernel: Kernel,
    count: u32,
    returns_early: bool,
    threads: Vec<fn(&Inbox<Operation>, &Thread)>,
) {
    let inbox = Arc::new(Inbox::new());
    let keeper = thread::spawn({
        let inbox = inbox.clone();
        move || keep(&inbox, kernel, count, returns_early)
    });
    let threads = threads.into_iter().map(|body| {
        let (inbox, keeper) = (inbox.clone(), keeper.thread().clone());
        thread::spawn(move || body(&inbox, &keeper))
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    keeper.join().unwrap();
}

/// Two threads ask. At most 2 preemptions.
pub(crate) fn two_ask() {
    crate::check(Some(2), || {
        let one: fn(&Inbox<Operation>, &Thread) = |inbox, keeper| ask(inbox, keeper, 1);
        run(Kernel::Answers, 2, false, vec![one, one]);
    });
}

/// A thread asks again, at the same address, while the keeper still is at the first batch. At most
/// 3 preemptions.
pub(crate) fn asks_again() {
    crate::check(Some(3), || {
        let twice: fn(&Inbox<Operation>, &Thread) = |inbox, keeper| {
            ask(inbox, keeper, 1);
            ask(inbox, keeper, 2);
        };
        run(Kernel::Answers, 2, false, vec![twice]);
    });
}

/// The keeper comes back from the kernel though nobody rang. At most 2 preemptions.
pub(crate) fn roused_by_itself() {
    crate::check(Some(2), || {
        let one: fn(&Inbox<Operation>, &Thread) = |inbox, keeper| ask(inbox, keeper, 1);
        run(Kernel::Answers, 2, true, vec![one, one]);
    });
}

/// A question's time is up: its thread cancels it, and waits for both to end. At most 2
/// preemptions.
pub(crate) fn time_is_up() {
    crate::check(Some(2), || {
        run(
            Kernel::Holds,
            2,
            false,
            vec![|inbox, keeper| {
                let operation = Operation::new(1, ptr::null());
                submit(inbox, keeper, &operation);
                assert_eq!(operation.waiter.wait(wait_reason(), Some(0)), Outcome::Expired);
                let cancel = Operation::new(0, &operation);
                submit(inbox, keeper, &cancel);
                assert_eq!(cancel.waiter.wait(wait_reason(), None), Outcome::Notified);
                assert_eq!(operation.waiter.wait(wait_reason(), None), Outcome::Notified);
                assert_eq!(operation.result.get(), CANCELLED, "lost or doubled");
            }],
        );
    });
}
