//! [`Builder`], which configures and starts runtimes.

use std::io;
use std::time::Duration;

use super::{Driver, Mode, OnDeadlock, Runtime};
use crate::engine::facade::RuntimeOptions;
use crate::policy::Policy;

/// Configures and starts a [`Runtime`].
///
/// A knob that is not set here is taken from the environment (`GREENTHREAD_PROCS`, `_STACK_SIZE`,
/// `_MODE`, `_DRIVER`, `_POLICY`, `_SIGNAL`, `_DEADLOCK`), and otherwise has its default.
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
    options: RuntimeOptions,
}

/// Declares the methods that set one option each, which has the same name in `RuntimeOptions`.
macro_rules! setters {
    ($($(#[$attribute:meta])* fn $option:ident($value:ident: $Type:ty);)*) => {$(
        $(#[$attribute])*
        pub fn $option(mut self, $value: $Type) -> Builder {
            self.options.$option = Some($value);
            self
        }
    )*};
}

impl Builder {
    /// Creates a builder with nothing set.
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

    setters! {
        /// Sets the number of threads that run at once: 1 to 4096.
        ///
        /// Default: the number of CPUs that this process may use, by affinity and cgroup quota. When
        /// affinity or quota change while the runtime is at work, the number follows within about a
        /// second. [`Runtime::set_processors`] changes it later.
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
        fn processors(count: usize);

        /// Sets the stack size of threads that do not ask for another one, in bytes.
        ///
        /// The greatest size is 64 GiB, and a size below 16 KiB counts as 16 KiB. Default: the same as
        /// std's, which is 2 MiB or the value of `RUST_MIN_STACK`.
        ///
        /// A stack takes memory only as far as it is used. A thread that has run also takes page
        /// tables: 4 KiB if stacks have 2 MiB or more, and less if they are smaller.
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
        fn stack_size(size: usize);

        /// Sets how long a thread runs before it must give way to others: 20 µs to an hour.
        ///
        /// Default: 10 ms. A thread's slice is only a twentieth of this while threads that have yielded
        /// wait at its processor, where no other processor can take them.
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
        fn time_slice(slice: Duration);

        /// Sets the signal that ends a time slice: the number of a real-time signal that the program
        /// does not use.
        ///
        /// Default: a real-time signal that is free. In [`Mode::Kernel`] no signal is sent.
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
        fn preempt_signal(signal: i32);

        /// Sets the greatest number of kernel threads, blocked ones included. It must be greater than
        /// the number of processors.
        ///
        /// Default: 10,000. Kernel threads that wait for a thread that is locked to them
        /// ([`lock_kernel_thread`](crate::lock_kernel_thread)) are not counted.
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
        fn max_kernel_threads(count: usize);

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
        fn mode(mode: Mode);

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
        fn driver(driver: Driver);

        /// Sets whether a processor that finds nothing to do looks around a little longer before it
        /// sleeps.
        ///
        /// Default: yes. This knob exists to measure what the mechanism is worth.
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
        #[doc(hidden)]
        fn spinning(on: bool);

        /// Sets whether a processor whose kernel thread blocks in the kernel is handed to another
        /// kernel thread.
        ///
        /// Default: yes. This knob exists to measure what the mechanism is worth: without hand-off a thread that
        /// is blocked in the kernel keeps its processor, and if it waits for a thread that waits for that
        /// processor, both wait for ever.
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
        #[doc(hidden)]
        fn hand_off(on: bool);

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
        fn preemption(on: bool);

        /// Sets what the process does when every thread waits for another, and nothing outside can wake one.
        ///
        /// It holds for the whole process, also for threads of other runtimes. If several runtimes ask for something,
        /// the last one that was built decides. `GREENTHREAD_DEADLOCK` (`report`, `abort` or `off`) decides if none
        /// does. Default: [`OnDeadlock::Report`]. Where there are no green threads at all nothing is looked for; in
        /// [`Mode::Kernel`] on Linux it is. Without the feature `observe` nothing is looked for either, and [`build`] refuses
        /// any other action than [`OnDeadlock::Ignore`].
        ///
        /// [`build`]: Builder::build
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::runtime::{Builder, OnDeadlock};
        ///
        /// let runtime = Builder::new().on_deadlock(OnDeadlock::Ignore).build()?;
        /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn on_deadlock(action: OnDeadlock);
    }

    /// Sets the policy, which decides which ready thread runs next, and where; see
    /// [`policy`](crate::policy).
    ///
    /// Default: [`WorkStealing`](crate::policy::WorkStealing). A policy serves one runtime: of
    /// several runtimes built from clones of this builder, only the first one gets it, and building
    /// the others is an error. A policy of this crate stands for a new one with the same options:
    /// threads that were put into it before do not come along. In [`Mode::Kernel`] the system
    /// schedules, and no policy is asked.
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
        self.options.set_policy(policy);
        self
    }

    /// Sets the policy by name: its name and options, in the form of the variable `GREENTHREAD_POLICY`.
    ///
    /// The names are `work-stealing`, `relaxed-fifo`, `least-loaded`, `priority` and
    /// `global-queue`. Options follow the name, each after a comma: `no-spinning`, `no-hand-off`
    /// and `no-preemption`; with `work-stealing` also `no-stealing`, `no-next-slot`, `lifo` and
    /// `global-interval=NUMBER`; with `least-loaded` also `batch=NUMBER`.
    ///
    /// The methods [`policy`](Builder::policy) and [`preemption`](Builder::preemption) take precedence over
    /// the text.
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
        self.options.policy_text = Some(text.into());
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` if a value that was set here or in a variable is not accepted; the message
    ///   names the value and what is accepted. It is also returned if another runtime already uses
    ///   the policy.
    /// - `Unsupported` if green threads were asked for and are not possible here, or if something was asked for that
    ///   needs the feature `observe`, without which the program was built.
    /// - Otherwise the system's error if it refuses a kernel thread, or an error with the message
    ///   of a policy that has panicked in [`Policy::resize`].
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
        self.options.start().map(Runtime::of)
    }
}
