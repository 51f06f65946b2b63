//! Starting a backend, from the knobs of its builder and from the environment.

use std::io;
use std::time::Duration;

use super::options::{Knobs, check_stack_size, default_stack_size, invalid, read, word};
#[cfg(not(feature = "observe"))]
use super::unobserved as observers;
use super::{Backend, Driver, KernelBackend, Mode, green, runtimes};
use crate::engine::atomic::Ordering;
use crate::engine::runtime::handle;
use crate::engine::sched::{Ideas, fork, resize};
use crate::engine::stack;
#[cfg(green)]
use crate::engine::sys::libraries;
#[cfg(feature = "observe")]
use crate::observe::start as observers;

/// The configuration of a cluster.
pub(super) struct Plan {
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

impl Knobs {
    /// Starts a backend with these knobs.
    pub(crate) fn start(self) -> io::Result<Backend> {
        if fork::is_child() {
            return self.start_in_child();
        }
        let asked = self.named_policy()?;
        let named = self.processors()?;
        let processors = named.unwrap_or_else(resize::default_size);
        let asked_stack = self.stack_size()?;
        let stack_size = asked_stack.unwrap_or_else(default_stack_size);
        if let Err(error) = check_stack_size(stack_size) {
            return Err(invalid(format!("RUST_MIN_STACK asks for {error}")));
        }
        // The hooked calls of libc read it by themselves.
        let known = |text: &str| word(text, [("on", ()), ("off", ())]);
        read("GREENTHREAD_UNMODIFIED", "on or off", known)?;
        let observers = observers::Plan::read(self.on_deadlock)?;
        let plan = Plan {
            processors,
            follows_quota: named.is_none(),
            // The usable bytes of a slot are a power of two, and the caches of stacks go by that size.
            stack_size: stack_size.next_power_of_two().max(stack::MIN_SIZE),
            time_slice: self.time_slice()?,
            max_kernel_threads: self.max_kernel_threads(processors)?,
            signal: self.preempt_signal()?,
            driver: self.driver()?,
            ideas: Ideas {
                spinning: self.spinning.unwrap_or(asked.ideas.spinning),
                hand_off: self.hand_off.unwrap_or(asked.ideas.hand_off),
                preemption: self.preemption.unwrap_or(asked.ideas.preemption),
            },
        };
        #[cfg(green)]
        libraries::stay_loaded();
        let mode = self.possible_mode(plan.stack_size)?;
        KernelBackend::prepare_forked_child(asked_stack, processors);
        handle::prepare_fork();
        observers.begin()?;
        let choice = self.policy.unwrap_or(asked.policy);
        let policy_name = choice.name();
        let backend = match mode {
            Mode::Kernel => {
                #[cfg(all(green, feature = "observe"))]
                green::allow_samples();
                Backend::Kernel(KernelBackend::start(asked_stack, processors))
            }
            Mode::Green => {
                let (policy, is_users) = choice.take()?;
                green::start(plan, policy, is_users)?
            }
        };
        runtimes::add(backend, policy_name);
        observers.watch(backend)?;
        Ok(backend)
    }

    /// In a forked child, where threads are kernel threads: the queues, the descriptors and the helpers of the others are the
    /// parent's. The environment was read there, too; who reads it here may wait for a lock of std's for ever.
    fn start_in_child(self) -> io::Result<Backend> {
        let default = KernelBackend::of_forked_child();
        if self.mode == Some(Mode::Green) {
            return Err(no_green("this process was forked from one with a runtime"));
        }
        let processors = self.processors;
        let processors = processors.unwrap_or_else(|| default.processors.load(Ordering::Relaxed));
        resize::check(processors, None)?;
        let stack_size = self.stack_size.or(default.stack_size);
        stack_size.map_or(Ok(()), check_stack_size)?;
        Ok(Backend::Kernel(KernelBackend::start(
            stack_size, processors,
        )))
    }

    /// Returns the mode that was asked for, or otherwise green threads where they are possible.
    fn possible_mode(&self, stack_size: usize) -> io::Result<Mode> {
        let asked = self.mode()?;
        if asked == Some(Mode::Kernel) {
            return Ok(Mode::Kernel);
        }
        match (green::prepare(stack_size)?, asked) {
            (Ok(()), _) => Ok(Mode::Green),
            (Err(reason), Some(_)) => Err(no_green(reason)),
            (Err(reason), None) => {
                say_once(reason);
                Ok(Mode::Kernel)
            }
        }
    }
}

fn no_green(reason: &str) -> io::Error {
    let message = format!("green threads cannot be had here: {reason}");
    io::Error::new(io::ErrorKind::Unsupported, message)
}

fn say_once(reason: &str) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        eprintln!(
            "greenthread: every thread is a kernel thread, because {reason} (GREENTHREAD_MODE=kernel silences this)"
        );
    });
}
