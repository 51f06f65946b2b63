//! Tests that every thread has turns, whatever the others of its processor do.
//!
//! The idea: one processor, with no other one to help it; what each thread does in a turn is always the same.
//! The processor's counters must not fall into step with that.

use super::*;

/// What a thread does in each of its turns.
#[derive(Clone, Copy)]
enum Turn {
    Yields,
    IsPreempted,
    /// It waits, and is woken from without the table at once.
    IsWoken,
    /// It wakes those of these that wait, and waits itself.
    Wakes(&'static [usize]),
    WakesAndYields(&'static [usize]),
    /// It waits for one that wakes it.
    Waits,
    Ends,
}
use Turn::*;

/// Returns how many turns each thread has had in so many picks, of which the first `phase` are for nobody.
fn turns(policy: WorkStealing, phase: usize, table: &[Turn], picks: usize) -> Option<Vec<usize>> {
    let seat = &seats(1)[0];
    policy.resize(1);
    let threads = stand_ins(table.len() as u64);
    if threads.is_empty() {
        return None;
    }
    for _ in 0..phase {
        assert!(policy.next(seat, Others::Busy).is_none());
    }
    let ready = |thread, how| _ = policy.ready(thread, how, Some(seat));
    let mut waiting: Vec<Option<Ready>> = table.iter().map(|_| None).collect();
    for (index, thread) in threads.into_iter().enumerate() {
        match table[index] {
            Yields | WakesAndYields(_) => ready(thread, Readied::Yielded),
            IsPreempted => ready(thread, Readied::Preempted),
            // Of those that wake each other, one begins.
            Wakes(others) if others.iter().all(|&other| other < index) => {
                waiting[index] = Some(thread);
            }
            Waits => waiting[index] = Some(thread),
            Wakes(_) | IsWoken | Ends => ready(thread, Readied::Woken),
        }
    }
    let mut turns = vec![0; table.len()];
    for _ in 0..picks {
        let Some((index, thread)) = next(&policy, seat) else {
            break;
        };
        let index = index as usize;
        turns[index] += 1;
        if let Wakes(others) | WakesAndYields(others) = table[index] {
            let woken = others.iter().filter_map(|&other| waiting[other].take());
            woken.for_each(|thread| ready(thread, Readied::Woken));
        }
        match table[index] {
            Yields | WakesAndYields(_) => ready(thread, Readied::Yielded),
            IsPreempted => ready(thread, Readied::Preempted),
            IsWoken => ready(thread, Readied::Woken),
            Wakes(_) | Waits => waiting[index] = Some(thread),
            Ends => dismiss([thread]),
        }
    }
    policy.leave(seat);
    let rest = core::iter::from_fn(|| next(&policy, seat)).map(|(_, thread)| thread);
    dismiss(rest.chain(waiting.into_iter().flatten()));
    Some(turns)
}

/// Each thread has a part of the turns, with and without the ideas that order them. (Those that are preempted
/// wait behind fresh ones of the global queue, for a time that no pick counts: see `shared_queue`.)
fn all_have_turns(table: &[Turn], picks: usize) {
    let ideas = WorkStealing::new;
    for policy in [
        ideas(),
        ideas().next_slot(false),
        ideas().stealing(false),
        ideas().global_interval(0),
        ideas().global_interval(1),
    ] {
        for phase in 0..8 {
            let Some(turns) = turns(policy.anew(), phase, table, picks) else {
                return;
            };
            let of_those = turns.iter().zip(table);
            let of_those = of_those.filter(|(_, turn)| !matches!(turn, IsPreempted));
            let least = *of_those.map(|(turns, _)| turns).min().unwrap();
            let shown = &turns[..turns.len().min(8)];
            let part = picks / table.len() / 200;
            assert!(
                least > part,
                "{policy:?}, phase {phase}: {least}; {shown:?}"
            );
        }
    }
}

const PICKS: usize = 10_000;

#[test]
fn who_yields_has_turns_beside_pairs_that_wake_each_other() {
    let pair = [Wakes(&[1]), Wakes(&[0])];
    all_have_turns(&[&pair[..], &[Yields]].concat(), PICKS);
    let pairs = [Wakes(&[1]), Wakes(&[0]), Wakes(&[3]), Wakes(&[2])];
    all_have_turns(&[&pairs[..], &[Yields]].concat(), PICKS);
    all_have_turns(&[&pairs[..], &[Yields; 3]].concat(), PICKS);
}

/// One of them runs next, and the other one waits in the queue.
#[test]
fn those_that_a_yielding_thread_wakes_have_turns() {
    all_have_turns(&[WakesAndYields(&[1, 2]), Waits, Waits], PICKS);
    all_have_turns(&[WakesAndYields(&[1, 2, 3]), Waits, Waits, Waits], PICKS);
    let two = [WakesAndYields(&[2, 3]), WakesAndYields(&[4, 5])];
    all_have_turns(&[&two[..], &[Waits; 4]].concat(), PICKS);
}

#[test]
fn the_overflow_has_turns_beside_a_queue_that_does_not_run_empty() {
    const MANY: usize = 3 * HALF;
    let picks = MANY * GLOBAL_INTERVAL as usize * 4;
    all_have_turns(&[IsWoken; MANY], picks);
    all_have_turns(&[&[IsWoken; MANY][..], &[Yields]].concat(), picks);
    all_have_turns(&[&[IsWoken; MANY][..], &[IsPreempted]].concat(), picks);
}

/// A thread waits for many that it has made, and yields meanwhile.
#[test]
fn the_overflow_has_turns_beside_a_round() {
    const MANY: usize = 1_000;
    let ideas = WorkStealing::new;
    for policy in [ideas(), ideas().global_interval(0), ideas().stealing(false)] {
        let table = [&[Ends; MANY][..], &[Yields]].concat();
        let Some(turns) = turns(policy.anew(), 0, &table, 20 * MANY) else {
            return;
        };
        let ended = turns[..MANY].iter().filter(|&&turns| turns == 1).count();
        assert_eq!(ended, MANY, "{policy:?}");
    }
}
