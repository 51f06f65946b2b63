//! The order in which a select looks at its operations. It is shuffled, so that no operation is
//! preferred however often several are ready, unless the select is biased. The order lies in the
//! operations themselves.

use core::cell::Cell;
use core::ptr;

use fastrand::Rng;

use super::selecting::Operation;
use crate::sys::clock;

/// Operations in the order in which they are to be looked at.
#[derive(Clone)]
pub(super) struct InTurn<'o, 'a> {
    operations: &'o [Operation<'a>],
    next: usize,
}

/// Puts the operations in order: as they were added if biased, otherwise shuffled (Fisher and
/// Yates).
pub(super) fn in_turn<'o, 'a>(operations: &'o mut [Operation<'a>], biased: bool) -> InTurn<'o, 'a> {
    let operations: &'o [Operation<'a>] = operations;
    for (position, operation) in operations.iter().enumerate() {
        operation.turn.set(position);
        if !biased && position > 0 {
            let other = random(position + 1);
            operation.turn.swap(&operations[other].turn);
        }
    }
    InTurn {
        operations,
        next: 0,
    }
}

impl InTurn<'_, '_> {
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

impl<'o, 'a> Iterator for InTurn<'o, 'a> {
    type Item = &'o Operation<'a>;

    fn next(&mut self) -> Option<&'o Operation<'a>> {
        let turn = self.operations.get(self.next)?.turn.get();
        self.next += 1;
        Some(&self.operations[turn])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.operations.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for InTurn<'_, '_> {}

/// Returns a number below `limit`, from one sequence for each thread. (fastrand's own thread-local
/// generator allocates at its first use.)
fn random(limit: usize) -> usize {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    let mut state = STATE.get();
    if state == 0 {
        // The address of the thread-local and the time of the first call differ from thread to
        // thread.
        state = STATE.with(|state| ptr::from_ref(state).addr() as u64) ^ clock::now();
    }
    let mut generator = Rng::with_seed(state);
    let number = generator.usize(..limit);
    STATE.set(generator.get_seed());
    number
}
