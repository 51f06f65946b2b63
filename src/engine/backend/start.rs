//! Starting a backend, from the knobs of its builder and from the environment.

use std::io;
use std::time::Duration;

use super::choice::{Asked, Choice};
use super::config::{self, check_stack_size, invalid};
use super::{Backend, Driver, KernelBackend, Mode, OnDeadlock, green, runtimes, schedtrace};
use crate::engine::atomic::Ordering;
use crate::engine::backend::handle;
#[cfg(green)]
use crate::engine::report::reporter;
use crate::engine::sched::{Ideas, fork, machine, resize};
use crate::engine::stack;
#[cfg(green)]
use crate::engine::sys::names;
use crate::observe::{measure::measure, trace::environment};

const DEFAULT_TIME_SLICE: Duration = Duration::from_millis(10);
const SHORTEST_TIME_SLICE: Duration = Duration::from_micros(20);
const LONGEST_TIME_SLICE: Duration = Duration::from_secs(3600);
const DEFAULT_KERNEL_THREADS: usize = 10_000;

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

/// The knobs that were set. The environment, and then a default, decides the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knobs {
    pub(crate) processors: Option<usize>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) time_slice: Option<Duration>,
    pub(crate) preempt_signal: Option<i32>,
    pub(crate) max_kernel_threads: Option<usize>,
    pub(crate) mode: Option<Mode>,
    pub(crate) driver: Option<Driver>,
    pub(crate) policy: Option<Choice>,
    pub(crate) policy_text: Option<String>,
    pub(crate) spinning: Option<bool>,
    pub(crate) hand_off: Option<bool>,
    pub(crate) preemption: Option<bool>,
    pub(crate) on_deadlock: Option<OnDeadlock>,
}

impl Knobs {
    /// Starts a backend with these knobs.
    pub(crate) fn start(self) -> io::Result<Backend> {
        if fork::is_child() {
            return self.start_in_child();
        }
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
        config::check_unmodified()?;
        let trace = config::trace()?;
        #[cfg(not(green))]
        config::say_unobserved();
        let measures = config::metrics()?;
        let schedtrace = config::schedtrace()?;
        let plan = Plan {
            processors,
            follows_quota: named.is_none(),
            stack_size: stack_size.next_power_of_two().max(stack::MIN_SIZE),
            time_slice: self.time_slice()?,
            max_kernel_threads: self.max_kernel_threads(processors)?,
            signal: match self.preempt_signal {
                Some(signal) => green::check_signal(signal).map(|()| Some(signal))?,
                None => green::preempt_signal()?,
            },
            driver: match self.driver {
                Some(driver) => Some(driver),
                None => config::driver()?,
            },
            ideas: Ideas {
                spinning: self.spinning.unwrap_or(asked.ideas.spinning),
                hand_off: self.hand_off.unwrap_or(asked.ideas.hand_off),
                preemption: self.preemption.unwrap_or(asked.ideas.preemption),
            },
        };
        #[cfg(green)]
        let (wishes, warnings) = (config::reporter()?, config::warnings()?);
        #[cfg(green)]
        names::stay_loaded();
        let mode = self.mode(plan.stack_size)?;
        KernelBackend::prepare_forked_child(asked_stack, processors);
        handle::prepare_fork();
        if let Some(path) = trace {
            environment::begin(&path)?;
        }
        let choice = self.policy.unwrap_or(asked.policy);
        #[cfg(green)]
        let policy_name = choice.name();
        if measures == Some(true) {
            measure(true);
        }
        let backend = match mode {
            Mode::Kernel => {
                #[cfg(green)]
                green::allow_samples();
                Backend::Kernel(KernelBackend::start(asked_stack, processors))
            }
            Mode::Green => {
                let (policy, is_guest) = choice.take()?;
                green::start(plan, policy, is_guest)?
            }
        };
        runtimes::add(backend);
        #[cfg(green)]
        backend.introduce(policy_name);
        #[cfg(green)]
        reporter::start(
            &wishes,
            self.on_deadlock.map(OnDeadlock::for_reporter),
            warnings,
        );
        if let Some(interval) = schedtrace {
            schedtrace::begin(interval)?;
        }
        Ok(backend)
    }

    /// In a forked child, where threads are kernel threads: the queues, the descriptors and the helpers of the others are the
    /// parent's. The environment was read there, too; who reads it here may wait for a lock of std's for ever.
    fn start_in_child(self) -> io::Result<Backend> {
        let default = KernelBackend::of_forked_child();
        if self.mode == Some(Mode::Green) {
            return Err(no_green("this process was forked from one with a runtime"));
        }
        let processors = match self.processors {
            Some(count) => resize::check(count, None).map(|()| count)?,
            None => default.processors.load(Ordering::Relaxed),
        };
        if let Some(size) = self.stack_size {
            check_stack_size(size)?;
        }
        let stack_size = self.stack_size.or(default.stack_size);
        Ok(Backend::Kernel(KernelBackend::start(
            stack_size, processors,
        )))
    }

    fn time_slice(&self) -> io::Result<Duration> {
        let time_slice = self.time_slice.unwrap_or(DEFAULT_TIME_SLICE);
        match (SHORTEST_TIME_SLICE..=LONGEST_TIME_SLICE).contains(&time_slice) {
            true => Ok(time_slice),
            false => Err(invalid(format!(
                "a time slice of {time_slice:?}: accepted are {SHORTEST_TIME_SLICE:?} to {LONGEST_TIME_SLICE:?}"
            ))),
        }
    }

    fn max_kernel_threads(&self, processors: usize) -> io::Result<usize> {
        let least = processors + 1;
        let most = self.max_kernel_threads;
        let most = most.unwrap_or(DEFAULT_KERNEL_THREADS.max(least));
        match (least..=machine::MAX).contains(&most) {
            true => Ok(most),
            false => Err(invalid(format!(
                "at most {most} kernel threads: accepted are {least} (one more than processors) to {}",
                machine::MAX
            ))),
        }
    }

    /// Returns the mode that was asked for, or otherwise green threads where they are possible.
    fn mode(&self, stack_size: usize) -> io::Result<Mode> {
        let asked = match self.mode {
            Some(mode) => Some(mode),
            None => config::mode()?,
        };
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
