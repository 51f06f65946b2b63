//! Two threads, each of which waits for the other's end.

use greenthread::channel;
use greenthread::thread::{self, JoinHandle};

pub(crate) fn main() {
    let (give_first, first) = channel::bounded::<JoinHandle<()>>(1);
    let (give_second, second) = channel::bounded::<JoinHandle<()>>(1);
    let romeo = thread::Builder::new().name("romeo".into());
    let romeo = romeo.spawn(move || wait_for(first)).unwrap();
    let juliet = thread::Builder::new().name("juliet".into());
    let juliet = juliet.spawn(move || wait_for(second)).unwrap();
    give_first.send(juliet).unwrap();
    give_second.send(romeo).unwrap();
    // The main thread has nothing left to do, and waits, too.
    thread::park();
}

fn wait_for(other: channel::Receiver<JoinHandle<()>>) {
    other.recv().unwrap().join().unwrap();
}
