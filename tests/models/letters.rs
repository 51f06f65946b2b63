//! What the models of channels and of select send: letters. Each is opened at most once, and dropped
//! once.

use std::{array, sync::Arc};

use loom::cell::UnsafeCell;

use crate::channel::{self, Receiver, Sender};

/// 0 before it is written, 1 when it is sent, 2 when it was opened.
struct Text(UnsafeCell<u32>);

/// A message.
pub(crate) struct Letter(Arc<Text>);

impl Letter {
    pub(crate) fn write(self) -> Letter {
        // SAFETY: what the model checks.
        self.0.0.with_mut(|text| unsafe { *text = 1 });
        self
    }

    pub(crate) fn open(self) {
        // SAFETY: what the model checks.
        self.0.0.with_mut(|text| unsafe {
            assert_eq!(*text, 1, "lost or doubled");
            *text = 2;
        });
    }
}

/// All letters of an execution.
pub(crate) struct Post<const N: usize>([Arc<Text>; N]);

impl<const N: usize> Post<N> {
    pub(crate) fn new() -> (Post<N>, [Letter; N]) {
        let post = Post(array::from_fn(|_| Arc::new(Text(UnsafeCell::new(0)))));
        let letters = array::from_fn(|n| Letter(post.0[n].clone()));
        (post, letters)
    }

    /// At the end: so many were opened, and all dropped.
    pub(crate) fn check(self, opened: usize) {
        let mut found = 0;
        for text in self.0 {
            let text = Arc::into_inner(text).expect("lost or doubled").0;
            // SAFETY: nobody else has it.
            found += usize::from(text.with(|text| unsafe { *text }) == 2);
        }
        assert_eq!(found, opened, "lost or doubled");
    }
}

pub(crate) fn with_capacity(capacity: usize) -> (Sender<Letter>, Receiver<Letter>) {
    match capacity {
        usize::MAX => channel::unbounded(),
        _ => channel::bounded(capacity),
    }
}

pub(crate) fn send(sender: &Sender<Letter>, letter: Letter) {
    assert!(sender.send(letter.write()).is_ok(), "lost or doubled");
}

pub(crate) fn receive(receiver: &Receiver<Letter>) {
    receiver.recv().expect("lost or doubled").open();
}
