//! What the actors of `safe_api.rs` do with coroutines, values and channels.

use super::*;

impl Act<'_> {
    // ---- coroutines ----

    pub fn make_coroutine(&mut self) {
        let mut rng = self.rng.fork();
        if self.chance(3) {
            let generator = Coroutine::new(move |yielder: &Yielder<(), Canary>, ()| {
                for i in 0..rng.below(6) {
                    yielder.suspend(Canary::new(i));
                }
            });
            return self.put(Thing::Generator(generator));
        }
        let deadly = self.canary();
        let coroutine = Coroutine::new(move |yielder: &Yielder<Canary, Canary>, first: Canary| {
            /// Suspends where it must not.
            struct Stubborn<'a>(&'a Yielder<Canary, Canary>);
            impl Drop for Stubborn<'_> {
                fn drop(&mut self) {
                    self.0.suspend(Canary::new(7)).check();
                }
            }
            let _held = deadly;
            let mut canary = first;
            let mut locked = None;
            for _ in 0..rng.below(7) {
                canary.check();
                canary = match rng.below(9) {
                    0 => die(),
                    1 => {
                        let _stubborn = Stubborn(yielder);
                        yielder.suspend(canary)
                    }
                    2 => {
                        let again = AssertUnwindSafe(|| yielder.suspend(canary));
                        catch_unwind(again).unwrap_or_else(|_| Canary::new(1))
                    }
                    3 => {
                        // One in the other.
                        let mut inner =
                            Coroutine::new(|inner: &Yielder<Canary, Canary>, canary| {
                                inner.suspend(canary)
                            });
                        match inner.resume(yielder.suspend(canary)) {
                            CoroutineResult::Yield(canary) if rng.below(2) == 0 => {
                                forget(inner);
                                canary
                            }
                            CoroutineResult::Yield(canary) => canary,
                            CoroutineResult::Return(canary) => canary,
                        }
                    }
                    4 => {
                        // In a scope, with a thread that goes on meanwhile.
                        greenthread::scope(|scope| {
                            let (sender, receiver) = bounded::<Canary>(1);
                            scope.spawn(move || receiver.iter().for_each(|canary| canary.check()));
                            let _ = sender.send(Canary::new(3));
                            yielder.suspend(canary)
                        })
                    }
                    5 => {
                        locked = Some(greenthread::lock_kernel_thread());
                        yielder.suspend(canary)
                    }
                    6 => {
                        if let Some(lock) = locked.take() {
                            forget(lock);
                        }
                        greenthread::sleep(MOMENT);
                        yielder.suspend(canary)
                    }
                    _ => yielder.suspend(canary),
                };
            }
            canary
        });
        self.put(Thing::Coroutine(coroutine));
    }

    pub fn resume(&mut self, mut coroutine: Coroutine<Canary, Canary, Canary>) {
        for _ in 0..1 + self.rng.below(3) {
            let input = self.canary();
            let Some(result) = survive(|| coroutine.resume(input)) else {
                break;
            };
            match result {
                CoroutineResult::Yield(canary) | CoroutineResult::Return(canary) => {
                    canary.check();
                    survive(|| drop(canary));
                }
            }
        }
        self.be_done_with(Thing::Coroutine(coroutine));
    }

    // ---- dataflow ----

    pub fn make_values(&mut self) {
        let (canary, mut rng) = (self.canary(), self.rng.fork());
        let captured = self.canary();
        let first = match self.rng.below(2) {
            0 => dataflow::value(canary),
            _ => dataflow::call((), move |()| {
                captured.check();
                match rng.below(4) {
                    0 => die(),
                    1 => greenthread::sleep(MOMENT),
                    _ => {}
                }
                canary
            }),
        };
        let mut rng = self.rng.fork();
        let second = dataflow::call((&first, vec![first.clone(); 3]), move |(one, all)| {
            one.check();
            all.iter().for_each(|canary| canary.check());
            if rng.below(5) == 0 {
                die();
            }
            dataflow::call((), |()| Canary::new(5))
        });
        self.be_done_with(Thing::Value(first));
        self.be_done_with(Thing::Values(second));
    }

    // ---- channels ----

    pub fn make_channel(&mut self) {
        let (sender, receiver) = match self.rng.below(5) {
            0 => unbounded(),
            capacity => bounded(capacity - 1),
        };
        if self.chance(2) {
            self.put(Thing::Sender(sender.clone()));
        }
        if self.chance(2) {
            self.put(Thing::Receiver(receiver.clone()));
        }
        self.be_done_with(Thing::Sender(sender));
        self.be_done_with(Thing::Receiver(receiver));
    }

    /// One that waits: a peer for somebody's select. It may be left waiting for ever.
    fn leave_a_peer(&mut self, sender: &Sender<Canary>, receiver: &Receiver<Canary>) {
        let (sender, receiver) = (sender.clone(), receiver.clone());
        let way = self.rng.below(4);
        let canary = self.canary();
        self.elsewhere(move || match way {
            0 => drop(sender.send_timeout(canary, MOMENT)),
            1 => drop(receiver.recv_timeout(MOMENT)),
            _ => {
                let mut select = Select::new();
                let sending = select.send(&sender);
                select.recv(&receiver);
                if let Ok(operation) = select.select_timeout(MOMENT) {
                    match operation.index() == sending {
                        true => drop(operation.send(&sender, canary)),
                        false => drop(operation.recv(&receiver)),
                    }
                }
            }
        });
    }

    pub fn select(&mut self) {
        let channels: Vec<_> = (0..1 + self.rng.below(3))
            .map(|_| bounded::<Canary>(self.rng.below(3)))
            .collect();
        for (sender, receiver) in &channels {
            if self.chance(2) {
                self.leave_a_peer(sender, receiver);
            }
        }
        self.select_one_of(&channels);
        for (sender, receiver) in channels {
            self.be_done_with(Thing::Sender(sender));
            self.be_done_with(Thing::Receiver(receiver));
        }
    }

    fn select_one_of(&mut self, channels: &[(Sender<Canary>, Receiver<Canary>)]) {
        let mut select = match self.chance(2) {
            true => Select::new(),
            false => Select::new_biased(),
        };
        let mut indices = Vec::new();
        for (at, (sender, receiver)) in channels.iter().enumerate() {
            if self.chance(2) {
                indices.push((at, true, select.send(sender)));
            }
            indices.push((at, false, select.recv(receiver)));
        }
        let (canary, way) = (self.canary(), self.rng.below(6));
        let operation = match self.chance(2) {
            true => select.select_timeout(MOMENT).ok(),
            false => select.try_select().ok(),
        };
        if let Some(operation) = operation {
            let index = operation.index();
            let &(at, sends, _) = indices.iter().find(|entry| entry.2 == index).unwrap();
            let (sender, receiver) = &channels[at];
            survive(|| match way {
                0 => forget(operation),
                1 => drop(operation),
                2 => {
                    let _held = operation;
                    die();
                }
                // With a handle that was not selected: it is given back, and a panic.
                3 if channels.len() > 1 => {
                    let other = &channels[(at + 1) % channels.len()];
                    match sends {
                        true => drop(operation.send(&other.0, canary)),
                        false => drop(operation.recv(&other.1)),
                    }
                    unreachable!("it was not selected");
                }
                _ if sends => drop(operation.send(sender, canary)),
                _ => drop(operation.recv(receiver)),
            });
        } else {
            survive(|| drop(canary));
        }
    }
}
