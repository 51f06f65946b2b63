//! One queue for all processors, under a lock: what Go's scheduler was before it had a queue per
//! processor, and what the talk in the seeds shows not to scale.

use super::shared_queue::SharedQueue;
use super::{Next, Policy, Readied, Ready, Seat};

/// One first-in-first-out queue for all processors, in which those whose time slice was over stand
/// behind all others (for 10 ms at most while others come: then it is the turn of one of them).
///
/// Perfectly fair otherwise, and the slower the more processors there are: each switch takes the one lock. It
/// is here to be compared with.
///
/// # Examples
///
/// ```
/// use greenthread::{policy::GlobalQueue, runtime::Runtime};
/// let runtime = Runtime::builder().policy(GlobalQueue::new()).build()?;
/// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct GlobalQueue(SharedQueue);

impl GlobalQueue {
    /// An empty queue.
    pub const fn new() -> GlobalQueue {
        GlobalQueue(SharedQueue::new())
    }
}

impl Policy for GlobalQueue {
    fn ready(&self, thread: Ready, how: Readied, _: Option<&Seat>) -> bool {
        self.0.push(thread.into_green(), how);
        true
    }

    fn next(&self, _: &Seat, _: bool) -> Option<Next> {
        Some(Ready::new(self.0.take()?).into())
    }

    fn len(&self, processor: Option<usize>) -> usize {
        match processor {
            None => self.0.len(),
            Some(_) => 0,
        }
    }
}
