//! [`Builder`], which configures and starts runtimes.

use std::io;
use std::time::Duration;

use super::choice::{Asked, Choice};
use super::config::{self, invalid};
use super::{Backend, Driver, KernelBackend, Mode, Runtime, green};
use crate::engine::policy::Policy;
use crate::engine::sched::{Ideas, fork, machine, resize};
use crate::engine::stack;
use crate::thread::builder::check_stack_size;

const DEFAULT_TIME_SLICE: Duration = Duration::from_millis(10);
const SHORTEST_TIME_SLICE: Duration = Duration::from_micros(20);
const LONGEST_TIME_SLICE: Duration = Duration::from_secs(3600);
const DEFAULT_KERNEL_THREADS: usize = 10_000;

/// The configuration of a cluster.
pub(super) struct Wishes {
    pub(super) processors: usize,
    pub(super) follows_quota: bool,
    pub(super) stack_size: usize,
    pub(super) time_slice: Duration,
    /// The preemption signal; `None` for a free one.
    pub(super) signal: Option<i32>,
    pub(super) max_kernel_threads: usize,
    pub(super) driver: Option<Driver>,
    pub(super) ideas: Ideas,
}

/// Configures and starts a [`Runtime`].
///
/// A knob that is not set here is taken from the environment (`GREENTHREAD_PROCS`, `_STACK_SIZE`,
/// `_MODE`, `_DRIVER`, `_POLICY`, `_SIGNAL`), and otherwise has its default.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Builder;
/// use std::time::Duration;
///
/// let runtime = Builder::new()
///     .processors(2)
///     .stack_size(256 << 10)
///     .time_slice(Duration::from_millis(5))
///     .build()?;
/// assert_eq!(runtime.spawn(|| "done").join().unwrap(), "done");
/// runtime.shutdown();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "must be built"]
pub struct Builder {
    processors: Option<usize>,
    stack_size: Option<usize>,
    time_slice: Option<Duration>,
    preempt_signal: Option<i32>,
    max_kernel_threads: Option<usize>,
    mode: Option<Mode>,
    driver: Option<Driver>,
    policy: Option<Choice>,
    policy_text: Option<String>,
    spinning: Option<bool>,
    hand_off: Option<bool>,
    preemption: Option<bool>,
}

impl Builder {
    /// Makes a builder with nothing set.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    ///
    /// let runtime = Builder::new().build()?;
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the number of threads that run at once: 1 to 4096.
    ///
    /// Default: the number of CPUs that this process may use, by affinity and cgroup quota. When
    /// these change while the runtime is at work, the number follows within about a second.
    /// [`Runtime::set_processors`] changes it later.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    ///
    /// let runtime = Builder::new().processors(2).build()?;
    /// assert_eq!(runtime.processors(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn processors(mut self, count: usize) -> Builder {
        self.processors = Some(count);
        self
    }

    /// Sets the stack size of threads that do not ask for another one, in bytes.
    ///
    /// At most 64 GiB are accepted, and less than 16 KiB counts as 16 KiB. Default: the same as
    /// std's, which is 2 MiB or the value of `RUST_MIN_STACK`.
    ///
    /// A stack takes memory only as far as it is used. A thread that has run also takes 4 KiB of
    /// page tables if stacks have 2 MiB or more, and less if they are smaller.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    ///
    /// let runtime = Builder::new().stack_size(256 << 10).build()?; // 256 KiB
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, size: usize) -> Builder {
        self.stack_size = Some(size);
        self
    }

    /// Sets how long a thread runs before it must give way to others: 20 µs to an hour.
    ///
    /// Default: 10 ms. A thread has only a twentieth of this if other threads, which gave way to
    /// it, wait at its processor and no other processor can take them.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    /// use std::time::Duration;
    ///
    /// let runtime = Builder::new().time_slice(Duration::from_millis(1)).build()?;
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    ///
    /// let error = Builder::new().time_slice(Duration::ZERO).build().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn time_slice(mut self, slice: Duration) -> Builder {
        self.time_slice = Some(slice);
        self
    }

    /// Sets the signal that ends a time slice: the number of a real-time signal that the program
    /// does not use.
    ///
    /// Default: one that is free. In [`Mode::Kernel`] no signal is sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    ///
    /// let runtime = Builder::new().preempt_signal(40).build()?;
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn preempt_signal(mut self, signal: i32) -> Builder {
        self.preempt_signal = Some(signal);
        self
    }

    /// Sets the greatest number of kernel threads, blocked ones included: at least one more than
    /// there are processors.
    ///
    /// Default: 10,000. Kernel threads that wait for a thread that is locked to them
    /// ([`lock_kernel_thread`](crate::lock_kernel_thread)) come on top.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    ///
    /// let runtime = Builder::new().processors(2).max_kernel_threads(16).build()?;
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// assert!(Builder::new().processors(2).max_kernel_threads(2).build().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_kernel_threads(mut self, count: usize) -> Builder {
        self.max_kernel_threads = Some(count);
        self
    }

    /// Sets whether threads are green threads or kernel threads.
    ///
    /// Default: green threads where they are possible. Where they are not, a line on standard error
    /// says why, and threads are kernel threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::{Builder, Mode};
    ///
    /// let runtime = Builder::new().mode(Mode::Kernel).build()?;
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn mode(mut self, mode: Mode) -> Builder {
        self.mode = Some(mode);
        self
    }

    /// Sets how threads wait for sockets, pipes and files.
    ///
    /// Default: the fastest way in measurements, which is epoll for sockets and pipes and, where it
    /// is available, io_uring for calls that wait for a disk.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::{Builder, Driver, Mode};
    ///
    /// let runtime = Builder::new().driver(Driver::Epoll).build()?;
    /// if runtime.mode() == Mode::Green {
    ///     assert_eq!(runtime.driver(), Some(Driver::Epoll));
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn driver(mut self, driver: Driver) -> Builder {
        self.driver = Some(driver);
        self
    }

    /// Sets the policy, which decides which ready thread runs next, and where; see
    /// [`policy`](crate::engine::policy).
    ///
    /// Default: [`WorkStealing`](crate::engine::policy::WorkStealing). A policy serves one runtime:
    /// if several runtimes are built from clones of this builder, the first one gets it. In
    /// [`Mode::Kernel`] the system schedules, and no policy is asked.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Priorities, Priority};
    /// use greenthread::runtime::Builder;
    ///
    /// let runtime = Builder::new().policy(Priorities::new()).build()?;
    /// let thread = runtime.spawn(|| {
    ///     let urgent = greenthread::Builder::new().priority(Priority::HIGH);
    ///     urgent.spawn(|| 6 * 7).unwrap().join().unwrap()
    /// });
    /// assert_eq!(thread.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn policy(mut self, policy: impl Policy) -> Builder {
        self.policy = Some(Choice::new(policy));
        self
    }

    /// Sets the policy by its name and options, in the form of the variable `GREENTHREAD_POLICY`.
    ///
    /// The names are `work-stealing`, `relaxed-fifo`, `least-loaded`, `priority` and
    /// `global-queue`. Options follow, each behind a comma: `no-spinning`, `no-hand-off` and
    /// `no-preemption`; with `work-stealing` also `no-stealing`, `no-next-slot`, `lifo` and
    /// `global-interval=NUMBER`; with `least-loaded` also `batch=NUMBER`.
    ///
    /// The methods [`policy`](Builder::policy), [`spinning`](Builder::spinning),
    /// [`hand_off`](Builder::hand_off) and [`preemption`](Builder::preemption) take precedence over
    /// it.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    ///
    /// let text = "work-stealing,no-next-slot,no-spinning";
    /// let runtime = Builder::new().policy_named(text).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    ///
    /// let error = Builder::new().policy_named("lottery").build().unwrap_err();
    /// assert!(error.to_string().contains("accepted is"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn policy_named(mut self, text: &str) -> Builder {
        self.policy_text = Some(text.into());
        self
    }

    /// Sets whether a processor that finds nothing to do looks around a little longer before it
    /// sleeps.
    ///
    /// Default: yes. This knob and the next two are there to measure what each idea is worth.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    ///
    /// let runtime = Builder::new().spinning(false).build()?;
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spinning(mut self, on: bool) -> Builder {
        self.spinning = Some(on);
        self
    }

    /// Sets whether a processor whose kernel thread blocks in the system is handed to another
    /// kernel thread.
    ///
    /// Default: yes. Without hand-off a thread that is blocked in the system keeps its processor;
    /// if it waits for a thread that waits for that processor, both wait for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    ///
    /// let runtime = Builder::new().hand_off(false).build()?;
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn hand_off(mut self, on: bool) -> Builder {
        self.hand_off = Some(on);
        self
    }

    /// Sets whether a thread that has used up its time slice is made to give way.
    ///
    /// Default: yes. Without preemption a thread that never waits keeps its processor.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    ///
    /// let runtime = Builder::new().preemption(false).build()?;
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn preemption(mut self, on: bool) -> Builder {
        self.preemption = Some(on);
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` if the value of a knob or of a variable is not accepted; the message names
    ///   the value and what is accepted. Also if another runtime has the policy already.
    /// - `Unsupported` if green threads were asked for and are not possible here.
    /// - Otherwise the system's error when it refuses a kernel thread, or the message of a policy
    ///   that has panicked in [`Policy::resize`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Builder;
    /// use std::io::ErrorKind;
    ///
    /// let runtime = Builder::new().processors(1).build()?;
    /// runtime.shutdown();
    ///
    /// let error = Builder::new().processors(0).build().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn build(self) -> io::Result<Runtime> {
        let asked = match &self.policy_text {
            Some(text) => Asked::named(text)?,
            None => config::policy()?,
        };
        let named = match self.processors {
            Some(count) => resize::check(count, None).map(|()| Some(count))?,
            None => config::processors()?,
        };
        let processors = named.unwrap_or_else(resize::default_size);
        let asked_stack = match self.stack_size {
            Some(size) => check_stack_size(size).map(|()| Some(size))?,
            None => config::stack_size()?,
        };
        // The usable bytes of a slot are a power of two, and the caches of stacks go by that size.
        let stack_size = match asked_stack {
            Some(size) => size,
            None => config::std_stack_size()?,
        };
        let stack_size = stack_size.next_power_of_two().max(stack::MIN_SIZE);
        let time_slice = self.time_slice.unwrap_or(DEFAULT_TIME_SLICE);
        if !(SHORTEST_TIME_SLICE..=LONGEST_TIME_SLICE).contains(&time_slice) {
            return Err(invalid(format!(
                "a time slice of {time_slice:?}: accepted are {SHORTEST_TIME_SLICE:?} to {LONGEST_TIME_SLICE:?}"
            )));
        }
        let max_kernel_threads = self
            .max_kernel_threads
            .unwrap_or(DEFAULT_KERNEL_THREADS.max(processors + 1));
        if !(processors + 1..=machine::MAX).contains(&max_kernel_threads) {
            return Err(invalid(format!(
                "at most {max_kernel_threads} kernel threads: accepted are {} (one more than processors) to {}",
                processors + 1,
                machine::MAX
            )));
        }
        let asked_signal = match self.preempt_signal {
            Some(signal) => green::check_signal(signal).map(|()| Some(signal))?,
            None => green::preempt_signal()?,
        };
        let driver = match self.driver {
            Some(driver) => Some(driver),
            None => config::driver()?,
        };
        let asked_mode = match self.mode {
            Some(mode) => Some(mode),
            None => config::mode()?,
        };
        let mode = match (asked_mode, asked_mode.is_some_and(|m| m == Mode::Kernel)) {
            (_, true) => Mode::Kernel,
            (asked, false) => match (green::prepare(stack_size)?, asked) {
                (Ok(()), _) => Mode::Green,
                (Err(reason), Some(_)) => {
                    let message = format!("green threads cannot be had here: {reason}");
                    return Err(io::Error::new(io::ErrorKind::Unsupported, message));
                }
                (Err(reason), None) => {
                    say_once(reason);
                    Mode::Kernel
                }
            },
        };
        KernelBackend::prepare_forked_child(asked_stack, processors);
        fork::register();
        let backend = match mode {
            Mode::Kernel => Backend::Kernel(KernelBackend::start(asked_stack, processors)),
            Mode::Green => {
                let ideas = Ideas {
                    spinning: self.spinning.unwrap_or(asked.ideas.spinning),
                    hand_off: self.hand_off.unwrap_or(asked.ideas.hand_off),
                    preemption: self.preemption.unwrap_or(asked.ideas.preemption),
                };
                let wishes = Wishes {
                    processors,
                    follows_quota: named.is_none(),
                    stack_size,
                    time_slice,
                    signal: asked_signal,
                    max_kernel_threads,
                    driver,
                    ideas,
                };
                let (policy, is_guest) = self.policy.unwrap_or(asked.policy).take()?;
                green::start(wishes, policy, is_guest)?
            }
        };
        Ok(Runtime { backend })
    }
}

fn say_once(reason: &str) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        eprintln!(
            "greenthread: every thread is a kernel thread, because {reason} (GREENTHREAD_MODE=kernel silences this)"
        );
    });
}
