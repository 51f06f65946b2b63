//! Flows: what is given is taken, once, and nothing else is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use greenthread::channel::{self, Receiver, Select, Sender, select};
use greenthread::sync::{self, Condvar, mpsc};
use greenthread::thread;
use greenthread::time::Duration;

use super::{ACTORS, Actor, Book, Patients, lock};
use crate::common::wait_until;

pub struct Message {
    number: u64,
    _alive: Arc<()>,
}

enum Taken {
    One(Message),
    /// Somebody else is at it, or the limit has passed.
    None,
    /// No more will come.
    Over,
}

impl From<Option<Message>> for Taken {
    fn from(message: Option<Message>) -> Taken {
        message.map_or(Taken::Over, Taken::One)
    }
}

type Limit = Option<Duration>;

struct Flow<G, T, S> {
    give: G,
    take: T,
    shut: S,
    givers: AtomicUsize,
    sides: [Patients; 2],
    ahead: AtomicUsize,
    /// There are so few messages that takers wait, and not givers.
    is_scarce: AtomicBool,
    sent: Mutex<Vec<u64>>,
    got: Mutex<Vec<u64>>,
    alive: Arc<()>,
}

/// `give` says whether the message is gone. `shut`: there are no more.
fn flow<G, T, S>(give: G, take: T, shut: S) -> Arc<dyn Book>
where
    G: Fn(Message, Limit) -> bool + Send + Sync + 'static,
    T: Fn(Limit) -> Taken + Send + Sync + 'static,
    S: Fn() + Send + Sync + 'static,
{
    Arc::new(Flow {
        give,
        take,
        shut,
        givers: AtomicUsize::new(ACTORS / 2),
        sides: Default::default(),
        ahead: AtomicUsize::new(0),
        is_scarce: AtomicBool::new(true),
        sent: Mutex::default(),
        got: Mutex::default(),
        alive: Arc::default(),
    })
}

impl<G, T, S> Book for Flow<G, T, S>
where
    G: Fn(Message, Limit) -> bool + Send + Sync,
    T: Fn(Limit) -> Taken + Send + Sync,
    S: Fn() + Send + Sync,
{
    fn act(&self, actor: &mut Actor) {
        if actor.index % 2 == 1 {
            loop {
                let limit = actor.limit();
                let served = |taken: &Taken| matches!(taken, Taken::One(_));
                match self.sides[1].either(actor, || (self.take)(limit), served) {
                    Some(Taken::One(message)) => {
                        self.ahead.fetch_sub(1, SeqCst);
                        lock(&self.got).push(message.number);
                    }
                    Some(Taken::Over) => break,
                    Some(Taken::None) => thread::yield_now(),
                    None => {}
                }
                actor.dawdle();
            }
            return;
        }
        let mut number = (actor.index as u64) << 32;
        while actor.goes_on() {
            let most = if self.is_scarce.load(SeqCst) {
                1
            } else {
                ACTORS
            };
            // Counted before a taker can have it.
            if self.ahead.fetch_add(1, SeqCst) < most {
                number += 1;
                let _alive = self.alive.clone();
                let (message, limit) = (Message { number, _alive }, actor.limit());
                let give = || (self.give)(message, limit);
                match self.sides[0].either(actor, give, |is_gone| *is_gone) {
                    Some(true) => {
                        lock(&self.sent).push(number);
                        if actor.one_in(20) {
                            self.is_scarce.fetch_xor(true, SeqCst);
                        }
                    }
                    _ => _ = self.ahead.fetch_sub(1, SeqCst),
                }
            } else {
                self.ahead.fetch_sub(1, SeqCst);
                thread::yield_now();
            }
            actor.dawdle();
        }
        if self.givers.fetch_sub(1, SeqCst) == 1 {
            (self.shut)();
        }
    }

    fn close(&self) {
        let (mut sent, mut got) = (lock(&self.sent), lock(&self.got));
        sent.sort_unstable();
        got.sort_unstable();
        assert_eq!(*sent, *got);
        assert_eq!(Arc::strong_count(&self.alive), 1, "a message has leaked");
    }
}

/// Senders are cloned from it until it is taken.
type Open<S> = Arc<Mutex<Option<S>>>;

fn open<S>(sender: S) -> Open<S> {
    Arc::new(Mutex::new(Some(sender)))
}

fn clone<S: Clone>(open: &Open<S>) -> S {
    lock(open).clone().expect("givers are there")
}

pub fn of_channel((sender, receiver): (Sender<Message>, Receiver<Message>)) -> Arc<dyn Book> {
    let sender = open(sender);
    let shut = sender.clone();
    let give = move |message, limit| match limit {
        None => clone(&sender).send(message).is_ok(),
        Some(limit) => clone(&sender).send_timeout(message, limit).is_ok(),
    };
    let take = move |limit| match limit {
        None => receiver.recv().ok().into(),
        Some(limit) => match receiver.recv_timeout(limit) {
            Err(error) if error.is_timeout() => Taken::None,
            other => other.ok().into(),
        },
    };
    flow(give, take, move || drop(lock(&shut).take()))
}

pub fn of_select() -> Arc<dyn Book> {
    let ((s, r), (s2, r2)) = (channel::bounded(0), channel::bounded(1));
    let senders = open((s, s2));
    let shut = senders.clone();
    let give = move |message, limit: Limit| {
        let (s, s2) = clone(&senders);
        select! {
            send(s, message) -> result => result.is_ok(),
            send(s2, message) -> result => result.is_ok(),
            default(limit.unwrap_or(Duration::MAX)) => false,
        }
    };
    let take = move |limit| match limit {
        Some(limit) => select! {
            recv(r) -> message => message.or_else(|_| r2.recv()).ok().into(),
            recv(r2) -> message => message.or_else(|_| r.recv()).ok().into(),
            default(limit) => Taken::None,
        },
        None => {
            let (mut select, both) = (Select::new(), [&r, &r2]);
            both.iter().for_each(|receiver| _ = select.recv(receiver));
            let chosen = select.select();
            let index = chosen.index();
            let message = chosen.recv(both[index]);
            message.or_else(|_| both[1 - index].recv()).ok().into()
        }
    };
    flow(give, take, move || drop(lock(&shut).take()))
}

pub fn of_mpsc<S: Clone + Send + Sync + 'static>(
    (sender, receiver): (S, mpsc::Receiver<Message>),
    send: fn(&S, Message) -> Result<(), mpsc::SendError<Message>>,
) -> Arc<dyn Book> {
    let (sender, receiver) = (open(sender), sync::Mutex::new(receiver));
    let shut = sender.clone();
    let give = move |message, _| send(&clone(&sender), message).is_ok();
    let take = move |limit| {
        // Whoever unwinds has poisoned it.
        receiver.clear_poison();
        let Ok(receiver) = receiver.try_lock() else {
            return Taken::None;
        };
        match limit {
            None => receiver.recv().ok().into(),
            Some(limit) => match receiver.recv_timeout(limit) {
                Err(mpsc::RecvTimeoutError::Timeout) => Taken::None,
                other => other.ok().into(),
            },
        }
    };
    flow(give, take, move || drop(lock(&shut).take()))
}

/// A queue for two messages. Its mutex is never poisoned, since a wait that unwinds does not hold it.
pub fn of_condvar() -> Arc<dyn Book> {
    #[derive(Default)]
    struct Queue {
        /// The messages, and whether no more will come.
        state: sync::Mutex<(VecDeque<Message>, bool)>,
        changed: [Condvar; 2],
    }
    impl Queue {
        /// Waits until `is_there`, then does `work`, and tells one of the other side.
        fn pass<T>(
            &self,
            side: usize,
            limit: Limit,
            is_there: fn(&(VecDeque<Message>, bool)) -> bool,
            work: impl FnOnce(&mut VecDeque<Message>) -> T,
        ) -> Option<T> {
            let mut state = self.state.lock().unwrap();
            while !is_there(&state) {
                let Some(limit) = limit else {
                    state = self.changed[side].wait(state).unwrap();
                    continue;
                };
                let (again, result) = self.changed[side].wait_timeout(state, limit).unwrap();
                state = again;
                if result.timed_out() && !is_there(&state) {
                    return None;
                }
            }
            self.changed[1 - side].notify_one();
            Some(work(&mut state.0))
        }
    }
    let queue = Arc::new(Queue::default());
    let (takes, shuts) = (queue.clone(), queue.clone());
    let give = move |message, limit| {
        let has_room = |state: &(VecDeque<_>, _)| state.0.len() < 2;
        let given = queue.pass(0, limit, has_room, |queue| queue.push_back(message));
        given.is_some()
    };
    let take = move |limit| {
        let has_news = |state: &(VecDeque<_>, _)| !state.0.is_empty() || state.1;
        let taken = takes.pass(1, limit, has_news, VecDeque::pop_front);
        taken.map_or(Taken::None, Taken::from)
    };
    flow(give, take, move || {
        shuts.state.lock().unwrap().1 = true;
        shuts.changed[1].notify_all();
    })
}

/// One thread unparks the other, and waits until that has come out of `park`, which does not look before it parks: the
/// token survives a `park` that unwinds.
pub fn of_unparks() -> Arc<dyn Book> {
    Arc::new(Mails::default())
}

/// For each two actors: 1 if there is mail, 2 if it is the last.
#[derive(Default)]
struct Mails([AtomicUsize; ACTORS / 2]);

impl Book for Mails {
    fn act(&self, actor: &mut Actor) {
        let mail = &self.0[actor.index / 2];
        if actor.index % 2 == 1 {
            let mut is_over = false;
            while !is_over {
                let parked = actor.either(thread::park);
                is_over = parked.is_some() && mail.swap(0, SeqCst) == 2;
                actor.dawdle();
            }
            return;
        }
        let reader = &actor.control.threads[actor.index + 1];
        wait_until(|| reader.get().is_some());
        let reader = reader.get().unwrap().clone();
        let mut goes_on = true;
        while goes_on {
            goes_on = actor.goes_on();
            mail.store(if goes_on { 1 } else { 2 }, SeqCst);
            reader.unpark();
            while mail.load(SeqCst) != 0 {
                thread::yield_now();
            }
            actor.dawdle();
        }
    }

    fn close(&self) {}
}
