//! Measures what the simulation's operations cost here, prints it as `cost` has it, and writes into
//! `docs/scaling.md` how well the simulation then foretells what is measured with one and two processors.
//!
//! What memory and the kernel cost is measured by two kernel threads, each on a CPU of its own. What
//! a switch and a thread cost is measured with work stealing on one processor, and what the simulated
//! policy costs there by itself is subtracted; everything else is foretold, not fitted.

mod hardware;
mod runtime;

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{Ordering::*, fence};
use std::thread;
use std::time::{Duration, Instant};

use greenthread::policy as real;
use greenthread::runtime::Runtime;
use greenthread_simulator::contenders;
use greenthread_simulator::cost::{Costs, FREE, LINES};
use greenthread_simulator::document::{Table, round};

use hardware::{contended, each, futex_wake, locked, pin, ping_pong, wake};
use runtime::{
    KINDS, Kind, REAL, locked_in_virtual_time, measured, modified_in_virtual_time, simulated,
};

/// Each figure is the lower quartile of so many measurements, taken while the CPUs are ours: what
/// disturbs makes longer.
const ROUNDS: usize = 20;
/// How long undisturbed ones are waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const PROBE: Duration = Duration::from_millis(1);
pub(crate) const LOCKINGS: u64 = 100_000;

#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Apart<T>(pub(crate) T);

fn main() {
    let costs = fit();
    println!("{costs:#?}");
    compare(&costs);
}

fn fit() -> Costs {
    let (round_trip, with_lines) = (ping_pong(0), ping_pong(LINES));
    let modify = typical(|| each(1_000_000, |word| _ = word.fetch_add(1, Relaxed)));
    let (transfer, keep) = lines(round_trip, modify, contended());
    let system_call = typical(|| each(100_000, futex_wake));
    let (call, latency) = wake();
    let mut costs = Costs {
        hit: typical(|| {
            each(1_000_000, |word| {
                word.store(word.load(Relaxed) + 1, Relaxed)
            })
        }) / 2.0,
        modify,
        fence: typical(|| each(1_000_000, |_| fence(SeqCst))),
        transfer,
        across: transfer,
        keep,
        pause: typical(|| each(1_000_000, |_| spin_loop())),
        system_call,
        wake_call: (call - system_call).max(0.0),
        wake_latency: (latency - system_call).max(0.0),
        migration: (with_lines - round_trip).max(0.0) / 2.0,
        ticks: typical(|| each(1_000_000, |_| _ = black_box(ticks()))),
        ..FREE
    };
    let alone = |kind, costs: &Costs| simulated(kind, &*(contenders::ALL[0].make)(), 1, costs);
    let stealing = || Runtime::builder().policy(real::WorkStealing::new());
    costs.switch = measured(Kind::Yields, stealing(), 1) - alone(Kind::Yields, &costs);
    costs.thread = measured(Kind::Chains, stealing(), 1) - alone(Kind::Chains, &costs);
    costs
}

/// Writes what is measured and what is foretold into `docs/scaling.md`.
fn compare(costs: &Costs) {
    let titles = [
        "measured, 1",
        "simulated",
        "ratio",
        "measured, 2",
        "simulated",
        "ratio",
    ];
    let mut table = Table::new(
        "work",
        ["policy"].into_iter().chain(titles).map(String::from),
    );
    let mut row = |work: &str, policy: &str, pairs: [Option<(f64, f64)>; 2]| {
        let figures = pairs.into_iter().flat_map(|pair| match pair {
            None => ["", "", ""].map(String::from),
            Some((measured, simulated)) => {
                let ratio = format!("{:.2}", simulated / measured);
                [round(measured), round(simulated), ratio]
            }
        });
        table.row(work, [policy.to_string()].into_iter().chain(figures));
    };
    for kind in KINDS {
        for (contender, policy) in contenders::ALL.iter().enumerate() {
            let pairs = [1, 2].map(|count| {
                let measured = measured(kind, REAL[contender](Runtime::builder()), count);
                Some((measured, simulated(kind, &*(policy.make)(), count, costs)))
            });
            row(&format!("{kind:?}").to_lowercase(), policy.name, pairs);
        }
    }
    let modified = (contended(), modified_in_virtual_time(costs));
    row("one word", "", [None, Some(modified)]);
    let locked = |count| Some((locked(count), locked_in_virtual_time(count, costs)));
    row("one lock", "", [1, 2].map(locked));
    table.put("validation");
}

/// The lower quartile of what `measure` finds while the CPUs are this process's, or, if the machine is
/// too busy for that, of all.
pub(crate) fn typical(mut measure: impl FnMut() -> f64) -> f64 {
    let (mut all, mut undisturbed) = (Vec::new(), Vec::new());
    let start = Instant::now();
    let mut were_free = are_cpus_free();
    while undisturbed.len() < ROUNDS && start.elapsed() < PATIENCE {
        let figure = measure();
        let are_free = are_cpus_free();
        all.push(figure);
        if were_free && are_free {
            undisturbed.push(figure);
        }
        were_free = are_free;
    }
    if undisturbed.len() < ROUNDS / 3 {
        let (few, of) = (undisturbed.len(), all.len());
        eprintln!("a busy machine: {few} of {of} measurements were undisturbed");
        return quartile(&mut all);
    }
    quartile(&mut undisturbed)
}

/// Whether a thread on each of two CPUs gets all of it.
fn are_cpus_free() -> bool {
    let is_free = |cpu| {
        pin(cpu);
        let start = Instant::now();
        let before = cpu_time();
        while start.elapsed() < PROBE {
            spin_loop();
        }
        cpu_time() - before > PROBE.as_nanos() as u64 * 97 / 100
    };
    thread::scope(|scope| {
        let both = [0, 1].map(|cpu| scope.spawn(move || is_free(cpu)));
        both.map(|one| one.join().unwrap()) == [true; 2]
    })
}

fn cpu_time() -> u64 {
    // SAFETY: a plain structure, which the call fills in.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn quartile(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 4]
}

fn ticks() -> u64 {
    // SAFETY: reads a register; every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// What a transfer takes, and how long a line is kept, so that the simulated machine has these two
/// figures: one way of a baton is two transfers and one keeping (a writer takes the line away from the
/// reader, who then fetches it); and who fetches a contended line modifies it as often as it fits.
fn lines(round_trip: f64, modify: f64, contended: f64) -> (f64, f64) {
    let one_way = round_trip / 2.0;
    let keep = ((one_way / 2.0 - contended) / (contended / modify - 0.5)).max(0.0);
    ((one_way - keep) / 2.0, keep)
}
