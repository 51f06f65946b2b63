//! Starting a backend, from the options of its builder and from the environment.

use std::io;

#[cfg(not(feature = "observe"))]
use super::options::OnDeadlock;
use super::options::{
    Mode, RuntimeOptions, check_stack_size, default_stack_size, invalid, read, word,
};
use super::{Backend, KernelBackend, green, kernel};
#[cfg(green)]
use super::{handle, options::Driver};
#[cfg(sim)]
use crate::engine::policy::{Ideas, Policy};
#[cfg(sim)]
use crate::engine::sched::{cluster::Kind, spawner};
use crate::engine::sched::{current, size};
#[cfg(not(feature = "observe"))]
use crate::engine::sys::variable;
#[cfg(sim)]
use crate::engine::sys::{clock, simulated};
use crate::engine::{atomic::Ordering, stack};
#[cfg(green)]
use crate::engine::{driver, sched::Cluster, sched::Config, sched::fork};
#[cfg(feature = "observe")]
use crate::observe::start as observers;

impl RuntimeOptions {
    /// Starts a backend with these options.
    #[cfg_attr(not(green), allow(unused_variables, reason = "they are checked"))]
    pub(crate) fn start(self) -> io::Result<Backend> {
        if current::is_forked_child() {
            return self.start_in_child();
        }
        #[cfg(sim)]
        if simulated::is_on() {
            return Err(no_green(
                "a simulated process has the one runtime that runs it",
            ));
        }
        let choice = self.choice()?;
        let named = self.processors()?;
        let processors = named.unwrap_or_else(size::default_size);
        let asked_stack = self.stack_size()?;
        let stack_size = asked_stack.unwrap_or_else(default_stack_size);
        check_stack_size(stack_size)
            .map_err(|error| invalid(format!("RUST_MIN_STACK asks for {error}")))?;
        // This only checks the values: the functions in libc's place read the variables by themselves.
        let known = |text: &str| word(text, &[("on", ()), ("off", ())]);
        read("GREENTHREAD_UNMODIFIED", "on or off", known)?;
        read("GREENTHREAD_PTHREADS", "on, children or off", |text| {
            word(text, &[("on", ()), ("children", ()), ("off", ())])
        })?;
        #[cfg(feature = "observe")]
        let observers = observers::Plan::read(self.on_deadlock)?;
        #[cfg(not(feature = "observe"))]
        refuse_observers(self.on_deadlock)?;
        // The usable bytes of a slot are a power of two, and the caches of stacks go by that size.
        let stack_size = stack_size.next_power_of_two().max(stack::MIN_SIZE);
        let time_slice = self.time_slice()?;
        let max_kernel_threads = self.max_kernel_threads(processors)?;
        let (signal, driver) = (self.preempt_signal()?, self.driver()?);
        #[cfg(green)]
        handle::make_key();
        let mode = self.possible_mode(stack_size)?;
        kernel::CHILD.get_or_init(|| KernelBackend::start(asked_stack, processors));
        #[cfg(green)]
        fork::register();
        #[cfg(feature = "observe")]
        observers.begin()?;
        let (policy_name, ideas) = (choice.name, choice.ideas);
        let backend = match mode {
            Mode::Kernel => {
                #[cfg(all(green, feature = "observe"))]
                green::allow_samples();
                Backend::Kernel(KernelBackend::start(asked_stack, processors))
            }
            Mode::Green => {
                let (policy, is_users) = choice.take()?;
                #[cfg(not(green))]
                return Err(io::ErrorKind::Unsupported.into());
                #[cfg(green)]
                let config = Config {
                    processors,
                    follows_quota: named.is_none(),
                    stack_size,
                    time_slice,
                    signal: green::take_signal(signal)?,
                    max_kernel_threads,
                    driver: driver::choose(driver.map(Driver::kind)),
                    ideas,
                };
                #[cfg(green)]
                Backend::Green(Cluster::start(config, policy, is_users)?)
            }
        };
        backend.add(policy_name);
        #[cfg(feature = "observe")]
        observers.watch(backend)?;
        Ok(backend)
    }

    /// Prepares a process that will fork simulated ones.
    #[cfg(sim)]
    pub(crate) fn prepare() -> io::Result<()> {
        let stack_size = default_stack_size().next_power_of_two();
        // What a process finds out once, at its first use, comes before the seeds.
        clock::at(std::time::Instant::now());
        handle::make_key();
        green::prepare(stack_size.max(stack::MIN_SIZE))?.map_err(|reason| no_green(&reason))
    }

    /// Starts the one runtime of a simulated process, whose main thread is `main`; the calling kernel thread, the only one, runs
    /// its threads from now on. Returns if it cannot.
    #[cfg(sim)]
    pub(crate) fn simulate(
        policy: Box<dyn Policy>,
        main: impl FnOnce() + Send + 'static,
    ) -> io::Error {
        let start = || {
            let stack_size = default_stack_size().next_power_of_two();
            RuntimeOptions::prepare()?;
            kernel::CHILD.get_or_init(|| KernelBackend::start(None, 1));
            fork::register();
            let cluster = Cluster::start(
                Config {
                    processors: 1,
                    follows_quota: false,
                    stack_size: stack_size.max(stack::MIN_SIZE),
                    time_slice: RuntimeOptions::default().time_slice()?,
                    signal: green::take_signal(None)?,
                    max_kernel_threads: 2,
                    driver: Kind::Epoll,
                    ideas: Ideas::NONE,
                },
                policy,
                false,
            )?;
            let backend = Backend::Green(cluster);
            backend.add("simulated");
            super::adopt_global(backend);
            let thread = super::spawn::Builder::new().name("sim".into());
            thread.spawn_on(backend, main)?;
            spawner::work_here(cluster).map_err(io::Error::from_raw_os_error)
        };
        match start() {
            Err(error) => error,
            Ok(()) => io::Error::other("the only worker of a simulated process has ended"),
        }
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
        size::check_size(processors, None)?;
        let stack_size = self.stack_size.or(default.stack_size);
        stack_size.map_or(Ok(()), check_stack_size)?;
        let backend = KernelBackend::start(stack_size, processors);
        Ok(Backend::Kernel(backend))
    }

    /// Returns the mode that was asked for, or otherwise green threads where they are possible.
    fn possible_mode(&self, stack_size: usize) -> io::Result<Mode> {
        let asked = self.mode()?;
        if asked == Some(Mode::Kernel) {
            return Ok(Mode::Kernel);
        }
        match (green::prepare(stack_size)?, asked) {
            (Ok(()), _) => Ok(Mode::Green),
            (Err(reason), Some(_)) => Err(no_green(&reason)),
            (Err(reason), None) => {
                static SAID: std::sync::Once = std::sync::Once::new();
                SAID.call_once(|| {
                    eprintln!(
                        "greenthread: every thread is a kernel thread, because {reason} (GREENTHREAD_MODE=kernel silences this)"
                    );
                });
                Ok(Mode::Kernel)
            }
        }
    }
}

pub(super) fn no_green(reason: &str) -> io::Error {
    let message = format!("green threads cannot be had here: {reason}");
    io::Error::new(io::ErrorKind::Unsupported, message)
}

/// Without the feature `observe`, an option that asks for an observer is an error. A value that asks for nothing is accepted.
#[cfg(not(feature = "observe"))]
fn refuse_observers(on_deadlock: Option<OnDeadlock>) -> io::Result<()> {
    const VARIABLES: [&str; 9] = [
        "GREENTHREAD_DEADLOCK",
        "GREENTHREAD_DUMP",
        "GREENTHREAD_METRICS",
        "GREENTHREAD_OBSERVE",
        "GREENTHREAD_SCHEDTRACE",
        "GREENTHREAD_SIGQUIT",
        "GREENTHREAD_TRACE",
        "GREENTHREAD_WARN",
        "GREENTHREAD_WARN_LEAK",
    ];
    let by_variable = VARIABLES.into_iter().find_map(|name| {
        let value = variable::read(name).filter(|value| value != "off" && value != "0")?;
        Some(format!("{name}={value:?}"))
    });
    let asked = on_deadlock.filter(|&action| action != OnDeadlock::Ignore);
    let by_builder = asked.map(|action| format!("on_deadlock({action:?})"));
    let Some(asked) = by_variable.or(by_builder) else {
        return Ok(());
    };
    let message = format!("{asked}: the program was built without greenthread's feature `observe`");
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}
