//! The parts of a runtime that only green threads need: preparing the process once, choosing a
//! signal, starting a cluster, and reading its figures.

use core::panic::Location;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::metrics::{BlockedCall, BlockedPlace, Metrics, ProcessorMetrics};
use super::options::{Driver, invalid};
use super::panic_hook;
pub(super) use super::spawn::start as spawn;
use crate::engine::atomic::Ordering;
use crate::engine::inspect::hold;
use crate::engine::sched::cluster::Kind;
use crate::engine::sched::{Cluster, Counter, Processor, current, signals, start};
use crate::engine::sys::{kernel_thread, libraries, sanitizer, signal};
use crate::engine::{stack, tls};

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
        // Perhaps because of that.
        drop(std::thread::Builder::new().spawn(|| ())?.join());
    }
    Ok(prepared.insert(now).clone())
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

    /// Returns the figures of a cluster; see [`Metrics`].
    pub(super) fn metrics(&self) -> Metrics {
        let sum = |count: fn(&Processor) -> &Counter| {
            self.processors().map(|p| count(p).get()).sum::<u64>()
        };
        Metrics {
            switches: sum(|p| &p.switches) + self.detached_switches.get(),
            steals: sum(|p| &p.steals),
            steal_attempts: sum(|p| &p.steal_attempts),
            preemptions: sum(|p| &p.preemptions) + self.detached_preemptions.get(),
            hand_offs: self.hand_offs.get(),
            parked_calls: sum(|p| &p.parked_calls),
            blocked_calls: {
                let places = self.blocked_calls.used();
                blocked_calls(places.map(|place| {
                    let time = Duration::from_nanos(place.nanos.get());
                    (place.call(), place.spawned_at(), place.count.get(), time)
                }))
            },
            spawns: sum(|p| &p.counts.spawned) + self.live_count.outside.spawned.get(),
            wake_ups: self.wake_ups.get(),
            live_threads: self.live(),
            kernel_threads: self.workers.load(Ordering::Relaxed),
            parked_kernel_threads: {
                let _off = current::preemption_off();
                self.spare_count()
            },
            global_queue_len: self.policy.len(None),
            processors: self
                .processors()
                .filter(|p| !p.is_retired())
                .map(|p| ProcessorMetrics {
                    queue_len: self.policy.len(Some(p.index)),
                    switches: p.switches.get(),
                })
                .collect(),
            ..Metrics::default()
        }
    }

    /// Returns how many processors sleep, and how many search.
    pub(super) fn idle_counts(&self) -> (usize, usize) {
        let idle = &self.idle;
        (idle.sleeping() as usize, idle.searching() as usize)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// A call, where threads were spawned that it has blocked, how often, and for how long.
type Blocked = (i64, Option<&'static Location<'static>>, u64, Duration);

/// Returns the calls in which threads were blocked most often, in that order, and the most frequent places of each.
fn blocked_calls(blocked: impl Iterator<Item = Blocked>) -> Vec<BlockedCall> {
    let mut calls: Vec<(i64, BlockedCall)> = Vec::new();
    for (number, spawned_at, count, time) in blocked {
        let known = calls.iter().position(|call| call.0 == number);
        let known = known.unwrap_or_else(|| {
            calls.push((number, BlockedCall::default()));
            calls.len() - 1
        });
        let call = &mut calls[known].1;
        call.count += count;
        // A place in generic code has several addresses.
        let mut places = call.places.iter_mut();
        match places.find(|known| known.spawned_at == spawned_at) {
            Some(known) => {
                known.count += count;
                known.time += time;
            }
            None => call.places.push(BlockedPlace {
                spawned_at,
                count,
                time,
            }),
        }
    }
    let calls = most_frequent(calls, |(_, call)| call.count);
    let shown = calls.into_iter().map(|(number, mut call)| {
        call.name = kernel_thread::call_name(number);
        call.places = most_frequent(call.places, |place| place.count);
        call
    });
    shown.collect()
}

/// Those of the highest counts, the most frequent first.
// Items are few, and two more kinds of sorts would be 10 KB of every program.
fn most_frequent<T>(items: Vec<T>, count: impl Fn(&T) -> u64) -> Vec<T> {
    const SHOWN: usize = 10;
    let mut shown = Vec::new();
    for item in items {
        let place = shown.partition_point(|other| count(other) >= count(&item));
        if place < SHOWN {
            shown.insert(place, item);
            shown.truncate(SHOWN);
        }
    }
    shown
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
    if sanitizer::stranger().is_none()
        && !hold::is_possible()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A place with two addresses, as a place in generic code has: it is told of once.
    #[test]
    fn equal_places_are_one() {
        let here = Location::caller();
        let again: &'static Location<'static> = Box::leak(Box::new(*here));
        let time = Duration::from_millis(1);
        let rows = [(here, 3), (again, 4)];
        let rows = rows.map(|(at, count)| (libc::SYS_flock, Some(at), count, time));
        let told = blocked_calls(rows.into_iter());
        let [lock] = &told[..] else {
            panic!("{} calls", told.len())
        };
        assert_eq!((lock.name.as_str(), lock.count), ("flock", 7));
        let [place] = &lock.places[..] else {
            panic!("{} places", lock.places.len())
        };
        assert_eq!((place.spawned_at, place.count), (Some(here), 7));
        assert_eq!(place.time, 2 * time);
    }
}
