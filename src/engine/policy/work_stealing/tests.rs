//! Tests of shares: no thread has more turns because fewer others are where it is; of the round: which
//! threads are in it, and that preempted threads go on; of the overflow behind the queue; and of the global queue:
//! whom its threads keep waiting.

mod parts;
mod turns;

use super::*;
use crate::engine::policy::stand_ins::{dismiss, next, seats, stand_ins};
use crate::engine::policy::tuning::{AGING, MIXING_INTERVAL};
use crate::engine::sched::Green;

#[test]
fn yielding_threads_have_even_shares_wherever_they_begin() {
    have_even_shares_wherever_they_begin(Readied::Yielded);
}

/// As rings of threads do, of which each wakes its neighbour.
#[test]
fn woken_threads_have_even_shares_wherever_they_begin() {
    have_even_shares_wherever_they_begin(Readied::Woken);
}

fn have_even_shares_wherever_they_begin(how: Readied) {
    const BEGIN: [usize; 2] = [1, 9];
    let (policy, seats) = (WorkStealing::new(), seats(2));
    policy.resize(2);
    let mut threads = stand_ins(10);
    if threads.is_empty() {
        return;
    }
    for (seat, count) in seats.iter().zip(BEGIN) {
        for thread in threads.drain(..count) {
            policy.ready(thread, how, Some(seat));
        }
    }
    let mut turns = [0; 10];
    for _ in 0..200_000 {
        // Both processors run a thread at once.
        let running = [0, 1].map(|processor| next(&policy, &seats[processor]));
        for (seat, running) in seats.iter().zip(running) {
            if let Some((index, thread)) = running {
                turns[index as usize] += 1;
                policy.ready(thread, how, Some(seat));
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
fn threads_that_yield_change_processors_on_request() {
    for processors in [2, 8] {
        let (policy, seats) = (WorkStealing::new(), seats(2));
        policy.resize(processors);
        let mut threads = stand_ins(4).into_iter();
        let (Some(lonely), Some(first)) = (threads.next(), threads.next()) else {
            return;
        };
        for thread in threads {
            policy.ready(thread, Readied::Yielded, Some(&seats[0]));
        }
        let lens = || [policy.len(Some(0)), policy.len(Some(1)), policy.len(None)];
        let turn = |at: usize, thread| {
            policy.ready(thread, Readied::Yielded, Some(&seats[at]));
            policy.next(&seats[at], Others::Busy).unwrap().thread
        };
        // Nobody asks, so no thread goes away.
        let mut running = first;
        for _ in 0..MIXING_INTERVAL {
            running = turn(0, running);
        }
        assert_eq!(lens(), [2, 0, 0], "{processors} processors");
        // The other processor has asked all its partners after so many yields.
        let mut lonely = lonely;
        for _ in 0..(MIXING_INTERVAL as usize + 7) * processors {
            lonely = turn(1, lonely);
        }
        let mut turns = 0_u32;
        while lens() == [2, 0, 0] {
            running = turn(0, running);
            turns += 1;
        }
        assert_eq!(lens(), [1, 1, 0], "{processors} processors");
        assert!(turns <= MIXING_INTERVAL + 7, "after {turns} yields");
        // It comes to the other processor before its overflow's turn is over.
        let mut indices = Vec::new();
        for _ in 0..61 {
            indices.push(lonely.priority().get());
            lonely = turn(1, lonely);
        }
        indices.sort_unstable();
        indices.dedup();
        assert_eq!(indices.len(), 2, "{processors} processors");
        seats.iter().for_each(|seat| policy.leave(seat));
        let rest = core::iter::from_fn(|| policy.next(&seats[0], Others::Busy));
        dismiss(rest.map(|next| next.thread).chain([running, lonely]));
    }
}

/// Holds the slots of a thief that is not run in the middle, until the returned function is called.
fn stalled_thief(queue: &LocalQueue) -> impl FnOnce() -> Vec<&'static Green> {
    let (before, count) = queue.claim(HALF).expect("nothing to steal");
    move || {
        let numbers = (0..count).map(|i| before.first.wrapping_add(i));
        let taken = numbers.filter_map(|n| queue.slot(n).get()).collect();
        queue.release(before);
        taken
    }
}

/// A thief keeps the slots of all that is taken while it copies, however long the system does not run
/// it: the queue is empty, and has space for few threads or none.
#[test]
fn no_thread_is_lost_while_a_thief_stalls() {
    const SLOTS: u64 = 2 * HALF as u64;
    const OUTSIDE: u64 = 4 * SLOTS;
    for used in [0, 1, HALF as u64, SLOTS - 3, SLOTS - 2] {
        let policy = WorkStealing::new().next_slot(false);
        let seats = seats(1);
        policy.resize(1);
        let mut threads = stand_ins(2 + used + OUTSIDE).into_iter();
        if threads.len() == 0 {
            return;
        }
        let mut own = |count| {
            for thread in threads.by_ref().take(count as usize) {
                policy.ready(thread, Readied::Woken, Some(&seats[0]));
            }
        };
        own(2);
        let queue = &policy.locals.find(0).unwrap().queue;
        let thief = stalled_thief(queue);
        own(used);
        for thread in threads {
            policy.ready(thread, Readied::Spawned, None);
        }
        let run = |count| {
            let threads = core::iter::from_fn(|| next(&policy, &seats[0])).take(count);
            let (indices, threads): (Vec<_>, Vec<_>) = threads.unzip();
            dismiss(threads);
            indices
        };
        let mut came = run(used as usize + 1 + OUTSIDE as usize / 2);
        let stolen = thief().into_iter().map(Ready::new);
        came.extend(stolen.map(|thread| {
            let index = thread.priority().get();
            dismiss([thread]);
            index
        }));
        came.extend(run(usize::MAX));
        came.sort_unstable();
        assert!(came.into_iter().eq(0..2 + used + OUTSIDE), "{used} used");
    }
}

/// The queue has no space for the round either, which another processor is to find in the queue.
#[test]
fn a_round_goes_on_while_a_thief_stalls() {
    let (policy, seat) = (WorkStealing::new(), &seats(1)[0]);
    policy.resize(1);
    let mut threads = stand_ins(4).into_iter();
    let Some(mut running) = threads.next() else {
        return;
    };
    for thread in threads {
        policy.ready(thread, Readied::Woken, Some(seat));
    }
    let thief = stalled_thief(&policy.locals.get(0).queue);
    for _ in 0..4 * HALF {
        policy.ready(running, Readied::Yielded, Some(seat));
        let next = policy.next(seat, Others::Idle);
        running = next.expect("a thread that has yielded").thread;
    }
    let stolen = thief().into_iter().map(Ready::new);
    let own = core::iter::from_fn(|| policy.next(seat, Others::Idle)).map(|next| next.thread);
    let all = stolen.chain(own).chain([running]);
    let all: Vec<_> = all.collect();
    let count = all.len();
    dismiss(all);
    assert_eq!(count, 4);
}

/// One more turn of `thread`, which yields; returns the next one.
fn yields(policy: &WorkStealing, seat: &Seat, thread: Ready) -> Ready {
    policy.ready(thread, Readied::Yielded, Some(seat));
    policy.next(seat, Others::Busy).unwrap().thread
}

/// Two processors with threads that yield, two and one. The second has asked for another one. Returns those that
/// run, or nothing where there are no stand-ins.
fn one_has_asked(policy: &WorkStealing, seats: &[Seat]) -> Option<[Ready; 2]> {
    policy.resize(2);
    let mut threads = stand_ins(3).into_iter();
    let (running, waits) = (threads.next()?, threads.next()?);
    policy.ready(waits, Readied::Yielded, Some(&seats[0]));
    let mut lonely = threads.next()?;
    for _ in 0..MIXING_INTERVAL {
        lonely = yields(policy, &seats[1], lonely);
    }
    Some([running, lonely])
}

/// How many threads wait at each of the two processors and in the global queue. Ends all, and those that run.
fn where_they_wait(policy: &WorkStealing, seats: &[Seat], running: [Ready; 2]) -> [usize; 3] {
    let lens = [Some(0), Some(1), None].map(|processor| policy.len(processor));
    policy.leave(&seats[0]);
    let rest = core::iter::from_fn(|| policy.next(&seats[0], Others::Busy));
    dismiss(rest.map(|next| next.thread).chain(running));
    lens
}

#[test]
fn no_thread_goes_to_a_processor_that_has_left() {
    let (policy, seats) = (WorkStealing::new(), seats(2));
    let Some([mut running, lonely]) = one_has_asked(&policy, &seats) else {
        return;
    };
    policy.leave(&seats[1]);
    for _ in 0..1000 {
        running = yields(&policy, &seats[0], running);
    }
    assert_eq!(
        where_they_wait(&policy, &seats, [running, lonely]),
        [1, 0, 0]
    );
}

/// A processor asks for a thread, goes to sleep, and goes out of use. It may get one before, but does not keep it.
#[test]
fn no_thread_stays_at_a_processor_that_goes_out_of_use_while_it_is_idle() {
    for out_of_use_first in [true, false] {
        let (policy, seats) = (WorkStealing::new(), seats(2));
        let Some([mut running, lonely]) = one_has_asked(&policy, &seats) else {
            return;
        };
        if out_of_use_first {
            policy.resize(1);
        }
        for _ in 0..MIXING_INTERVAL {
            running = yields(&policy, &seats[0], running);
        }
        let kept = policy.len(Some(1));
        policy.resize(1);
        let lens = where_they_wait(&policy, &seats, [running, lonely]);
        match out_of_use_first {
            true => assert_eq!((kept, lens), (0, [1, 0, 0])),
            false => assert_eq!((kept, lens), (1, [0, 0, 1])),
        }
    }
}

/// A processor asks for a thread and goes to sleep. Without stealing no other one would come for a thread that
/// is handed over to it, and nobody would wake it.
#[test]
fn without_stealing_no_thread_goes_to_a_processor_that_sleeps() {
    for is_handed_over in [true, false] {
        let policy = WorkStealing::new().stealing(is_handed_over);
        let seats = seats(2);
        let Some([mut running, lonely]) = one_has_asked(&policy, &seats) else {
            return;
        };
        for _ in 0..MIXING_INTERVAL {
            running = yields(&policy, &seats[0], running);
        }
        let handed_over = policy.len(Some(1));
        policy.leave(&seats[1]);
        where_they_wait(&policy, &seats, [running, lonely]);
        assert_eq!(handed_over, usize::from(is_handed_over));
    }
}

/// A processor makes many more threads than its queue holds. They stay within reach of thieves, who take
/// half a queue at a time, and each comes out once.
#[test]
fn what_a_queue_cannot_hold_stays_where_thieves_find_it() {
    const THREADS: usize = 3_000;
    let (policy, seats) = (WorkStealing::new(), seats(2));
    policy.resize(2);
    let threads = stand_ins(THREADS as u64);
    if threads.is_empty() {
        return;
    }
    for thread in threads {
        let for_others = policy.ready(thread, Readied::Spawned, Some(&seats[0]));
        assert!(for_others == ForOthers::Work || policy.len(Some(0)) == 1);
    }
    assert_eq!([policy.len(Some(0)), policy.len(None)], [THREADS, 0]);
    assert_eq!(policy.out_of_reach(0), 0);
    let steal = |at: usize| policy.steal(&seats[at], Victims::new(at, 2, 0, true));
    let mut had: Vec<_> = steal(1).into_iter().collect();
    let stolen = policy.len(Some(1));
    while had.len() < THREADS {
        let at = had.len() % 2;
        let own = next(&policy, &seats[at]).map(|(_, thread)| thread);
        had.extend(own.or_else(|| steal(at)));
    }
    let mut seen: Vec<_> = had.iter().map(|thread| thread.priority().get()).collect();
    dismiss(had);
    assert!(
        (60..=128).contains(&stolen),
        "a thief took {stolen} threads"
    );
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..THREADS as u64));
}

/// With the newest thread first, the older half of those that wait is where thieves find it.
#[test]
fn the_newest_first_and_the_older_ones_for_thieves() {
    let ideas = WorkStealing::new().next_slot(false);
    let (policy, seats) = (ideas.last_in_first_out(true), seats(2));
    policy.resize(2);
    let threads = stand_ins(9);
    if threads.is_empty() {
        return;
    }
    for thread in threads {
        policy.ready(thread, Readied::Spawned, Some(&seats[0]));
    }
    let stolen = policy
        .steal(&seats[1], Victims::new(1, 2, 0, true))
        .unwrap();
    let index = stolen.priority().get();
    let (own, threads): (Vec<_>, Vec<_>) = core::iter::from_fn(|| next(&policy, &seats[0])).unzip();
    seats.iter().for_each(|seat| policy.leave(seat));
    let rest = core::iter::from_fn(|| policy.next(&seats[0], Others::Busy));
    dismiss(rest.map(|next| next.thread).chain(threads).chain([stolen]));
    assert_eq!(index, 0, "the oldest");
    assert_eq!(own[0], 8, "the newest");
    assert_eq!(own.len(), 8);
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

/// The 61st pick is not a preempted thread's while threads wake each other in turn; the slice that
/// they share comes to its end. Fresh threads do not wait for that.
#[test]
fn who_computes_does_not_come_between_threads_that_wake_each_other() {
    let (policy, seat) = (WorkStealing::new(), &seats(1)[0]);
    policy.resize(1);
    let mut threads = stand_ins(3).into_iter();
    let (Some(computes), Some(fresh), Some(mut woken)) =
        (threads.next(), threads.next(), threads.next())
    else {
        return;
    };
    policy.ready(computes, Readied::Preempted, None);
    let mut others = Vec::new();
    let mut outside = Some(fresh);
    for pick in 1..=6 * GLOBAL_INTERVAL {
        if pick == 4 * GLOBAL_INTERVAL
            && let Some(fresh) = outside.take()
        {
            policy.ready(fresh, Readied::Spawned, None);
        }
        policy.ready(woken, Readied::Woken, Some(seat));
        let (index, thread) = next(&policy, seat).unwrap();
        woken = match index {
            2 => thread,
            _ => {
                others.push((index, pick));
                dismiss([thread]);
                next(&policy, seat).unwrap().1
            }
        };
    }
    policy.leave(seat);
    dismiss(core::iter::from_fn(|| next(&policy, seat)).map(|(_, thread)| thread));
    dismiss([woken]);
    assert!(matches!(others[..], [(1, _)]), "{others:?}");
}

#[test]
fn a_thread_from_outside_does_not_wait_for_many_turns_of_a_round() {
    let (policy, seat) = (WorkStealing::new(), &seats(1)[0]);
    policy.resize(1);
    let mut threads = stand_ins(9);
    let Some(outside) = threads.pop() else { return };
    for thread in threads {
        policy.ready(thread, Readied::Yielded, Some(seat));
    }
    policy.ready(outside, Readied::Woken, None);
    let order: Vec<u64> = (0..ROUND_TURNS)
        .map(|_| {
            let (index, thread) = next(&policy, seat).unwrap();
            policy.ready(thread, Readied::Yielded, Some(seat));
            index
        })
        .collect();
    policy.leave(seat);
    dismiss(core::iter::from_fn(|| next(&policy, seat)).map(|(_, thread)| thread));
    assert!(order.contains(&8), "{order:?}");
}
