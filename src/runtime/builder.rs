//! The builder of runtimes.

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

/// What a cluster is to be like.
pub(super) struct Wishes {
    pub(super) processors: usize,
    pub(super) follows_quota: bool,
    pub(super) stack_size: usize,
    pub(super) time_slice: Duration,
    /// `None`: a free one.
    pub(super) signal: Option<i32>,
    pub(super) max_kernel_threads: usize,
    pub(super) driver: Option<Driver>,
    pub(super) ideas: Ideas,
}

/// Configures a [`Runtime`]. What is not set here comes from the environment (`GREENTHREAD_PROCS`,
/// `_STACK_SIZE`,
/// `_MODE`, `_DRIVER`, `_POLICY`, `_SIGNAL`), else from the defaults.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// let runtime = greenthread::runtime::Builder::new()
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
    /// A builder with nothing set.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// How many threads run at once: 1 to 4096. Default: the CPUs that this process may use, by
    /// affinity and cgroup quota; when these change while the runtime is at work, it follows within
    /// a second or so. [`Runtime::set_processors`] changes the number later.
    pub fn processors(mut self, count: usize) -> Builder {
        self.processors = Some(count);
        self
    }

    /// The stack size of threads that do not ask for another, in bytes: at most 64 GiB; less than 16
    /// KiB is taken for 16 KiB. Default: as std's, 2 MiB or what the environment's `RUST_MIN_STACK`
    /// says. Memory is used only as far as the stack is; a thread that has run takes 4 KiB of page
    /// tables too if stacks have 2 MiB or more, and less with smaller ones.
    pub fn stack_size(mut self, size: usize) -> Builder {
        self.stack_size = Some(size);
        self
    }

    /// How long a thread runs while others wait: 20 µs to an hour. Default: 10 ms. It is a twentieth
    /// of that while others wait behind the thread that have given way, and that no other processor
    /// can take.
    pub fn time_slice(mut self, slice: Duration) -> Builder {
        self.time_slice = Some(slice);
        self
    }

    /// The signal that ends a time slice: a real-time signal that the program does not use.
    /// Default: one that is free.
    pub fn preempt_signal(mut self, signal: i32) -> Builder {
        self.preempt_signal = Some(signal);
        self
    }

    /// How many kernel threads there may be, blocked ones included: at least one more than
    /// `processors`. Default: 10,000. Those that wait for a thread that is locked to them
    /// ([`lock_kernel_thread`](crate::lock_kernel_thread)) come on top.
    pub fn max_kernel_threads(mut self, count: usize) -> Builder {
        self.max_kernel_threads = Some(count);
        self
    }

    /// Green threads or kernel threads. Default: green ones where they can be had; if not, a line
    /// on standard error says why.
    pub fn mode(mut self, mode: Mode) -> Builder {
        self.mode = Some(mode);
        self
    }

    /// How threads wait for sockets, pipes and files. Default: what measures best, which is epoll
    /// for sockets and pipes, and io_uring for what waits for a disk, where it can be had.
    pub fn driver(mut self, driver: Driver) -> Builder {
        self.driver = Some(driver);
        self
    }

    /// Which ready thread runs next, and where: see [`policy`](crate::engine::policy). Default:
    /// [`WorkStealing`](crate::engine::policy::WorkStealing). A policy serves one runtime: of several that
    /// are built from clones of this builder, the first gets it. In kernel-thread mode the system
    /// schedules, and no policy is asked.
    pub fn policy(mut self, policy: impl Policy) -> Builder {
        self.policy = Some(Choice::new(policy));
        self
    }

    /// The same by name, with what is to be different behind it, as in `GREENTHREAD_POLICY`. What
    /// [`policy`](Builder::policy) and the three knobs below say goes before it.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    /// let text = "work-stealing,no-next-slot,no-spinning";
    /// let runtime = Runtime::builder().policy_named(text).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    ///
    /// let error = Runtime::builder().policy_named("lottery").build().unwrap_err();
    /// assert!(error.to_string().contains("accepted is"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn policy_named(mut self, text: &str) -> Builder {
        self.policy_text = Some(text.into());
        self
    }

    /// Whether a processor that finds nothing looks for a moment longer before it sleeps. Default:
    /// yes. This and the next two are there to see what each is worth.
    pub fn spinning(mut self, on: bool) -> Builder {
        self.spinning = Some(on);
        self
    }

    /// Whether a processor whose kernel thread is blocked by the system is handed to another one.
    /// Default: yes. Without it, threads that wait for a processor whose thread waits for them wait
    /// for ever.
    pub fn hand_off(mut self, on: bool) -> Builder {
        self.hand_off = Some(on);
        self
    }

    /// Whether a thread that has used up its time slice is made to give way. Default: yes. Without
    /// it, one that never waits keeps its processor.
    pub fn preemption(mut self, on: bool) -> Builder {
        self.preemption = Some(on);
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    /// `InvalidInput`, naming the knob or the variable, the value, and what is accepted; or for a
    /// policy that another runtime has got.
    /// `Unsupported` if green threads were asked for and cannot be had. Otherwise what the system
    /// answered when it was asked for kernel threads, or what a policy said when it panicked in
    /// [`Policy::resize`].
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
        // A slot's usable bytes are a power of two: so is the size that the caches of stacks go by.
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
