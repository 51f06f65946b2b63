//! One queue for all processors, under a lock. Go's scheduler was like this before it had a queue
//! for each processor; the talk in the seeds shows that it does not scale.

use super::shared_queue::SharedQueue;
use super::{ForOthers, Next, Others, Policy, Readied, Ready, Seat};

/// Keeps all ready threads in one first-in-first-out queue, which all processors share under a
/// lock.
///
/// Preempted threads stand behind all others, but while others keep coming one preempted thread
/// goes first every 10 ms. Apart from that the queue is perfectly fair.
///
/// It becomes slower with each processor, because every switch takes the one lock. It is here for
/// comparison.
///
/// # Examples
///
/// ```
/// use greenthread::{policy::GlobalQueue, runtime::Runtime};
///
/// let runtime = Runtime::builder().policy(GlobalQueue::new()).build()?;
/// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct GlobalQueue(SharedQueue);

impl GlobalQueue {
    /// Creates a policy with an empty queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{GlobalQueue, Policy};
    ///
    /// let policy = GlobalQueue::new();
    /// assert_eq!(policy.len(None), 0);
    /// ```
    pub const fn new() -> GlobalQueue {
        GlobalQueue(SharedQueue::new())
    }
}

impl Policy for GlobalQueue {
    fn ready(&self, thread: Ready, how: Readied, _: Option<&Seat>) -> ForOthers {
        self.0.push(thread.into_green(), how);
        ForOthers::Work
    }

    fn next(&self, _: &Seat, _: Others) -> Option<Next> {
        Some(Ready::new(self.0.take()?).into())
    }

    fn len(&self, processor: Option<usize>) -> usize {
        match processor {
            None => self.0.len(),
            Some(_) => 0,
        }
    }
}
