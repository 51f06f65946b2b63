//! Policies: which ready thread runs next, and on which processor.
//!
//! Each runtime has a [`Policy`]. It holds the threads that are ready and not running, and does
//! nothing else: it neither switches threads nor wakes processors. The scheduler hands it each
//! thread that becomes ready, asks it for the next thread to run, and learns from its answers
//! whether a sleeping processor should wake up.
//!
//! | policy | how it works | known from |
//! |---|---|---|
//! | [`WorkStealing`] (default) | Each processor has a queue. A processor whose queue is empty takes half of another one. | Go |
//! | [`RelaxedFifo`] | All processors share many queues. A thread goes to any of them; of two queues, the one whose first thread is older is served. | the scheduler proposed for Cforall |
//! | [`LeastLoaded`] | Each processor has a queue. A thread goes to the shortest of a few queues. | Nio |
//! | [`Priorities`] | Each processor has a queue for each priority. Now and then it serves the oldest thread instead, so that none starves. | |
//! | [`GlobalQueue`] | All processors share one queue under a lock. | Go before version 1.1 |
//!
//! [`runtime::Builder::policy`](crate::runtime::Builder::policy) or the variable
//! `GREENTHREAD_POLICY` chooses the policy of a runtime.
//!
//! # Writing a policy
//!
//! A policy needs no unsafe code. A ready thread is a [`Ready`], which can be moved but not copied,
//! and which leaves the policy only as the result of [`next`](Policy::next) or
//! [`steal`](Policy::steal). [`Queue`] and [`Heap`] hold any number of ready threads without
//! allocating, and [`Lock`] protects what processors share.
//!
//! ```
//! use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
//! use greenthread::runtime::Runtime;
//!
//! /// Runs threads in the order in which they became ready.
//! #[derive(Default)]
//! struct InOrder(Lock<Queue>);
//!
//! impl Policy for InOrder {
//!     fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
//!         self.0.lock().push(thread);
//!         ForOthers::Work // any processor can take it
//!     }
//!
//!     fn next(&self, _: &Seat, _: Others) -> Option<Next> {
//!         self.0.lock().pop().map(Next::from)
//!     }
//!
//!     fn len(&self, processor: Option<usize>) -> usize {
//!         match processor {
//!             None => self.0.lock().len(),
//!             Some(_) => 0,
//!         }
//!     }
//! }
//!
//! let runtime = Runtime::builder().policy(InOrder::default()).build()?;
//! assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
//! # Ok::<(), std::io::Error>(())
//! ```

mod contract;
mod least_loaded;
mod priorities;
mod relaxed_fifo;
mod shared_queue;
#[cfg(test)]
mod stand_ins;
mod tools;
mod tuning;
mod work_stealing;

pub(crate) use self::contract::{Fifo, Links};
pub use self::contract::{
    ForOthers, Next, Others, Policy, Priority, Queue, Readied, Ready, Seat, Victims, set_priority,
};
pub use self::least_loaded::LeastLoaded;
pub use self::priorities::Priorities;
pub use self::relaxed_fifo::RelaxedFifo;
pub use self::shared_queue::GlobalQueue;
use self::shared_queue::SharedQueue;
pub use self::tools::{Guard, Heap, Lock};
pub use self::work_stealing::WorkStealing;

/// The ideas of the scheduler besides its policy; each of them can be switched off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ideas {
    pub(crate) spinning: bool,
    pub(crate) hand_off: bool,
    pub(crate) preemption: bool,
}

impl Ideas {
    pub(crate) const ALL: Ideas = Ideas {
        spinning: true,
        hand_off: true,
        preemption: true,
    };

    #[cfg(sim)]
    pub(crate) const NONE: Ideas = Ideas {
        spinning: false,
        hand_off: false,
        preemption: false,
    };
}

defaults!(LeastLoaded Priorities RelaxedFifo SharedQueue WorkStealing);

without_details! {
    [] Priorities, "Priorities";
    [] RelaxedFifo, "RelaxedFifo";
    [T] Lock<T>, "Lock";
    [T] Guard<'_, T>, "Guard";
}
