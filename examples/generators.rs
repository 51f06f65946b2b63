//! Generators: counting, walking a tree, and coroutines that block.
//!
//! 1. `count` yields the numbers from `begin` to `end`, prints the values that it is sent meanwhile, and
//!    returns a text. It is written after a generator in Python.
//! 2. A generator without input is an iterator: here one that walks a tree, recursively, as a plain
//!    function would.
//! 3. A coroutine is a thread: it may block, and may be resumed from other threads.

use greenthread::coroutine::{Coroutine, CoroutineResult, Yielder};

type Counter = Coroutine<Option<&'static str>, u32, String>;

fn count(begin: u32, end: u32) -> Counter {
    Coroutine::new(move |yielder, _| {
        let mut index = begin;
        while index < end {
            if let Some(received) = yielder.suspend(index) {
                println!("received: {received}");
            }
            index += 1;
        }
        format!("final result is {index}")
    })
}

struct Tree {
    value: u32,
    children: Vec<Tree>,
}

impl Tree {
    fn new(value: u32, children: Vec<Tree>) -> Tree {
        Tree { value, children }
    }

    fn walk(&self, yielder: &Yielder<(), u32>) {
        yielder.suspend(self.value);
        self.children.iter().for_each(|child| child.walk(yielder));
    }

    fn into_values(self) -> impl Iterator<Item = u32> {
        Coroutine::new(move |yielder, ()| self.walk(yielder))
    }
}

/// Prints the result of a resumption, and returns whether it was the last one.
fn show(result: CoroutineResult<u32, String>) -> bool {
    match &result {
        CoroutineResult::Yield(index) => println!("{index}"),
        CoroutineResult::Return(text) => println!("{text}"),
    }
    result.as_return().is_some()
}

fn main() {
    let mut counter = count(0, 3);
    show(counter.resume(None));
    show(counter.resume(Some("a param from caller!")));
    while !show(counter.resume(None)) {}

    let leaf = |value| Tree::new(value, vec![]);
    let tree = Tree::new(1, vec![Tree::new(2, vec![leaf(3), leaf(4)]), leaf(5)]);
    let values: Vec<u32> = tree.into_values().collect();
    println!("a tree's values: {values:?}");

    let mut counter = count(7, 100);
    counter.resume(None);
    let elsewhere = greenthread::spawn(move || counter.resume(Some("on another thread")));
    show(elsewhere.join().expect("the counter does not panic"));
}
