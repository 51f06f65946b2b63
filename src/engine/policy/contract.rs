//! [`Policy`]: the questions that the scheduler asks a policy, and the promises that it relies on.

use super::{ForOthers, Next, Others, Readied, Ready, Seat, Victims};

/// Holds the ready threads of a runtime and chooses the next one to run.
///
/// The scheduler calls all methods but [`resize`](Policy::resize) in the middle of scheduling, from
/// several processors at once. They must be quick, must not allocate or free memory, must not block
/// except on a [`Lock`](super::Lock), and must not call anything of this crate outside this module.
/// Otherwise all threads of the runtime may stand still. If one of them panics, the process aborts.
/// A policy written in safe code cannot cause undefined behaviour, whatever it does.
///
/// Any code may call the methods of a policy at any time, so one policy can be built on another.
///
/// # Fairness
///
/// When a processor asks for a thread and the policy has threads for it, the policy must return
/// one. A policy that claims to be fair must return each thread sooner or later, however many
/// others become ready.
///
/// # Panics
///
/// A policy of this module serves one runtime. Its methods panic if they are called with a seat of
/// another runtime, or of a processor that [`resize`](Policy::resize) has not announced.
///
/// # Examples
///
/// A policy that counts new threads and leaves everything else to another policy:
///
/// ```
/// use greenthread::policy::{ForOthers, Next, Others, Policy, Readied, Ready, Seat, Victims, WorkStealing};
/// use greenthread::runtime::{Mode, Runtime};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static SPAWNED: AtomicUsize = AtomicUsize::new(0);
///
/// struct Counting(WorkStealing);
///
/// impl Policy for Counting {
///     fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
///         if how == Readied::Spawned {
///             SPAWNED.fetch_add(1, Ordering::Relaxed);
///         }
///         self.0.ready(thread, how, seat)
///     }
///
///     fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
///         self.0.next(seat, others)
///     }
///
///     fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
///         self.0.steal(seat, victims)
///     }
///
///     fn leave(&self, seat: &Seat) {
///         self.0.leave(seat);
///     }
///
///     fn resize(&self, processors: usize) {
///         self.0.resize(processors);
///     }
///
///     fn len(&self, processor: Option<usize>) -> usize {
///         self.0.len(processor)
///     }
///
///     fn out_of_reach(&self, processor: usize) -> usize {
///         self.0.out_of_reach(processor)
///     }
///
///     fn work_for_others(&self) -> ForOthers {
///         self.0.work_for_others()
///     }
/// }
///
/// let runtime = Runtime::builder().policy(Counting(WorkStealing::new())).build()?;
/// let threads: Vec<_> = (0..3).map(|_| runtime.spawn(|| ())).collect();
/// threads.into_iter().for_each(|thread| thread.join().unwrap());
/// match runtime.mode() {
///     Mode::Green => assert_eq!(SPAWNED.load(Ordering::Relaxed), 3),
///     _ => assert_eq!(SPAWNED.load(Ordering::Relaxed), 0), // the system schedules
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Policy: Send + Sync + 'static {
    /// Enqueues a thread that has become ready, and returns whether another processor could run
    /// something now.
    ///
    /// `how` says how the thread became ready. `seat` is the seat of the processor that made it
    /// ready; it is `None` if something outside the processors did.
    ///
    /// After [`ForOthers::Work`] the scheduler wakes a processor that sleeps. If a policy returns
    /// [`ForOthers::Nothing`] although another processor could run something, a thread may wait
    /// several milliseconds until a processor looks by itself.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
    /// # #[derive(Default)]
    /// # struct InOrder(Lock<Queue>);
    /// # impl Policy for InOrder {
    /// fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
    ///     self.0.lock().push(thread);
    ///     // A processor whose thread gives way takes one from the queue in exchange.
    ///     ForOthers::when(!(how == Readied::Yielded && seat.is_some()))
    /// }
    /// #     fn next(&self, _: &Seat, _: Others) -> Option<Next> { self.0.lock().pop().map(Next::from) }
    /// #     fn len(&self, at: Option<usize>) -> usize { at.map_or(self.0.lock().len(), |_| 0) }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder().policy(InOrder::default()).build()?;
    /// # assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers;

    /// Returns the thread that the processor of `seat` runs next, or `None` if there is none for
    /// it.
    ///
    /// It does not look at threads that wait at other processors; [`steal`](Policy::steal) does.
    /// While the `others` are idle, the policy should put the threads that wait here where they
    /// can take them.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
    /// # #[derive(Default)]
    /// # struct InOrder(Lock<Queue>);
    /// # impl Policy for InOrder {
    /// #     fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
    /// #         self.0.lock().push(thread);
    /// #         ForOthers::Work
    /// #     }
    /// fn next(&self, _seat: &Seat, _others: Others) -> Option<Next> {
    ///     let thread = self.0.lock().pop()?;
    ///     Some(Next::from(thread)) // in a time slice of its own
    /// }
    /// #     fn len(&self, at: Option<usize>) -> usize { at.map_or(self.0.lock().len(), |_| 0) }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder().policy(InOrder::default()).build()?;
    /// # assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn next(&self, seat: &Seat, others: Others) -> Option<Next>;

    /// Takes a thread away from other processors for the processor of `seat`, which has none
    /// itself.
    ///
    /// A policy best looks at the others in the order of `victims`. By default there is nothing to
    /// take, which suits a policy whose threads wait at no processor.
    ///
    /// # Examples
    ///
    /// A policy with a queue for each processor takes the oldest thread of the first one that has
    /// any:
    ///
    /// ```
    /// # use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat, Victims};
    /// # use std::mem;
    /// # #[derive(Default)]
    /// # struct PerProcessor { queues: Lock<Vec<Queue>>, shared: Lock<Queue> }
    /// # impl Policy for PerProcessor {
    /// #     fn ready(&self, thread: Ready, _: Readied, seat: Option<&Seat>) -> ForOthers {
    /// #         match seat {
    /// #             Some(seat) => self.queues.lock()[seat.index()].push(thread),
    /// #             None => self.shared.lock().push(thread),
    /// #         }
    /// #         ForOthers::Work
    /// #     }
    /// #     fn next(&self, seat: &Seat, _: Others) -> Option<Next> {
    /// #         let own = self.queues.lock()[seat.index()].pop();
    /// #         own.or_else(|| self.shared.lock().pop()).map(Next::from)
    /// #     }
    /// fn steal(&self, _seat: &Seat, mut victims: Victims<'_>) -> Option<Ready> {
    ///     let mut queues = self.queues.lock();
    ///     victims.find_map(|victim| queues.get_mut(victim)?.pop())
    /// }
    /// #     fn leave(&self, seat: &Seat) {
    /// #         let mut left = mem::take(&mut self.queues.lock()[seat.index()]);
    /// #         self.shared.lock().append(&mut left);
    /// #     }
    /// #     fn resize(&self, processors: usize) {
    /// #         let mut queues: Vec<_> = (0..processors).map(|_| Queue::new()).collect();
    /// #         let mut current = self.queues.lock();
    /// #         for (index, queue) in current.iter_mut().enumerate() {
    /// #             queues[index % processors].append(queue);
    /// #         }
    /// #         mem::swap(&mut *current, &mut queues);
    /// #         drop(current);
    /// #     }
    /// #     fn len(&self, processor: Option<usize>) -> usize {
    /// #         match processor {
    /// #             Some(index) => self.queues.lock().get(index).map_or(0, Queue::len),
    /// #             None => self.shared.lock().len(),
    /// #         }
    /// #     }
    /// #     fn work_for_others(&self) -> ForOthers {
    /// #         let waits = |queue: &Queue| !queue.is_empty();
    /// #         ForOthers::when(waits(&self.shared.lock()) || self.queues.lock().iter().any(waits))
    /// #     }
    /// # }
    /// # let runtime = greenthread::runtime::Runtime::builder()
    /// #     .processors(2)
    /// #     .policy(PerProcessor::default())
    /// #     .build()?;
    /// # let parent = runtime.spawn(|| {
    /// #     let children: Vec<_> = (0..10).map(|i| greenthread::spawn(move || i)).collect();
    /// #     children.into_iter().map(|child| child.join().unwrap()).sum::<i32>()
    /// # });
    /// # runtime.set_processors(1)?;
    /// # assert_eq!(parent.join().unwrap(), 45);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        let _ = (seat, victims);
        None
    }

    /// Moves the threads that only the processor of `seat` can take to where all processors can
    /// take them.
    ///
    /// The scheduler calls this when it takes a processor out of use. By default nothing happens,
    /// which suits a policy whose threads are always within reach of all.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue, Seat};
    ///
    /// struct PerProcessor {
    ///     own: Vec<Lock<Queue>>,
    ///     shared: Lock<Queue>,
    /// }
    ///
    /// impl PerProcessor {
    ///     fn leave(&self, seat: &Seat) {
    ///         let mut left = std::mem::take(&mut *self.own[seat.index()].lock());
    ///         self.shared.lock().append(&mut left);
    ///     }
    /// }
    /// ```
    fn leave(&self, seat: &Seat) {
        let _ = seat;
    }

    /// Sets the number of processors, which is at least one.
    ///
    /// The scheduler calls this before all other methods. Later it calls it before a running
    /// runtime gets more processors, and after processors have left, which are those with the
    /// highest indices. The victims that a thief is offered may still include a processor that has
    /// left.
    ///
    /// This method may allocate and block, but must not wait for a green thread or for another
    /// change of the number. By default nothing happens.
    ///
    /// # Panics
    ///
    /// If it panics when processors are to be added, the number stays as it was, and
    /// [`Builder::build`](crate::runtime::Builder::build) or
    /// [`Runtime::set_processors`](crate::runtime::Runtime::set_processors) returns an error. If it
    /// panics after processors have left, the process aborts.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue};
    ///
    /// #[derive(Default)]
    /// struct PerProcessor(Lock<Vec<Queue>>);
    ///
    /// impl PerProcessor {
    ///     fn resize(&self, processors: usize) {
    ///         // The holder of a `Lock` must neither allocate nor free memory.
    ///         let mut queues: Vec<_> = (0..processors).map(|_| Queue::new()).collect();
    ///         let mut current = self.0.lock();
    ///         for (index, queue) in current.iter_mut().enumerate() {
    ///             queues[index % processors].append(queue);
    ///         }
    ///         std::mem::swap(&mut *current, &mut queues);
    ///         drop(current); // unlocks before the old queues are freed
    ///     }
    /// }
    ///
    /// let policy = PerProcessor::default();
    /// policy.resize(4);
    /// policy.resize(2);
    /// assert_eq!(policy.0.lock().len(), 2);
    /// ```
    fn resize(&self, processors: usize) {
        let _ = processors;
    }

    /// Returns the number of threads that wait at `processor` or, for `None`, of those that wait at
    /// no processor.
    ///
    /// The number may be out of date by what other threads do at the same time, and by no more.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{GlobalQueue, Policy};
    ///
    /// let policy = GlobalQueue::new();
    /// assert_eq!(policy.len(None), 0);
    /// assert_eq!(policy.len(Some(0)), 0); // its threads wait at no processor
    /// ```
    fn len(&self, processor: Option<usize>) -> usize;

    /// Returns the number of threads that only `processor` can run: that wait there, and that other
    /// processors cannot take.
    ///
    /// While there are any, the thread that runs there has a shorter time slice. By default there
    /// are none.
    ///
    /// # Examples
    ///
    /// Without stealing, threads that wait at a processor are out of reach of the others:
    ///
    /// ```
    /// use greenthread::policy::{Policy, WorkStealing};
    ///
    /// let policy = WorkStealing::new().stealing(false);
    /// policy.resize(2);
    /// assert_eq!(policy.out_of_reach(0), policy.len(Some(0)));
    /// ```
    fn out_of_reach(&self, processor: usize) -> usize {
        let _ = processor;
        0
    }

    /// Returns whether a processor that has nothing to do would get a thread.
    ///
    /// The answer is as exact as that of [`len`](Policy::len). After [`ForOthers::Nothing`],
    /// processors go to sleep. By default the answer is whether `len(None)` is greater than 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{ForOthers, LeastLoaded, Policy};
    ///
    /// let policy = LeastLoaded::new();
    /// policy.resize(2);
    /// assert_eq!(policy.work_for_others(), ForOthers::Nothing);
    /// ```
    fn work_for_others(&self) -> ForOthers {
        ForOthers::when(self.len(None) != 0)
    }
}
