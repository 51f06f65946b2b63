//! The parts of a runtime that only green threads need: preparing the process once, choosing a
//! signal, and what a cluster says of itself.

use std::io;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use super::options::{Driver, invalid};
use super::panic_hook;
use crate::engine::sched::{Cluster, Green, cancel, current, signals, start, thread::Records};
use crate::engine::sys::{kernel_thread, libraries, sanitizer, signal};
use crate::engine::{atomic::Ordering, inspect::hold, sched::cluster::Kind, stack, tls};

/// Prepares a signal for preemption, a free one if none is asked for, and returns it.
pub(super) fn take_signal(asked: Option<i32>) -> io::Result<i32> {
    let signal = asked.map_or_else(choose_signal, Ok)?;
    signals::reserve(signal);
    signals::install_preemption(signal)?;
    Ok(signal)
}

/// Prepares the process for green threads, once. The inner error says why they are not possible
/// here at all. The outer error says that no kernel thread can be made now; the question then stays
/// open.
pub(super) fn prepare(default_stack: usize) -> io::Result<Result<(), String>> {
    static PREPARED: Mutex<Option<Result<(), String>>> = Mutex::new(None);
    let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*prepared {
        return Ok(known.clone());
    }
    let now = prepare_process(default_stack);
    if now.is_err() {
        // The reason may be that no kernel thread can be made now: then this attempt fails as well.
        drop(kernel_thread::making(|| std::thread::Builder::new().spawn(|| ()))?.join());
    }
    Ok(prepared.insert(now).clone())
}

pub(super) const LOADED_LATE: &str =
    "calls of libc go past the crate: the library that it is in was loaded after libc";

fn prepare_process(default_stack: usize) -> Result<(), String> {
    // In a program with such a sanitizer the crate has no functions with libc's names.
    if let Some(name) = sanitizer::unsupported() {
        return Err(format!(
            "{name} is in the program, and knows kernel threads alone"
        ));
    }
    if !libraries::libcs_names_lead_here() {
        return Err(LOADED_LATE.into());
    }
    #[cfg(tsan)]
    sanitizer::learn()?;
    tls::init()?;
    current::learn()?;
    if !kernel_thread::register_barrier() {
        return Err("the kernel has no expedited membarrier".into());
    }
    if !signal::has_alternate_stacks() {
        return Err("the system refuses stacks for signal handlers (sigaltstack)".into());
    }
    stack::init(start::reserve(), default_stack).map_err(|error| error.to_string())?;
    stack::overflow::install(start::name_of);
    signals::wrap_libcs();
    panic_hook::install();
    Ok(())
}

impl Driver {
    pub(super) fn kind(self) -> Kind {
        match self {
            Driver::Epoll => Kind::Epoll,
            Driver::IoUring => Kind::Uring,
        }
    }
}

impl Cluster {
    /// Returns how the threads of a cluster wait for descriptors.
    pub(super) fn driver(&self) -> Driver {
        match self.config.driver {
            Kind::Uring => Driver::IoUring,
            Kind::Epoll | Kind::Mixed => Driver::Epoll,
        }
    }

    /// Returns how many processors sleep, and how many search.
    pub(super) fn idle_counts(&self) -> (usize, usize) {
        let idle = &self.idle;
        (idle.sleeping() as usize, idle.searching() as usize)
    }

    pub(super) fn cancel_all(&'static self, at: &'static Location<'static>) {
        self.cancelled.give(at);
        // The records are looked at after this; partner: the fence in `spawn_green`.
        kernel_thread::barrier();
        let own = Records::all().filter(|green| green.is_of(self));
        cancel::interrupt_each(own.map(Green::interrupts));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// The signals that can preempt, for a message.
pub(super) fn accepted_signals() -> String {
    let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
    format!(
        "the number of a real-time signal that the program does not use, from {first} to {last}"
    )
}

/// Returns whether `signal` can preempt.
pub(super) fn check_signal(signal: i32) -> io::Result<()> {
    let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
    if !(first..=last).contains(&signal) {
        return Err(invalid(format!(
            "preemption signal {signal}: accepted is a real-time signal, {first} to {last}"
        )));
    }
    if !is_free(signal) && !signals::is_reserved(signal) {
        return Err(invalid(format!(
            "preemption signal {signal}: the program has a handler for it; accepted is one that is free"
        )));
    }
    Ok(())
}

/// Whether the program leaves the signal alone, and it can be sent. Whoever has started it may let it ignore any.
fn is_free(signal: i32) -> bool {
    signal::is_unhandled(signal, !signals::are_ignored(signal)) && signal::is_known(signal)
}

/// Lets reports see the stacks of kernel threads that run. Without it they see less: an error is none of the
/// caller's. Nor is it tried beside a sanitizer, which delivers signals when it likes.
pub(super) fn allow_samples() {
    if sanitizer::unsupported().is_none()
        && hold::SIGNAL.load(Ordering::Relaxed) == 0
        && let Ok(signal) = choose_signal()
    {
        let _ = signals::install_preemption(signal);
    }
}

/// Chooses a real-time signal: the one with which another runtime preempts, or else the highest
/// that is free.
fn choose_signal() -> io::Result<i32> {
    let candidates = || (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev();
    candidates()
        .find(|&signal| signals::is_reserved(signal))
        .or_else(|| candidates().find(|&signal| is_free(signal)))
        .ok_or_else(|| {
            io::Error::other("every real-time signal has a handler: none is left to preempt with")
        })
}
