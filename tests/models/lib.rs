//! Models of the library's protocols, checked exhaustively up to a stated bound.
//!
//! - `library/` is what the protocol files (the library's own sources, compiled here with the model
//!   checker's atomics) find where the library's modules would be;
//! - a *model* is a handful of threads that use a protocol as the library does, and say what must
//!   hold: one file a protocol;
//! - the *mutants* (listed in `mutants/`) are copies of the sources, or of the model where an
//!   obligation lies with the protocol's user, with one thing weakened. Each must fail, in the way
//!   predicted: that shows that the model can see the error, and that the thing is needed.
//!
//! To add a protocol:
//! 1. In its source take atomics and cells from `crate::atomic`, wrap a constructor in `const_fn!`,
//!    and set constants that multiply states (spins) by `cfg!(greenthread_model)`. What it keeps in
//!    no atomic and no `Cell` the checker does not see: data belong to the model.
//! 2. Name the source in `library/` (`sync.rs`, say). If it is a part of a file, begin the part by `// ==== name ====`, and
//!    list it in `PARTS` (`build.rs`). If it imports something that is not there,
//!    add the least that stands in for it.
//! 3. Write `<protocol>.rs`: small executions, first with a bound of 2. Data that the protocol
//!    protects are `loom::cell::UnsafeCell`s; who is never woken is a deadlock, which the checker
//!    reports. Threads that wait are spawned, and do not wait for anything of the checker's. Where
//!    `check` takes too long, `check_newest` affords a higher bound; do both.
//! 4. List the models below, in `build.rs` the sources, in `mutants/` the mutants: for each ordering, and
//!    for each thing that the header's invariants say, one that lacks it.
//!
//! The bound is the number of preemptions (switches away from a thread that could go on) in one
//! execution; None is no bound. It stands beside each model; `MODEL_PREEMPTIONS=n` in the
//! environment sets it for all. `MODEL_QUICK=1` lowers it to 1 where it is higher, for `.ci/run`: but not for
//! mutants, which fail early. `.ci/full` checks everything as it stands.
//!
//! What the checker does not see: its SeqCst fences also synchronise with each other, which the
//! memory model does not promise, and its failing compare-exchange always reads the newest value.
//! The compiler fence at an entry to the runtime and the monitor's `membarrier` are both modelled
//! as SeqCst fences (see `sched/processor.rs`), but in `cluster`.
#![cfg(test)]
#![allow(dead_code)]

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

// The library's modules, as far as its protocol files name them.
#[allow(unused_imports)] // its public names
#[path = "../../src/channel/mod.rs"]
mod channel;
#[path = "library/coroutine.rs"]
mod coroutine;
#[path = "library/engine.rs"]
mod engine;
#[path = "library/libc.rs"]
mod libc;
#[path = "library/sync.rs"]
mod sync;

use engine::{atomic, driver, policy, runtime, sched, sys, wait};

// What several models have in common.
mod letters;

/// Set in the process of a mutant.
const CHILD: &str = "MODEL_IN_A_CHILD";

/// Runs `model` in every interleaving with at most `bound` preemptions, or as many as the
/// environment says.
fn check(bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    explore(false, bound, model);
}

/// The same, but a load sees only the newest value, never an older one that the memory model
/// allows: far fewer executions, so that more preemptions can be afforded. Orderings count as
/// before.
fn check_newest(bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    explore(true, bound, model);
}

fn explore(newest: bool, bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let asked = std::env::var("MODEL_PREEMPTIONS").ok();
    let is_set = |name| std::env::var_os(name).is_some();
    let most = match is_set("MODEL_QUICK") && !is_set(CHILD) {
        true => 1,
        false => usize::MAX,
    };
    builder.preemption_bound = asked
        .map(|n| n.parse().expect("MODEL_PREEMPTIONS: a number"))
        .or(bound.map(|n| n.min(most)));
    builder.max_branches = 10_000; // of one execution
    atomic::NEWEST.set(newest);
    let executions = Arc::new(AtomicUsize::new(0));
    let count = executions.clone();
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        sys::begin();
        model();
    });
    let bound = builder.preemption_bound;
    eprintln!("{executions:?} executions with at most {bound:?} preemptions");
}

/// Checks that `model` fails, and with a message that contains `how`. It does so in a process of
/// its own: what a weakened protocol does to memory is not to be foreseen, and a panic while the
/// threads of a failed model are unwound ends the process. `test` is the test that calls this.
fn must_fail(test: &str, model: fn(), how: &str) {
    if std::env::var_os(CHILD).is_some() {
        return model();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let child = child.args([test, "--exact", "--nocapture"]).env(CHILD, "");
    let output = child.output().unwrap();
    assert!(!output.status.success(), "the weakened protocol passed");
    let output = String::from_utf8_lossy(&output.stderr);
    let message = output
        .lines()
        .skip_while(|line| !line.contains("panicked at"));
    let message = message.take(2).collect::<String>();
    assert!(message.contains(how), "failed in another way: {output}");
}

macro_rules! models {
    ($($protocol:ident: $($model:ident)*;)*) => {
        $(mod $protocol;)*
        // The tests, by protocol.
        mod models { $(mod $protocol { $(#[test] fn $model() { crate::$protocol::$model() })* })* }
    };
}

models! {
    park_state: wait_for_two wait_with_timeout kernel_thread_waits kernel_thread_times_out one_sees_the_other;
    interrupts: its_frame_ends it_is_notified_too another_frame_ends_too;
    scopes: it_opens_and_ends a_thread_ends a_thread_is_told two_threads_are_told two_cancel;
    ownership: enter_twice surrender migrate_away migrate_and_return assigned;
    idle: one_readier two_readiers one_retires one_appears;
    wake: woken_on_the_futex woken_from_collecting poked woken_twice gives_up_sleeping one_collects;
    post: kicked roused;
    deadlines: a_later_one an_earlier_one;
    live_count: one_ends two_end one_ends_outside two_end_outside one_is_spawned_late one_spawns_and_ends asked;
    shares: detached detached_without_result detached_beside_a_handle held_by_another;
    joinable: joined let_go claimed_by_two claimed_again;
    hiding: handlers_return the_second_handler_is_left the_first_handler_is_left both_handlers_are_left;
    places: taken_by_one taken_again_by_another taken_beside_two_changes handed_on;
    snapshot: looked_at looked_at_elsewhere looked_at_while_it_blocks named;
    turns: green_to_green kernel_to_green green_to_kernel kernel_to_kernel the_caller_changes;
    claim: two_lists two_lists_and_a_deadline;
    queue: gate baton baton_and_a_deadline;
    addresses: one_waits_at_an_address one_waits_at_two_addresses two_at_an_address two_in_a_bucket time_is_up_at_an_address
        three_events in_front comes_again moved moved_in_the_bucket moved_beside_a_waker
        moved_to_and_fro;
    mutex: excludes barging with_a_deadline starving starving_at_times;
    once: runs_once panics_once waits;
    rwlock: two_writers two_readers late late_at_times reader_gives_up downgrades
        behind_who_gives_up behind_who_downgrades;
    condvar: one_waits two_wait all_are_notified one_gives_up;
    lock: three_lock;
    local_queue: one_thief two_thieves half_is_taken;
    readiness: two_read the_end_is_behind one_gives_up_reading closed;
    registration: closed_beside_one closed_beside_two closed_before_the_record;
    watch: watched_by_two watched_with_two_items watched_beside_another_taker watched_both_ways
        watched_by_a_poller watched_for_a_time watched_and_closed watched_and_closed_when_woken
        watched_and_closed_in_time watched_and_closed_by_a_handler
        watched_and_closed_by_a_handler_beside_a_newcomer watched_and_closed_by_a_handler_in_time watched_by_two_and_closed watched_by_a_newcomer watched_and_closed_twice
        watched_and_closed_twice_without_duplicate watched_and_closed_unseen
        watched_without_duplicate watched_by_a_poller_and_closed;
    channels: bounded unbounded zero bounded_with_deadlines zero_with_deadlines last_receiver_goes;
    select: select_meets_select select_is_not_its_own_peer select_receives select_receives_from_zero
        select_sends select_beside_another select_with_a_deadline default_looks_at_one_moment
        received_right_is_given_back received_right_is_given_back_at_zero sent_right_is_given_back
        observers observers_at_zero;
}

// The mutants, one module and one test each.
include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
