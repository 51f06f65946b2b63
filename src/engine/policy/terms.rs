//! The values that the scheduler and a policy pass to each other beside threads. The scheduler says
//! how a thread became ready ([`Readied`]) and what the other processors do ([`Others`]). The policy
//! answers whether there is work for them ([`ForOthers`]) and which thread runs next ([`Next`]).

use super::Ready;

/// How a ready thread came to be enqueued: how it became ready.
///
/// # Examples
///
/// ```
/// use greenthread::policy::Readied;
///
/// /// Whether the thread is likely to run for long.
/// fn computes(how: Readied) -> bool {
///     match how {
///         Readied::Preempted => true,
///         Readied::Spawned | Readied::Woken | Readied::Arrived | Readied::Yielded => false,
///         _ => false, // the list may grow
///     }
/// }
///
/// assert!(computes(Readied::Preempted));
/// assert!(!computes(Readied::Woken));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readied {
    /// The thread is new. The scheduler hands each thread to a policy once in this way.
    Spawned,
    /// Another thread has woken the thread.
    Woken,
    /// An event that the thread waited for has come: a point in time, input or output at a
    /// descriptor, or memory for the stack of a thread that has not run yet.
    Arrived,
    /// The thread has given way by itself ([`yield_now`](crate::yield_now)).
    Yielded,
    /// The thread has used up its time slice and was made to give way.
    Preempted,
}

/// Whether the other processors of a runtime are all busy.
///
/// # Examples
///
/// ```
/// use greenthread::policy::Others;
/// assert_ne!(Others::Busy, Others::Idle);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Others {
    /// All of them run threads.
    Busy,
    /// At least one of them has nothing to do.
    Idle,
}

/// A hint to the scheduler whether to wake a sleeping processor: whether there is work for others.
///
/// # Examples
///
/// ```
/// use greenthread::policy::ForOthers;
/// assert_eq!(ForOthers::when(1 + 1 == 2), ForOthers::Work);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForOthers {
    /// Another processor could run something now.
    Work,
    /// No other processor would find anything.
    Nothing,
}

impl ForOthers {
    /// Makes the wake hint of a condition: [`Work`](ForOthers::Work) when there is some, and otherwise
    /// [`Nothing`](ForOthers::Nothing).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::ForOthers;
    /// assert_eq!(ForOthers::when(false), ForOthers::Nothing);
    /// ```
    #[inline]
    pub const fn when(there_is_some: bool) -> ForOthers {
        match there_is_some {
            true => ForOthers::Work,
            false => ForOthers::Nothing,
        }
    }
}

/// A thread to run, and the time slice that it runs in.
///
/// # Examples
///
/// ```
/// use greenthread::policy::{Next, Ready};
///
/// /// Runs `woken` in the time slice of the thread that woke it.
/// fn in_the_same_slice(woken: Ready) -> Next {
///     Next {
///         thread: woken,
///         inherits_slice: true,
///     }
/// }
///
/// /// Gives `thread` a time slice of its own.
/// fn in_a_new_slice(thread: Ready) -> Next {
///     Next::from(thread)
/// }
/// ```
#[derive(Debug)]
pub struct Next {
    /// The thread that runs next.
    pub thread: Ready,
    /// Whether the thread goes on in the time slice of the thread before it, and is preempted when
    /// that slice ends. Two threads that wake each other in turn then run no longer in a row than
    /// one thread alone.
    pub inherits_slice: bool,
}

impl From<Ready> for Next {
    /// Gives the thread a time slice of its own.
    #[inline]
    fn from(thread: Ready) -> Next {
        Next {
            thread,
            inherits_slice: false,
        }
    }
}
