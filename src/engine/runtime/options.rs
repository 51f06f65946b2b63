//! The options of a runtime: what its builder sets, or else a variable, `GREENTHREAD_*`.
//!
//! [`options`] is the table of those that have a variable. A value that is not accepted is an error, whoever gave it; it
//! is never ignored.
//!
//! # The policy
//!
//! A builder has it by value or by name ([`Choice`]). The scheduler trusts the policies of this crate, and checks what a
//! user's policy hands out. A policy of this crate may have served a user's policy of another runtime before it is given to
//! a builder, and hold that runtime's threads. So the builder makes a new one with the same options, and leaks the given
//! one: whoever drops a ready thread ends the process.

use std::any::Any;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use super::green;
use crate::engine::policy::{
    GlobalQueue, Ideas, LeastLoaded, Policy, Priorities, RelaxedFifo, WorkStealing,
};
use crate::engine::sched::size::{self, MOST_WORKERS};
use crate::engine::stack;
use crate::engine::sys::{shared::MAX, variable};

/// The kind of threads that a runtime runs.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::{Mode, Runtime};
///
/// match Runtime::global().mode() {
///     Mode::Green => println!("a million threads are fine"),
///     _ => println!("a few thousand threads are fine"),
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Green threads: many of them share a kernel thread.
    Green,
    /// Kernel threads: one for each thread. The API and the results are the same, and each thread
    /// costs more. This is the only mode on systems where thread-locals cannot be isolated (other
    /// architectures, operating systems and C libraries). `GREENTHREAD_MODE=kernel` asks for it.
    Kernel,
}

/// How the green threads of a runtime wait for sockets, pipes and files.
///
/// The results are the same with each. Kernel threads, and all threads in [`Mode::Kernel`], wait in
/// the kernel themselves.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::{Driver, Runtime};
///
/// let runtime = Runtime::builder().driver(Driver::IoUring).build()?;
/// let read = runtime.spawn(|| greenthread::fs::read("Cargo.toml"));
/// assert!(read.join().unwrap()?.starts_with(b"[package]"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Driver {
    /// A call is tried first; if it would block, epoll says when to try again. A runtime that is
    /// built with this driver makes no use of io_uring at all: a call that waits for a disk blocks
    /// its kernel thread, and the sends of several threads are not submitted together.
    Epoll,
    /// A call that would block becomes an operation of io_uring. Where the kernel has no io_uring,
    /// or forbids it, or where the crate lacks its feature `io-uring`, this is the same as
    /// [`Driver::Epoll`].
    IoUring,
}

/// What the process does when it finds that every thread waits for another, and that nothing outside can wake one.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::{Builder, OnDeadlock};
///
/// # if !cfg!(feature = "observe") { return Ok(()) }
/// let runtime = Builder::new().on_deadlock(OnDeadlock::Abort).build()?;
/// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OnDeadlock {
    /// It says so, once, with a dump of all threads, and goes on.
    Report,
    /// It says so, and aborts.
    Abort,
    /// Nothing: it does not look for deadlocks.
    Ignore,
}

const DEFAULT_TIME_SLICE: Duration = Duration::from_millis(10);
const DEFAULT_KERNEL_THREADS: usize = 10_000;

/// Declares [`RuntimeOptions`]. Of an option the table says its type, its variable, the values that a message offers, how the
/// variable's text is read, and which values are accepted.
macro_rules! options {
    ($($option:ident: $type:ty = $variable:literal, $accepted:expr, $parse:expr, $check:expr;)*) => {
        /// The options that a builder has set. A variable, and then a default, decides the others.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct RuntimeOptions {
            $(pub(crate) $option: Option<$type>,)*
            pub(crate) time_slice: Option<Duration>,
            pub(crate) max_kernel_threads: Option<usize>,
            policy: Option<Choice>,
            pub(crate) policy_text: Option<String>,
            pub(crate) spinning: Option<bool>,
            pub(crate) hand_off: Option<bool>,
            pub(crate) preemption: Option<bool>,
            pub(crate) on_deadlock: Option<OnDeadlock>,
        }

        impl RuntimeOptions {
            $(pub(super) fn $option(&self) -> io::Result<Option<$type>> {
                let (parse, check): (fn(&str) -> Option<$type>, fn($type) -> io::Result<()>) = ($parse, $check);
                match self.$option {
                    Some(value) => check(value).map(|()| Some(value)),
                    None => read($variable, $accepted, |text| {
                        parse(text).filter(|&value| check(value).is_ok())
                    }),
                }
            })*
        }
    };
}

options! {
    processors: usize = "GREENTHREAD_PROCS", &format!("a number from 1 to {}", size::MOST_PROCESSORS),
        number, |count| size::check_size(count, None);
    stack_size: usize = "GREENTHREAD_STACK_SIZE", "a number of bytes up to 68719476736 (64 GiB)",
        number, check_stack_size;
    preempt_signal: i32 = "GREENTHREAD_SIGNAL", &green::accepted_signals(),
        number, green::check_signal;
    mode: Mode = "GREENTHREAD_MODE", "green or kernel",
        |text| word(text, &[("green", Mode::Green), ("kernel", Mode::Kernel)]), |_| Ok(());
    driver: Driver = "GREENTHREAD_DRIVER", "epoll or io_uring",
        |text| word(text, &[("epoll", Driver::Epoll), ("io_uring", Driver::IoUring)]), |_| Ok(());
}

impl RuntimeOptions {
    pub(super) fn time_slice(&self) -> io::Result<Duration> {
        let time_slice = self.time_slice.unwrap_or(DEFAULT_TIME_SLICE);
        let (least, most) = (Duration::from_micros(20), Duration::from_secs(3600));
        match (least..=most).contains(&time_slice) {
            true => Ok(time_slice),
            false => Err(invalid(format!(
                "a time slice of {time_slice:?}: accepted are {least:?} to {most:?}"
            ))),
        }
    }

    pub(super) fn max_kernel_threads(&self, processors: usize) -> io::Result<usize> {
        let least = processors + 1;
        let most = self.max_kernel_threads;
        let most = most.unwrap_or(DEFAULT_KERNEL_THREADS.max(least));
        match (least..=MOST_WORKERS).contains(&most) {
            true => Ok(most),
            false => Err(invalid(format!(
                "at most {most} kernel threads: accepted are {least} (one more than processors) to {}",
                MOST_WORKERS
            ))),
        }
    }

    pub(crate) fn set_policy<P: Policy>(&mut self, policy: P) {
        self.policy = Some(Choice::of(policy));
    }

    /// The policy of the builder, or else the one that is asked for by name, or else the default. Text and variable also
    /// say which ideas of the scheduler are to be left out; a builder's methods take precedence.
    pub(super) fn choice(&self) -> io::Result<Choice> {
        let named = match &self.policy_text {
            Some(text) => Some(
                parse(text)
                    .ok_or_else(|| invalid(format!("policy {text:?}: accepted is {ACCEPTED}")))?,
            ),
            None => read("GREENTHREAD_POLICY", ACCEPTED, parse)?,
        };
        let named = named.unwrap_or_else(|| Choice::of(WorkStealing::new()));
        let ideas = Ideas {
            spinning: self.spinning.unwrap_or(named.ideas.spinning),
            hand_off: self.hand_off.unwrap_or(named.ideas.hand_off),
            preemption: self.preemption.unwrap_or(named.ideas.preemption),
        };
        let choice = self.policy.clone().unwrap_or(named);
        Ok(Choice { ideas, ..choice })
    }
}

/// A policy that can be taken once. Clones of a builder share it.
#[derive(Clone)]
pub(super) struct Choice {
    policy: Arc<Mutex<Option<Box<dyn Policy>>>>,
    /// The name of a policy of this crate; [`CUSTOM`] for another.
    pub(super) name: &'static str,
    pub(super) ideas: Ideas,
}

const CUSTOM: &str = "custom";

/// The accepted values, for error messages.
const ACCEPTED: &str = "a policy: work-stealing, relaxed-fifo, least-loaded, \
    priority or global-queue, and after it, each behind a comma, what is to be different: \
    no-spinning, no-hand-off, no-preemption; with work-stealing also no-stealing, no-next-slot, \
    lifo, global-interval=NUMBER; with least-loaded also batch=NUMBER";

impl Choice {
    pub(super) fn of<P: Policy>(policy: P) -> Choice {
        let (policy, name) = match anew_if_ours(&policy) {
            None => (Box::new(policy) as Box<dyn Policy>, CUSTOM),
            Some(ours) => {
                // Threads that wait in it, since it has served a runtime, must not be dropped.
                let waiting = |processor| policy.len(processor);
                if waiting(None) + (0..MAX).map(|i| waiting(Some(i))).sum::<usize>() != 0 {
                    std::mem::forget(policy);
                }
                ours
            }
        };
        Choice {
            policy: Arc::new(Mutex::new(Some(policy))),
            name,
            ideas: Ideas::ALL,
        }
    }

    /// Takes the policy, and says whether it is a user's policy: a policy that is not this crate's.
    pub(super) fn take(self) -> io::Result<(Box<dyn Policy>, bool)> {
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = "a policy that another runtime has: accepted is one of its own";
        let policy = policy.take().ok_or_else(|| invalid(taken.into()))?;
        Ok((policy, self.name == CUSTOM))
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Makes a policy like this one, without its threads, if it is one of this crate's. And its name.
fn anew_if_ours(policy: &dyn Any) -> Option<(Box<dyn Policy>, &'static str)> {
    fn like<P: Policy>(
        policy: &dyn Any,
        name: &'static str,
        anew: fn(&P) -> P,
    ) -> Option<(Box<dyn Policy>, &'static str)> {
        Some((Box::new(anew(policy.downcast_ref()?)), name))
    }
    like(policy, "work-stealing", WorkStealing::anew)
        .or_else(|| like(policy, "least-loaded", LeastLoaded::anew))
        .or_else(|| like(policy, "relaxed-fifo", |_: &RelaxedFifo| RelaxedFifo::new()))
        .or_else(|| like(policy, "priority", |_: &Priorities| Priorities::new()))
        .or_else(|| like(policy, "global-queue", |_: &GlobalQueue| GlobalQueue::new()))
}

/// Reads the value of `GREENTHREAD_POLICY`. `None` if it is not accepted.
fn parse(text: &str) -> Option<Choice> {
    let mut words = text.split(',');
    let name = words.next()?;
    let mut ideas = Ideas::ALL;
    let mut stealing = WorkStealing::new();
    let mut least_loaded = LeastLoaded::new();
    for word in words {
        match word {
            "no-spinning" => ideas.spinning = false,
            "no-hand-off" => ideas.hand_off = false,
            "no-preemption" => ideas.preemption = false,
            _ if name == "least-loaded" => {
                let batch = word.strip_prefix("batch=")?.parse().ok()?;
                least_loaded = (batch != 0).then(|| LeastLoaded::new().batch(batch))?;
            }
            _ if name != "work-stealing" => return None,
            "no-stealing" => stealing = stealing.stealing(false),
            "no-next-slot" => stealing = stealing.next_slot(false),
            "lifo" => stealing = stealing.last_in_first_out(true),
            _ => {
                let picks = word.strip_prefix("global-interval=")?;
                stealing = stealing.global_interval(picks.parse().ok()?);
            }
        }
    }
    let policy = match name {
        "work-stealing" => Choice::of(stealing),
        "least-loaded" => Choice::of(least_loaded),
        "relaxed-fifo" => Choice::of(RelaxedFifo::new()),
        "priority" => Choice::of(Priorities::new()),
        "global-queue" => Choice::of(GlobalQueue::new()),
        _ => return None,
    };
    Some(Choice { ideas, ..policy })
}

/// Returns the value of variable `name`, converted by `parse`. An error names the variable, the value,
/// and the `accepted` values.
pub(crate) fn read<T>(
    name: &str,
    accepted: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> io::Result<Option<T>> {
    let Some(value) = variable::read(name) else {
        return Ok(None);
    };
    let refusal = || invalid(format!("{name}={value:?}: accepted is {accepted}"));
    value.to_str().and_then(parse).ok_or_else(refusal).map(Some)
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

pub(crate) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Option<T> {
    let mut words = words.iter();
    words.find_map(|&(word, value)| (word == text).then_some(value))
}

pub(super) fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Checks whether a stack of `size` bytes is accepted; a small size is rounded up later.
pub(crate) fn check_stack_size(size: usize) -> io::Result<()> {
    let max = stack::MAX_SIZE;
    match size <= max {
        true => Ok(()),
        false => Err(invalid(format!(
            "a stack of {size} bytes: accepted are {max} ({} GiB) at most",
            max >> 30
        ))),
    }
}

/// Returns the stack size where the program asks for none: std's, with std's variable. The variable
/// is read as std reads it: once, and a value that is not a number is ignored.
pub(super) fn default_stack_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let asked = variable::read("RUST_MIN_STACK");
        let size = asked.and_then(|size| number(size.to_str()?));
        #[cfg(hooks)]
        let size = size.or_else(super::pthread::common_size);
        size.unwrap_or(2 << 20)
    })
}
