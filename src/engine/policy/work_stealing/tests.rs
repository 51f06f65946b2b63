//! Tests of the round: which threads are in it, that none has more turns because fewer others are
//! in it, and that preempted threads go on.

use super::*;
use crate::engine::policy::aging::AGING;
use crate::engine::policy::stand_ins::{dismiss, next, seats, stand_ins};

#[test]
fn yielding_threads_have_even_shares_wherever_they_begin() {
    const BEGIN: [usize; 2] = [1, 9];
    let (policy, seats) = (WorkStealing::new(), seats(2));
    policy.resize(2);
    let mut threads = stand_ins(10);
    if threads.is_empty() {
        return;
    }
    for (seat, count) in seats.iter().zip(BEGIN) {
        for thread in threads.drain(..count) {
            policy.ready(thread, Readied::Yielded, Some(seat));
        }
    }
    let mut turns = [0; 10];
    for _ in 0..200_000 {
        // Both processors run a thread at once.
        let running = [0, 1].map(|processor| next(&policy, &seats[processor]));
        for (seat, running) in seats.iter().zip(running) {
            if let Some((index, thread)) = running {
                turns[index as usize] += 1;
                policy.ready(thread, Readied::Yielded, Some(seat));
            }
        }
    }
    eprintln!("turns: {turns:?}");
    seats.iter().for_each(|seat| policy.leave(seat));
    dismiss(core::iter::from_fn(|| policy.next(&seats[0], Others::Busy)).map(|next| next.thread));
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert!(most * 4 < least * 5, "one processor's had more: {turns:?}");
}

#[test]
fn one_yield_of_64_times_the_processors_goes_by_way_of_all() {
    for processors in [1, 2, 8] {
        let (policy, seat) = (WorkStealing::new(), &seats(1)[0]);
        policy.resize(processors);
        let Some(mut thread) = stand_ins(1).pop() else {
            return;
        };
        let mut globally = Vec::new();
        for turn in 1..=64 * processors * 5 {
            policy.ready(thread, Readied::Yielded, Some(seat));
            if policy.len(None) != 0 {
                globally.push(turn);
            }
            thread = policy.next(seat, Others::Busy).unwrap().thread;
        }
        dismiss([thread]);
        let expected: Vec<_> = (0..5).map(|i| 64 + i * 64 * processors).collect();
        assert_eq!(globally, expected, "{processors} processors");
    }
}

#[test]
fn who_is_preempted_before_a_round_joins_it_out_of_reach() {
    let (policy, seat) = (WorkStealing::new(), &seats(1)[0]);
    policy.resize(1);
    let mut threads = stand_ins(3).into_iter();
    let (Some(first), Some(second), Some(third)) = (threads.next(), threads.next(), threads.next())
    else {
        return;
    };
    let lens = || {
        [
            policy.out_of_reach(0),
            policy.len(Some(0)),
            policy.len(None),
        ]
    };
    policy.ready(first, Readied::Preempted, Some(seat));
    let no_round = lens();
    policy.ready(second, Readied::Yielded, Some(seat));
    policy.ready(third, Readied::Preempted, Some(seat));
    let round = lens();
    // Where others have nothing to do, the round is within their reach.
    let running = policy.next(seat, Others::Idle).unwrap().thread;
    let published = lens();
    let rest = core::iter::from_fn(|| policy.next(seat, Others::Busy)).map(|next| next.thread);
    dismiss(rest.chain([running]));
    assert_eq!(no_round, [0, 0, 1]);
    assert_eq!(round, [2, 2, 1]);
    assert_eq!(published, [0, 1, 1]);
}

/// Three threads have slept and come back, all at one processor, and from then on compute as the
/// others do.
#[test]
fn a_round_in_which_all_compute_dissolves() {
    const THREADS: u64 = 16;
    /// A whole time slice, in twentieths of it.
    const WHOLE: u64 = 20;
    let (policy, seats) = (WorkStealing::new(), seats(2));
    policy.resize(2);
    let mut threads = stand_ins(THREADS).into_iter();
    if threads.len() == 0 {
        return;
    }
    for thread in threads.by_ref().take(3) {
        policy.ready(thread, Readied::Arrived, Some(&seats[1]));
    }
    for thread in threads {
        policy.ready(thread, Readied::Preempted, None);
    }
    let mut had = [0; THREADS as usize];
    let mut running = [0, 1].map(|processor| next(&policy, &seats[processor]).unwrap());
    let mut times = [0, 0];
    while times[0] < 2_000 * WHOLE {
        let at = usize::from(times[1] < times[0]);
        let seat = &seats[at];
        let slice = match policy.out_of_reach(at) {
            0 => WHOLE,
            _ => 1,
        };
        times[at] += slice;
        had[running[at].0 as usize] += slice;
        let goes_on = |(_, thread)| {
            policy.ready(thread, Readied::Preempted, Some(seat));
            next(&policy, seat).unwrap()
        };
        running = match (running, at) {
            ([this, other], 0) => [goes_on(this), other],
            ([other, this], _) => [other, goes_on(this)],
        };
    }
    let round = policy.out_of_reach(1);
    seats.iter().for_each(|seat| policy.leave(seat));
    let rest = core::iter::from_fn(|| next(&policy, &seats[0]));
    dismiss(running.into_iter().chain(rest).map(|(_, thread)| thread));
    eprintln!("time: {had:?}");
    assert_eq!(round, 0, "out of reach");
    let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
    assert!(most * 4 < least * 5, "some had more: {had:?}");
}

/// Beside a flood of fresh threads that use up their slices, every other turn is a preempted
/// thread's.
#[test]
fn who_computes_goes_on_beside_fresh_ones_that_compute() {
    let (policy, seat) = (WorkStealing::new(), &seats(1)[0]);
    policy.resize(1);
    let mut threads = stand_ins(8).into_iter();
    if threads.len() == 0 {
        return;
    }
    for thread in threads.by_ref().take(2) {
        policy.ready(thread, Readied::Preempted, Some(seat));
    }
    for thread in threads {
        policy.ready(thread, Readied::Spawned, None);
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        let (index, thread) = next(&policy, seat).unwrap();
        order.push(index);
        // A time slice.
        std::thread::sleep(std::time::Duration::from_nanos(AGING));
        policy.ready(thread, Readied::Preempted, Some(seat));
    }
    dismiss(core::iter::from_fn(|| next(&policy, seat)).map(|(_, thread)| thread));
    assert_eq!(order, [2, 0, 3, 1, 4, 2]);
}
