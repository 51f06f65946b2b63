//! Coroutines: functions that stop in the middle, hand a value out, and later go on.
//!
//! [`Coroutine::resume`] runs a closure until it calls [`Yielder::suspend`] or returns. The value
//! passed to `suspend` is the result of `resume`. The value passed to the next `resume` is the
//! result of `suspend`. A coroutine that takes no values is a generator: an iterator over the
//! values that it yields.
//!
//! # Examples
//!
//! ```
//! use greenthread::coroutine::{Coroutine, CoroutineResult::{Return, Yield}};
//!
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
//! A coroutine has a stack, thread-locals and an [identity](crate::current) of its own, and it may
//! do everything that a thread may do: block, wait for sockets, spawn, lock, resume other
//! coroutines. But it runs only while another thread waits for it in `resume`. The switch between
//! the two is direct: there is no queue and no other thread in between, and the coroutine runs in
//! the caller's time slice.
//!
//! A coroutine may be moved to other threads, and any thread may resume or drop it, kernel threads
//! included. It belongs to the runtime of the thread that resumed it first. A thread of another
//! runtime, or a kernel thread, resumes it by a wake-up instead of a direct switch. In
//! kernel-thread mode each coroutine is a kernel thread.
//!
//! Creating a coroutine allocates a small record. It gets its stack when it is first resumed. A
//! coroutine that has started and has not ended counts as a thread of its runtime:
//! [`Runtime::shutdown`](crate::runtime::Runtime::shutdown) waits for it.
//!
//! # How a coroutine ends
//!
//! - *Its closure returns*: `resume` returns [`CoroutineResult::Return`]. The destructors of the
//!   coroutine's thread-locals have run by then.
//! - *Its closure panics*: `resume` panics with the same payload.
//! - *It is dropped before it was resumed*: the closure is dropped, and nothing runs.
//! - *It is dropped while suspended*: its stack unwinds on its own thread, while the thread that
//!   drops it waits. Destructors run as in a panic ([`panicking`](crate::panicking) returns true,
//!   and locks that are held are poisoned), but no panic is reported. A destructor that panics
//!   meanwhile aborts the process, as in any unwinding. If the closure catches the unwinding and
//!   returns, the coroutine ends normally; if it panics instead, the drop panics too.
//! - *It suspends while it should unwind*, in a destructor or after it has caught the unwinding: it
//!   stays suspended for ever, as if it had been forgotten, and the drop panics. The same happens
//!   if it cannot unwind because it was suspended in a destructor that a panic runs. (A drop that
//!   is part of a panic does not panic itself.)
//! - *It is forgotten* ([`mem::forget`](std::mem::forget)): it is never resumed, and its stack is
//!   leaked with everything on it.
//!
//! # Why values are `'static` and `Send`
//!
//! A forgotten coroutine never runs again, but the threads of a [`scope`](crate::scope()) on its
//! stack do. If it could borrow data, the owner would get the data back while those threads still
//! use it. So the closure and all values are `'static`. They are `Send` because they move between
//! two threads.

#[allow(
    unsafe_code,
    reason = "cells that belong to the thread whose turn it is"
)]
mod turns;

use core::iter::FusedIterator;
use core::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

use self::turns::{Called, Caller, News, Order};
use crate::thread::{self, JoinHandle};
use crate::wait::shielded;

/// The result of [`Coroutine::resume`]: a yielded value or the final one.
///
/// # Examples
///
/// ```
/// use greenthread::coroutine::{Coroutine, CoroutineResult::{Return, Yield}};
///
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
    /// Returns the yielded value, or `None` if the coroutine has returned.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::coroutine::CoroutineResult;
    ///
    /// let result: CoroutineResult<u32, &str> = CoroutineResult::Yield(1);
    /// assert_eq!(result.as_yield(), Some(1));
    /// ```
    pub fn as_yield(self) -> Option<Yield> {
        match self {
            CoroutineResult::Yield(value) => Some(value),
            CoroutineResult::Return(_) => None,
        }
    }

    /// Returns the final value, or `None` if the coroutine has yielded.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::coroutine::CoroutineResult;
    ///
    /// let result: CoroutineResult<u32, &str> = CoroutineResult::Return("done");
    /// assert_eq!(result.as_return(), Some("done"));
    /// ```
    pub fn as_return(self) -> Option<Return> {
        match self {
            CoroutineResult::Yield(_) => None,
            CoroutineResult::Return(value) => Some(value),
        }
    }
}

/// A closure that runs on its own stack, piece by piece, whenever it is resumed.
///
/// The [module](self) describes what a coroutine may do and how it ends. Dropping a suspended
/// coroutine unwinds its stack.
///
/// # Examples
///
/// A coroutine that takes no values is an iterator over the values that it yields:
///
/// ```
/// use greenthread::coroutine::Coroutine;
///
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
    /// The mutex is never locked. It makes a shared coroutine `Sync` although the closure need not
    /// be.
    New(Mutex<Body<Input, Yield, Return>>),
    Begun {
        caller: Caller<Input, Yield>,
        thread: JoinHandle<Return>,
    },
    Done,
}

/// The payload that unwinds the stack of a coroutine that is dropped.
struct Dropped;

impl<Input: Send + 'static, Yield: Send + 'static, Return: Send + 'static>
    Coroutine<Input, Yield, Return>
{
    /// Creates a coroutine that runs `body`.
    ///
    /// Nothing runs until the first [`resume`](Coroutine::resume), whose input is the second
    /// argument of `body`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::coroutine::{Coroutine, CoroutineResult::{Return, Yield}};
    ///
    /// let mut double = Coroutine::new(|yielder, number: i32| {
    ///     let next = yielder.suspend(2 * number);
    ///     2 * next
    /// });
    /// assert_eq!(double.resume(21), Yield(42));
    /// assert_eq!(double.resume(50), Return(100));
    /// ```
    pub fn new<F>(body: F) -> Self
    where
        F: FnOnce(&Yielder<Input, Yield>, Input) -> Return + Send + 'static,
    {
        Coroutine {
            stage: Stage::New(Mutex::new(Box::new(body))),
        }
    }

    /// Runs the coroutine until it suspends itself or ends, and returns the value from it.
    ///
    /// `input` is the result of the [`Yielder::suspend`] call that the coroutine stopped in. In the
    /// first call it is the second argument of the closure.
    ///
    /// # Panics
    ///
    /// Panics with the payload of the coroutine's panic if the coroutine panics. Panics if the
    /// coroutine has ended already. The first call also panics if there is no memory for a stack or
    /// if no runtime can be started; the coroutine has ended then.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::coroutine::{Coroutine, CoroutineResult::{Return, Yield}};
    ///
    /// let mut greeter = Coroutine::new(|yielder, name| {
    ///     let other: &str = yielder.suspend(format!("hello {name}"));
    ///     format!("goodbye {name} and {other}")
    /// });
    /// assert_eq!(greeter.resume("Ann"), Yield("hello Ann".into()));
    /// assert_eq!(greeter.resume("Bob"), Return("goodbye Ann and Bob".into()));
    /// assert!(greeter.is_done());
    /// ```
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
            let yielder = Yielder(side, PhantomData);
            yielder.0.in_frames(|| body(&yielder, input))
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
        let result = shielded(|| thread.join());
        result.unwrap_or_else(|payload| resume_unwind(payload))
    }
}

impl<Input, Yield, Return> Coroutine<Input, Yield, Return> {
    /// Returns `true` if the coroutine has returned or panicked, and so must not be resumed.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::coroutine::Coroutine;
    ///
    /// let mut once = Coroutine::new(|yielder, ()| yielder.suspend(1));
    /// once.resume(());
    /// assert!(!once.is_done());
    /// once.resume(());
    /// assert!(once.is_done());
    /// ```
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }
}

/// Iterates over the yielded values. The final value is dropped; to get it, call
/// [`Coroutine::resume`] in a loop.
impl<Yield: Send + 'static, Return: Send + 'static> Iterator for Coroutine<(), Yield, Return> {
    type Item = Yield;

    #[inline]
    fn next(&mut self) -> Option<Yield> {
        match self.stage {
            Stage::Done => None,
            _ => self.resume(()).as_yield(),
        }
    }
}

impl<Yield: Send + 'static, Return: Send + 'static> FusedIterator for Coroutine<(), Yield, Return> {}

impl<Input, Yield, Return> Drop for Coroutine<Input, Yield, Return> {
    fn drop(&mut self) {
        let stage = core::mem::replace(&mut self.stage, Stage::Done);
        let Stage::Begun { mut caller, thread } = stage else {
            return;
        };
        match caller.resume(Order::Unwind) {
            News::Ended => match shielded(|| thread.join()) {
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

/// The handle with which a coroutine suspends itself.
///
/// The closure gets it as its first argument and may pass it on to the functions that it calls. It
/// cannot leave the coroutine.
///
/// # Examples
///
/// ```
/// use greenthread::coroutine::{Coroutine, Yielder};
///
/// fn moves(n: u32, from: char, by: char, to: char, yielder: &Yielder<(), (char, char)>) {
///     if n > 0 {
///         moves(n - 1, from, to, by, yielder);
///         yielder.suspend((from, to));
///         moves(n - 1, by, from, to, yielder);
///     }
/// }
///
/// let hanoi = Coroutine::new(|yielder, ()| moves(10, 'a', 'b', 'c', yielder));
/// assert_eq!(hanoi.count(), 1023);
/// ```
pub struct Yielder<Input, Yield>(Called<Input, Yield>, PhantomData<*mut ()>);

impl<Input, Yield> Yielder<Input, Yield> {
    /// Suspends the coroutine and hands `value` to the thread that resumed it.
    ///
    /// Returns the input of the next [`Coroutine::resume`].
    ///
    /// # Panics
    ///
    /// Panics if the coroutine is dropped instead of resumed, to unwind its stack. Do not catch
    /// that panic, and do not suspend while it unwinds; see the [module](self).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::coroutine::{Coroutine, CoroutineResult::{Return, Yield}};
    ///
    /// let mut adder = Coroutine::new(|yielder, first: u32| {
    ///     let second = yielder.suspend(());
    ///     first + second
    /// });
    /// assert_eq!(adder.resume(1), Yield(()));
    /// assert_eq!(adder.resume(2), Return(3));
    /// ```
    #[inline]
    pub fn suspend(&self, value: Yield) -> Input {
        let mut order = self.0.suspend(News::Yielded(value));
        loop {
            match order {
                Order::Resume(input) => return input,
                Order::Unwind if !thread::panicking() => resume_unwind(Box::new(Dropped)),
                // The coroutine unwinds already, and a second panic would abort the process.
                Order::Unwind => order = self.0.suspend(News::Stuck),
            }
        }
    }
}

without_details! {
    [Input, Yield, Return] Coroutine<Input, Yield, Return>, "Coroutine", |this| stage: match this.stage {
        Stage::New(_) => format_args!("new"),
        Stage::Begun { .. } => format_args!("suspended"),
        Stage::Done => format_args!("done"),
    };
    [Input, Yield] Yielder<Input, Yield>, "Yielder";
}
