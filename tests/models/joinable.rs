//! Models of who gives back the stack of a thread that C may still name: it is given back once, after all that is done with it,
//! and one thread joins or detaches its owner.

use std::sync::{
    Arc,
    atomic::{AtomicUsize as Plain, Ordering::SeqCst},
};

use loom::{cell::UnsafeCell, sync::Notify, thread};

use crate::sched::joinable::Joinable;

struct Stack {
    word: Joinable,
    /// Who uses the stack writes it.
    memory: UnsafeCell<()>,
    /// What the joiner owns: whoever has claimed the thread writes it, and who gives the stack back.
    joiner: UnsafeCell<()>,
    /// The thread has said that it ends.
    end: Notify,
    given_back: Plain,
    refused: Plain,
}

impl Stack {
    fn of_pthread() -> Arc<Stack> {
        let stack = Stack {
            word: Joinable::default(),
            memory: UnsafeCell::new(()),
            joiner: UnsafeCell::new(()),
            end: Notify::new(),
            given_back: Plain::new(0),
            refused: Plain::new(0),
        };
        stack.word.begin(false);
        Arc::new(stack)
    }

    fn touch(&self) {
        self.memory.with_mut(|_| ());
    }

    fn give_back(&self) {
        self.touch();
        self.joiner.with_mut(|_| ());
        self.given_back.fetch_add(1, SeqCst);
    }

    /// The thread's part, and the run loop's.
    fn end(&self) {
        self.touch();
        self.end.notify();
        self.touch();
        if self.word.end() {
            self.give_back();
        }
    }

    /// The part of a joiner, or of who detaches the thread. `waits`: false if the time is up.
    fn join(&self, waits: impl FnOnce() -> bool) {
        if !self.word.claim() {
            self.refused.fetch_add(1, SeqCst);
            return;
        }
        self.joiner.with_mut(|_| ());
        let has_ended = waits();
        match has_ended {
            true if self.word.leave() => self.give_back(),
            true => {}
            false => self.word.give_up(),
        }
    }
}

fn run(owner: &Arc<Stack>, part: fn(&Stack)) -> thread::JoinHandle<()> {
    let stack = owner.clone();
    thread::spawn(move || part(&stack))
}

fn check(play: fn(&Arc<Stack>)) {
    crate::check(None, move || {
        let stack = Stack::of_pthread();
        play(&stack);
        assert_eq!(stack.given_back.load(SeqCst), 1, "lost or doubled");
    });
}

/// No bound.
pub(crate) fn joined() {
    check(|stack| {
        let ends = run(stack, Stack::end);
        stack.join(|| {
            stack.end.wait();
            true
        });
        ends.join().unwrap();
    });
}

/// No bound.
pub(crate) fn let_go() {
    check(|stack| {
        let ends = run(stack, Stack::end);
        stack.join(|| true);
        ends.join().unwrap();
    });
}

/// One of two is refused. No bound.
pub(crate) fn claimed_by_two() {
    check(|stack| {
        let ends = run(stack, Stack::end);
        let other = run(stack, |stack| stack.join(|| true));
        stack.join(|| true);
        ends.join().unwrap();
        other.join().unwrap();
        assert_eq!(stack.refused.load(SeqCst), 1, "lost or doubled");
    });
}

/// The time of a joiner is up, and then it detaches the thread. No bound.
pub(crate) fn claimed_again() {
    check(|stack| {
        let ends = run(stack, Stack::end);
        stack.join(|| false);
        stack.join(|| true);
        ends.join().unwrap();
    });
}
