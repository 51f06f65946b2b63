//! The parts of a runtime that only green threads need: preparing the process once, choosing a
//! signal, starting a cluster, and reading its figures.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::options::invalid;
use super::start::Plan;
use super::{Backend, BlockedCall, BlockedPlace, Driver, Metrics, ProcessorMetrics};
use crate::engine::atomic::Ordering;
use crate::engine::inspect::hold;
use crate::engine::policy::Policy;
use crate::engine::runtime::handle;
use crate::engine::sched::cluster::Kind;
use crate::engine::sched::{
    Blocked, BlockedAt, Cluster, Config, Counter, Processor, current, handlers, preempt, setxid,
    thread_stack,
};
use crate::engine::sys::{libraries, sanitizer, signal, syscalls};
use crate::engine::{driver, stack, tls};

/// Starts a cluster.
pub(super) fn start(plan: Plan, policy: Box<dyn Policy>, is_users: bool) -> io::Result<Backend> {
    let signal = match plan.signal {
        Some(signal) => signal,
        None => choose_signal()?,
    };
    handlers::reserve(signal);
    preempt::install(signal)?;
    let config = Config {
        processors: plan.processors,
        follows_quota: plan.follows_quota,
        stack_size: plan.stack_size,
        time_slice: plan.time_slice,
        signal,
        max_kernel_threads: plan.max_kernel_threads,
        driver: driver::choose(plan.driver.map(Driver::kind)),
        ideas: plan.ideas,
    };
    Cluster::start(config, policy, is_users).map(Backend::Green)
}

/// Prepares the process for green threads, once. The inner error says why they are not possible
/// here at all. The outer error says that no kernel thread can be made now; the question then stays
/// open.
pub(super) fn prepare(default_stack: usize) -> io::Result<&'static Result<(), String>> {
    static PREPARED: OnceLock<Result<(), String>> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if PREPARED.get().is_none() {
        let prepared = prepare_process(default_stack);
        if prepared.is_err() {
            // Perhaps because of that.
            drop(std::thread::Builder::new().spawn(|| ())?.join());
        }
        PREPARED.get_or_init(|| prepared);
    }
    Ok(PREPARED.get().expect("stored above"))
}

fn prepare_process(default_stack: usize) -> Result<(), String> {
    // Beside one the crate has none of libc's names.
    if let Some(name) = sanitizer::stranger() {
        return Err(format!(
            "{name} is in the program, and knows kernel threads alone"
        ));
    }
    if !libraries::libcs_names_lead_here() {
        return Err(
            "calls of libc go past the crate: the library that it is in was loaded after libc"
                .into(),
        );
    }
    sanitizer::learn()?;
    tls::init()?;
    current::learn()?;
    if !crate::engine::sys::kernel_thread::register_barrier() {
        return Err("the kernel has no expedited membarrier".into());
    }
    if !crate::engine::sys::signal::has_alternate_stacks() {
        return Err("the system refuses stacks for signal handlers (sigaltstack)".into());
    }
    stack::init(thread_stack::reserve(), default_stack).map_err(|error| error.to_string())?;
    stack::overflow::install(thread_stack::name_of);
    setxid::wrap();
    handle::install_panic_hook();
    Ok(())
}

impl Driver {
    fn kind(self) -> Kind {
        match self {
            Driver::Epoll => Kind::Epoll,
            Driver::IoUring => Kind::Uring,
        }
    }
}

/// Returns how the threads of a cluster wait for descriptors.
pub(super) fn driver_of(cluster: &Cluster) -> Driver {
    match cluster.config.driver {
        Kind::Uring => Driver::IoUring,
        Kind::Epoll | Kind::Mixed => Driver::Epoll,
    }
}

/// Returns the figures of a cluster; see [`Metrics`].
pub(super) fn metrics_of(cluster: &'static Cluster) -> Metrics {
    let sum = |count: fn(&Processor) -> &Counter| {
        cluster.processors().map(|p| count(p).get()).sum::<u64>()
    };
    Metrics {
        switches: sum(|p| &p.switches) + cluster.detached_switches.get(),
        steals: sum(|p| &p.steals),
        steal_attempts: sum(|p| &p.steal_attempts),
        preemptions: sum(|p| &p.preemptions) + cluster.detached_preemptions.get(),
        hand_offs: cluster.hand_offs.get(),
        parked_calls: sum(|p| &p.parked_calls),
        blocked_calls: cluster
            .blocked_calls
            .most_frequent()
            .into_iter()
            .map(blocked_call)
            .collect(),
        spawns: sum(|p| &p.counts.spawned) + cluster.live_count.outside.spawned.get(),
        wake_ups: cluster.wake_ups.get(),
        live_threads: cluster.live(),
        kernel_threads: cluster.workers.load(Ordering::Relaxed),
        parked_kernel_threads: {
            let _off = current::preemption_off();
            cluster.spare_count()
        },
        global_queue_len: cluster.policy.len(None),
        processors: cluster
            .processors()
            .filter(|p| !p.is_retired())
            .map(|p| ProcessorMetrics {
                queue_len: cluster.policy.len(Some(p.index)),
                switches: p.switches.get(),
            })
            .collect(),
        ..Metrics::default()
    }
}

/// Returns how many processors sleep, and how many search.
pub(super) fn idle_of(cluster: &Cluster) -> (usize, usize) {
    let idle = &cluster.idle;
    (idle.sleeping() as usize, idle.searching() as usize)
}

pub(super) fn is_closed(cluster: &Cluster) -> bool {
    cluster.stopping.load(Ordering::Relaxed)
}

fn blocked_call(blocked: Blocked) -> BlockedCall {
    let place = |at: BlockedAt| BlockedPlace {
        spawned_at: at.spawned_at,
        count: at.count,
        time: Duration::from_nanos(at.nanos),
    };
    BlockedCall {
        name: syscalls::name(blocked.call),
        count: blocked.count,
        places: blocked.places.into_iter().map(place).collect(),
    }
}

/// The signals that can preempt, for a message.
pub(super) fn accepted_signals() -> String {
    format!(
        "the number of a real-time signal that the program does not use, from {} to {}",
        libc::SIGRTMIN(),
        libc::SIGRTMAX()
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
    if !is_free(signal) && !handlers::is_reserved(signal) {
        return Err(invalid(format!(
            "preemption signal {signal}: the program has a handler for it; accepted is one that is free"
        )));
    }
    Ok(())
}

/// Whether the program leaves the signal alone. Whoever has started it may let it ignore any.
fn is_free(signal: i32) -> bool {
    signal::is_free(signal, !handlers::are_ignored(signal))
}

/// Lets reports see the stacks of kernel threads that run. Without it they see less: an error is none of the
/// caller's. Nor is it tried beside a sanitizer, which delivers signals when it likes.
pub(super) fn allow_samples() {
    if sanitizer::stranger().is_none()
        && !hold::is_possible()
        && let Ok(signal) = choose_signal()
    {
        let _ = preempt::install_for_samples(signal);
    }
}

/// Chooses a real-time signal: the one with which another runtime preempts, or else the highest
/// that is free.
fn choose_signal() -> io::Result<i32> {
    let candidates = || (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev();
    candidates()
        .find(|&signal| handlers::is_reserved(signal))
        .or_else(|| candidates().find(|&signal| is_free(signal)))
        .ok_or_else(|| {
            io::Error::other("every real-time signal has a handler: none is left to preempt with")
        })
}
