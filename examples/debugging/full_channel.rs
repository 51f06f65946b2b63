//! Threads that send into a channel which nobody empties: the only receiver waits for their end first.

use greenthread::channel;
use greenthread::thread;

pub(crate) fn main() {
    let (send, receive) = channel::bounded(1);
    let senders: Vec<_> = ["one", "two"]
        .into_iter()
        .map(|name| {
            let send = send.clone();
            let sender = thread::Builder::new().name(name.into());
            let body = move || (0..10).for_each(|i| send.send(i).unwrap());
            sender.spawn(body).unwrap()
        })
        .collect();
    drop(send);
    // The two loops are in the wrong order.
    for sender in senders {
        sender.join().unwrap();
    }
    for number in receive {
        println!("{number}");
    }
}
