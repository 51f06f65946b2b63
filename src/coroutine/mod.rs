//! Coroutines: functions that stop in the middle, hand a value out, and take one in when they go
//! on. A generator is a coroutine that is only asked for values.
//!
//! [`Coroutine::resume`] runs the closure until it calls [`Yielder::suspend`] or returns. What
//! `suspend` is given comes out of `resume`; what the next `resume` is given comes out of `suspend`.
//!
//! ```
//! use greenthread::coroutine::{Coroutine, CoroutineResult::{Return, Yield}};
//! let mut average = Coroutine::new(|yielder, mut next: Option<f64>| {
//!     let (mut sum, mut count) = (0.0, 0);
//!     while let Some(number) = next {
//!         sum += number;
//!         count += 1;
//!         next = yielder.suspend(sum / f64::from(count));
//!     }
//!     count
//! });
//! assert_eq!(average.resume(Some(10.0)), Yield(10.0));
//! assert_eq!(average.resume(Some(20.0)), Yield(15.0));
//! assert_eq!(average.resume(None), Return(2));
//! ```
//!
//! # A coroutine is a thread
//!
//! It has a stack, thread-locals and an identity ([`current`](crate::thread::current)) of its own, and it
//! may do all that a thread may: block, wait for sockets, spawn, lock, resume other coroutines. But
//! it runs only while somebody waits for it in `resume`, and that switch is direct: no queue, no
//! other thread in between, in the caller's time slice. So it may be moved to other threads, and be
//! resumed and dropped by any of them, kernel threads included. It belongs to the runtime of the
//! thread that resumed it first; resumed from another runtime, or from a kernel thread, the switch
//! is a wake-up instead. In kernel-thread mode each coroutine is a kernel thread.
//!
//! Creating one allocates a small record; it gets its stack when it is first resumed. A coroutine
//! that has begun and not ended counts as a thread of its runtime:
//! [`Runtime::shutdown`](crate::runtime::Runtime::shutdown) waits for it.
//!
//! # Ends
//!
//! - *The closure returns*: `resume` gives [`CoroutineResult::Return`]. The destructors of the
//!   coroutine's thread-locals have run by then.
//! - *The closure panics*: `resume` panics with the same payload.
//! - *The coroutine is dropped before it was resumed*: the closure is dropped, and nothing else.
//! - *It is dropped while suspended*: its stack unwinds, on its own thread, while the dropping one
//!   waits. The destructors run as in a panic ([`panicking`](crate::panicking) is true, locks
//!   that are held are poisoned), but no panic is reported.
//!   A destructor that panics meanwhile aborts the process, as in any unwinding. If the closure
//!   catches the unwinding and returns, that will do; if it panics instead, so does the drop.
//! - *It suspends again when it should unwind*, in a destructor or after it has caught the
//!   unwinding: it stays as it is for ever, as if it had been forgotten, and the drop panics. So it
//!   does if it cannot unwind, since it was suspended in a destructor that a panic runs. (A drop that
//!   is part of a panic does not panic: it goes on.)
//! - *It is forgotten* ([`mem::forget`](std::mem::forget)): it is never resumed, and its stack and what
//!   is on it are leaked.
//!
//! That is why the closure and all values are `'static`: what a forgotten coroutine has borrowed
//! would be given back to its owner, while the threads of a [`scope`](crate::scope()) on its stack still
//! use it. And they are `Send`, for they move between two threads.

use core::fmt;
use core::iter::FusedIterator;
use std::panic::resume_unwind;

use crate::engine::door::turns::{self, Called, Caller, News, Order};
use crate::thread::{self, JoinHandle};
use std::sync::{Mutex, PoisonError};

/// What [`Coroutine::resume`] brings.
///
/// ```
/// use greenthread::coroutine::{Coroutine, CoroutineResult::{Return, Yield}};
/// let mut countdown = Coroutine::new(|yielder, ()| {
///     (1..=3).rev().for_each(|number| yielder.suspend(number));
///     "lift-off"
/// });
/// let last = loop {
///     match countdown.resume(()) {
///         Yield(number) => println!("{number}"),
///         Return(last) => break last,
///     }
/// };
/// assert_eq!(last, "lift-off");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CoroutineResult<Yield, Return> {
    /// The coroutine has suspended itself with this value.
    Yield(Yield),
    /// The coroutine has ended with this value.
    Return(Return),
}

impl<Yield, Return> CoroutineResult<Yield, Return> {
    /// What was yielded, if that is what it is.
    pub fn as_yield(self) -> Option<Yield> {
        match self {
            CoroutineResult::Yield(value) => Some(value),
            CoroutineResult::Return(_) => None,
        }
    }

    /// What was returned, if that is what it is.
    pub fn as_return(self) -> Option<Return> {
        match self {
            CoroutineResult::Yield(_) => None,
            CoroutineResult::Return(value) => Some(value),
        }
    }
}

/// A coroutine: see the [module](self). Dropping it unwinds its stack.
///
/// One that takes nothing is an iterator over what it yields:
///
/// ```
/// use greenthread::coroutine::Coroutine;
/// let fibonacci = Coroutine::new(|yielder, ()| {
///     let (mut a, mut b) = (0, 1);
///     loop {
///         yielder.suspend(a);
///         (a, b) = (b, a + b);
///     }
/// });
/// let first: Vec<u32> = fibonacci.take(8).collect();
/// assert_eq!(first, [0, 1, 1, 2, 3, 5, 8, 13]);
/// ```
#[must_use = "a coroutine does nothing unless it is resumed"]
pub struct Coroutine<Input, Yield, Return> {
    stage: Stage<Input, Yield, Return>,
}

type Body<Input, Yield, Return> = Box<dyn FnOnce(&Yielder<Input, Yield>, Input) -> Return + Send>;

enum Stage<Input, Yield, Return> {
    /// Never locked: it makes a shared coroutine `Sync`, which the closure need not be.
    New(Mutex<Body<Input, Yield, Return>>),
    Begun {
        caller: Caller<Input, Yield>,
        thread: JoinHandle<Return>,
    },
    Done,
}

/// What unwinds the stack of a coroutine that is dropped.
struct Dropped;

impl<Input, Yield, Return> Coroutine<Input, Yield, Return>
where
    Input: Send + 'static,
    Yield: Send + 'static,
    Return: Send + 'static,
{
    /// A coroutine that is to run `body`, with what the first [`resume`](Coroutine::resume) is
    /// given. Nothing runs yet.
    pub fn new<F>(body: F) -> Self
    where
        F: FnOnce(&Yielder<Input, Yield>, Input) -> Return + Send + 'static,
    {
        Coroutine {
            stage: Stage::New(Mutex::new(Box::new(body))),
        }
    }

    /// Runs the coroutine until it suspends itself or ends, and takes what it leaves.
    ///
    /// ```
    /// use greenthread::coroutine::{Coroutine, CoroutineResult::{Return, Yield}};
    /// let mut greeter = Coroutine::new(|yielder, name| {
    ///     let other: &str = yielder.suspend(format!("hello {name}"));
    ///     format!("goodbye {name} and {other}")
    /// });
    /// assert_eq!(greeter.resume("Ann"), Yield("hello Ann".into()));
    /// assert_eq!(greeter.resume("Bob"), Return("goodbye Ann and Bob".into()));
    /// assert!(greeter.is_done());
    /// ```
    ///
    /// # Panics
    /// With what the coroutine panics with. If it has ended already. The first time also if there
    /// is no memory for its stack, or no runtime to be had; it has ended then.
    #[doc(alias = "send")]
    #[inline]
    #[track_caller]
    pub fn resume(&mut self, input: Input) -> CoroutineResult<Yield, Return> {
        let news = match &mut self.stage {
            Stage::Begun { caller, .. } => caller.resume(Order::Resume(input)),
            Stage::New(_) => self.begin(input),
            Stage::Done => panic!("a coroutine was resumed after it had ended"),
        };
        match news {
            News::Yielded(value) => CoroutineResult::Yield(value),
            News::Ended => CoroutineResult::Return(self.end()),
            News::Stuck => unreachable!("nobody has told the coroutine to unwind"),
        }
    }

    #[cold]
    #[track_caller]
    fn begin(&mut self, input: Input) -> News<Yield> {
        let Stage::New(body) = core::mem::replace(&mut self.stage, Stage::Done) else {
            unreachable!("a coroutine begins once");
        };
        let body = body.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (mut caller, side) = turns::pair();
        let thread = thread::Builder::new().spawn(move || {
            let yielder = Yielder(side.begin());
            body(&yielder, input)
        });
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => panic!("failed to start a coroutine: {error}"),
        };
        let news = caller.first_news();
        self.stage = Stage::Begun { caller, thread };
        news
    }

    #[cold]
    fn end(&mut self) -> Return {
        let Stage::Begun { thread, .. } = core::mem::replace(&mut self.stage, Stage::Done) else {
            unreachable!("a coroutine ends once");
        };
        thread
            .join()
            .unwrap_or_else(|payload| resume_unwind(payload))
    }
}

impl<Input, Yield, Return> Coroutine<Input, Yield, Return> {
    /// Whether it has ended, by returning or with a panic, and must not be resumed.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }
}

/// What it returns is dropped; where that matters, call [`Coroutine::resume`] in a loop.
impl<Yield, Return> Iterator for Coroutine<(), Yield, Return>
where
    Yield: Send + 'static,
    Return: Send + 'static,
{
    type Item = Yield;

    #[inline]
    fn next(&mut self) -> Option<Yield> {
        match self.stage {
            Stage::Done => None,
            _ => self.resume(()).as_yield(),
        }
    }
}

impl<Yield, Return> FusedIterator for Coroutine<(), Yield, Return>
where
    Yield: Send + 'static,
    Return: Send + 'static,
{
}

impl<Input, Yield, Return> Drop for Coroutine<Input, Yield, Return> {
    fn drop(&mut self) {
        let stage = core::mem::replace(&mut self.stage, Stage::Done);
        let Stage::Begun { mut caller, thread } = stage else {
            return;
        };
        match caller.resume(Order::Unwind) {
            News::Ended => match thread.join() {
                Err(payload) if !payload.is::<Dropped>() && !thread::panicking() => {
                    resume_unwind(payload)
                }
                _ => {}
            },
            News::Yielded(_) | News::Stuck if !thread::panicking() => {
                panic!("a coroutine suspended itself when it was dropped and should have unwound")
            }
            News::Yielded(_) | News::Stuck => {}
        }
    }
}

impl<Input, Yield, Return> fmt::Debug for Coroutine<Input, Yield, Return> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::New(_) => "new",
            Stage::Begun { .. } => "suspended",
            Stage::Done => "done",
        };
        f.debug_struct("Coroutine")
            .field("stage", &format_args!("{stage}"))
            .finish_non_exhaustive()
    }
}

/// A coroutine's own side: with this it suspends itself, from as many calls deep as it likes. It
/// stays in the coroutine.
///
/// ```
/// use greenthread::coroutine::{Coroutine, Yielder};
/// fn moves(n: u32, from: char, by: char, to: char, yielder: &Yielder<(), (char, char)>) {
///     if n > 0 {
///         moves(n - 1, from, to, by, yielder);
///         yielder.suspend((from, to));
///         moves(n - 1, by, from, to, yielder);
///     }
/// }
/// let hanoi = Coroutine::new(|yielder, ()| moves(10, 'a', 'b', 'c', yielder));
/// assert_eq!(hanoi.count(), 1023);
/// ```
pub struct Yielder<Input, Yield>(Called<Input, Yield>);

impl<Input, Yield> Yielder<Input, Yield> {
    /// Hands `value` to whoever has resumed the coroutine, and waits to be resumed again; returns
    /// what that brings.
    ///
    /// # Panics
    /// If the coroutine is dropped instead: to unwind its stack. Let that pass, and do not suspend
    /// meanwhile: see the [module](self).
    #[inline]
    pub fn suspend(&self, value: Yield) -> Input {
        let mut order = self.0.suspend(News::Yielded(value));
        loop {
            match order {
                Order::Resume(input) => return input,
                Order::Unwind if !thread::panicking() => resume_unwind(Box::new(Dropped)),
                // A second panic would abort.
                Order::Unwind => order = self.0.suspend(News::Stuck),
            }
        }
    }
}

impl<Input, Yield> fmt::Debug for Yielder<Input, Yield> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yielder").finish_non_exhaustive()
    }
}
