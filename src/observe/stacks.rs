//! Keeps each different stack once.
//!
//! Memory goes with the number of different stacks, not with that of threads. Stacks with the same hash are
//! compared, so no two different ones are ever taken for one.

use core::hash::BuildHasher;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;

/// Different stacks, by number.
#[derive(Default)]
pub(crate) struct Stacks {
    /// All stacks, one after the other.
    frames: Vec<usize>,
    stacks: Vec<Stack>,
    /// For each hash the stack that came last; `Stack::next` leads to the others.
    by_hash: HashMap<u64, u32>,
    hasher: RandomState,
}

struct Stack {
    start: usize,
    length: u32,
    next: Option<u32>,
}

impl Stacks {
    /// The number of this stack, which is kept if it is new.
    pub(crate) fn number(&mut self, stack: &[usize]) -> u32 {
        let hash = self.hasher.hash_one(stack);
        let first = self.by_hash.get(&hash).copied();
        let mut next = first;
        while let Some(number) = next {
            if self.get(number) == stack {
                return number;
            }
            next = self.stacks[number as usize].next;
        }
        let number = self.stacks.len() as u32;
        self.stacks.push(Stack {
            start: self.frames.len(),
            length: stack.len() as u32,
            next: first,
        });
        self.frames.extend_from_slice(stack);
        self.by_hash.insert(hash, number);
        number
    }

    /// The stack with this number.
    pub(crate) fn get(&self, number: u32) -> &[usize] {
        let stack = &self.stacks[number as usize];
        &self.frames[stack.start..][..stack.length as usize]
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.stacks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_one_number() {
        let mut stacks = Stacks::default();
        let numbers = [
            stacks.number(&[1, 2, 3]),
            stacks.number(&[1, 2]),
            stacks.number(&[]),
        ];
        assert_eq!(numbers, [0, 1, 2]);
        for _ in 0..100 {
            assert_eq!(stacks.number(&[1, 2]), 1);
            assert_eq!(stacks.number(&[1, 2, 3]), 0);
            assert_eq!(stacks.number(&[]), 2);
        }
        assert_eq!((stacks.len(), stacks.frames.len()), (3, 5));
        assert_eq!(stacks.get(0), [1, 2, 3]);
        assert_eq!(stacks.get(2), [0; 0]);
    }

    #[test]
    fn stacks_with_the_same_hash_stay_apart() {
        let mut stacks = Stacks::default();
        stacks.number(&[1]);
        // As if the second had the hash of the first.
        let hash = stacks.hasher.hash_one(&[2_usize][..]);
        stacks.by_hash.insert(hash, 0);
        assert_eq!(stacks.number(&[2]), 1);
        assert_eq!(stacks.number(&[2]), 1);
        assert_eq!(stacks.number(&[1]), 0);
    }
}
