//! The next slot and the overflow, each by itself.

use crate::engine::policy::stand_ins::{dismiss, stand_ins};
use crate::engine::policy::work_stealing::*;

/// Wakes another thread, which its processor takes so long after unless it is relieved. Returns how
/// often it was relieved.
fn turns(
    slot: &NextSlot,
    (waker, waits): (&Green, u64),
    woken: &mut Option<Ready>,
    count: u32,
) -> u32 {
    let mut relieved = 0;
    for turn in 1..=count {
        let filled = u64::from(turn) << 32;
        slot.set_running(waker);
        let _ = slot.fill(woken.take().unwrap(), || filled);
        *woken = slot.relieve();
        relieved += u32::from(woken.is_some());
        *woken = woken.take().or_else(|| slot.take(|| filled + waits));
        assert!(slot.is_empty() && !slot.is_slow());
    }
    relieved
}

/// A thread that lingers, one that does not, and one that they wake in turn.
#[test]
fn others_relieve_a_slot_of_threads_that_linger() {
    let mut threads = stand_ins(3);
    let mut woken = threads.pop();
    let [slow, quick] = &threads[..] else { return };
    let (slow, quick) = ((slow.green(), LONG), (quick.green(), LONG - 1));
    let slot = NextSlot::new();
    let mut relieved = [0; 2];
    for _ in 0..1000 {
        for (waker, relieved) in [slow, quick].into_iter().zip(&mut relieved) {
            *relieved += turns(&slot, waker, &mut woken, 1);
        }
    }
    // It is learnt at the first or second fill that is noted.
    assert!(
        relieved[0] >= 1000 - GLOBAL_INTERVAL && relieved[1] == 0,
        "{relieved:?}"
    );
    // A thread that does not linger any more is found out where its processor is the first to come,
    // twice in a row.
    slot.set_running(slow.0);
    for waits in [LONG - 1, LONG, LONG - 1, LONG - 1] {
        let displaced = slot.fill(woken.take().unwrap(), || 1);
        assert!(displaced.is_none() && slot.is_slow());
        woken = slot.take(|| 1 + waits);
    }
    assert_eq!(turns(&slot, (slow.0, 0), &mut woken, 1000), 0);
    dismiss(threads.into_iter().chain(woken));
}

/// Two that linger, and then do so no more, in turn.
#[test]
fn each_is_forgotten_by_itself() {
    let mut threads = stand_ins(3);
    let mut woken = threads.pop();
    let [first, second] = &threads[..] else {
        return;
    };
    let slot = NextSlot::new();
    for _ in 0..100 {
        for waker in [first, second] {
            turns(&slot, (waker.green(), LONG), &mut woken, 1);
        }
    }
    for (waker, is_slow) in [(first, true), (second, true)]
        .repeat(2)
        .into_iter()
        .chain([(first, false), (second, false)])
    {
        slot.set_running(waker.green());
        let displaced = slot.fill(woken.take().unwrap(), || 1);
        assert!(displaced.is_none() && slot.is_slow() == is_slow);
        woken = slot.take(|| 2);
    }
    dismiss(threads.into_iter().chain(woken));
}

/// A thread that a thief has taken says nothing, and the next one is not taken for it.
#[test]
fn thieves_teach_nothing() {
    let mut threads = stand_ins(3).into_iter();
    let (Some(waker), Some(mut stolen), Some(mut taken)) =
        (threads.next(), threads.next(), threads.next())
    else {
        return;
    };
    let slot = NextSlot::new();
    slot.set_running(waker.green());
    for turn in 0..10 * u64::from(GLOBAL_INTERVAL) {
        assert!(slot.fill(stolen, || turn).is_none() && !slot.is_slow());
        stolen = slot.steal().unwrap();
        let displaced = slot.fill(taken, || turn + 10 * LONG);
        assert!(displaced.is_none() && !slot.is_slow());
        taken = slot.take(|| turn + 10 * LONG).unwrap();
    }
    dismiss([waker, stolen, taken]);
}

fn indices(mut chain: Fifo) -> Vec<u64> {
    let threads = iter::from_fn(|| chain.pop());
    threads
        .map(|green| green.priority.load(Ordering::Relaxed))
        .collect()
}

#[test]
fn threads_come_out_of_the_overflow_as_they_went_in() {
    let threads = stand_ins(9).into_iter().map(Ready::into_green);
    if threads.len() == 0 {
        return;
    }
    let overflow = Overflow::default();
    let mut chain = Fifo::new();
    threads.for_each(|green| chain.push(green));
    overflow.push(chain.take_first(4));
    overflow.push(chain);
    assert_eq!(overflow.len(), 9);
    assert_eq!(indices(overflow.take(1)), [0]);
    assert_eq!(indices(overflow.take(5)), [1, 2, 3, 4, 5]);
    let mut all = overflow.take_all();
    assert_eq!((all.len(), overflow.len()), (3, 0));
    let green = all.pop().unwrap();
    assert!(!overflow.give(|| false, green), "it is out of use");
    assert!(overflow.give(|| true, green));
    overflow.push(all);
    assert_eq!(indices(overflow.steal()), [6, 7, 8]);
    assert!(overflow.take(1).len() + overflow.steal().len() == 0);
}
