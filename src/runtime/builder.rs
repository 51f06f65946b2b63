//! The builder of runtimes.

use std::io;
use std::time::Duration;

use super::{Driver, Mode, Runtime};
use crate::engine::door::Policy;
use crate::engine::door::{Choice, Knobs};

/// Configures a [`Runtime`]. What is not set here comes from the environment (`GREENTHREAD_PROCS`,
/// `_STACK_SIZE`,
/// `_MODE`, `_DRIVER`, `_POLICY`, `_SIGNAL`), else from the defaults.
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
    knobs: Knobs,
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
        self.knobs.processors = Some(count);
        self
    }

    /// The stack size of threads that do not ask for another, in bytes: at most 64 GiB; less than 16
    /// KiB is taken for 16 KiB. Default: as std's, 2 MiB or what the environment's `RUST_MIN_STACK`
    /// says. Memory is used only as far as the stack is; a thread that has run takes 4 KiB of page
    /// tables too if stacks have 2 MiB or more, and less with smaller ones.
    pub fn stack_size(mut self, size: usize) -> Builder {
        self.knobs.stack_size = Some(size);
        self
    }

    /// How long a thread runs while others wait: 20 µs to an hour. Default: 10 ms. It is a twentieth
    /// of that while others wait behind the thread that have given way, and that no other processor
    /// can take.
    pub fn time_slice(mut self, slice: Duration) -> Builder {
        self.knobs.time_slice = Some(slice);
        self
    }

    /// The signal that ends a time slice: a real-time signal that the program does not use.
    /// Default: one that is free.
    pub fn preempt_signal(mut self, signal: i32) -> Builder {
        self.knobs.preempt_signal = Some(signal);
        self
    }

    /// How many kernel threads there may be, blocked ones included: at least one more than
    /// `processors`. Default: 10,000. Those that wait for a thread that is locked to them
    /// ([`lock_kernel_thread`](crate::lock_kernel_thread)) come on top.
    pub fn max_kernel_threads(mut self, count: usize) -> Builder {
        self.knobs.max_kernel_threads = Some(count);
        self
    }

    /// Green threads or kernel threads. Default: green ones where they can be had; if not, a line
    /// on standard error says why.
    pub fn mode(mut self, mode: Mode) -> Builder {
        self.knobs.mode = Some(mode);
        self
    }

    /// How threads wait for sockets, pipes and files. Default: what measures best, which is epoll
    /// for sockets and pipes, and io_uring for what waits for a disk, where it can be had.
    pub fn driver(mut self, driver: Driver) -> Builder {
        self.knobs.driver = Some(driver);
        self
    }

    /// Which ready thread runs next, and where: see [`policy`](crate::policy). Default:
    /// [`WorkStealing`](crate::policy::WorkStealing). A policy serves one runtime: of several that
    /// are built from clones of this builder, the first gets it. In kernel-thread mode the system
    /// schedules, and no policy is asked.
    pub fn policy(mut self, policy: impl Policy) -> Builder {
        self.knobs.policy = Some(Choice::new(policy));
        self
    }

    /// The same by name, with what is to be different behind it, as in `GREENTHREAD_POLICY`. What
    /// [`policy`](Builder::policy) and the three knobs below say goes before it.
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
        self.knobs.policy_text = Some(text.into());
        self
    }

    /// Whether a processor that finds nothing looks for a moment longer before it sleeps. Default:
    /// yes. This and the next two are there to see what each is worth.
    pub fn spinning(mut self, on: bool) -> Builder {
        self.knobs.spinning = Some(on);
        self
    }

    /// Whether a processor whose kernel thread is blocked by the system is handed to another one.
    /// Default: yes. Without it, threads that wait for a processor whose thread waits for them wait
    /// for ever.
    pub fn hand_off(mut self, on: bool) -> Builder {
        self.knobs.hand_off = Some(on);
        self
    }

    /// Whether a thread that has used up its time slice is made to give way. Default: yes. Without
    /// it, one that never waits keeps its processor.
    pub fn preemption(mut self, on: bool) -> Builder {
        self.knobs.preemption = Some(on);
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
        self.knobs.start().map(Runtime::of)
    }
}
