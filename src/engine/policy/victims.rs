//! In which order a processor without work looks at the others.

use core::fmt;

use crate::engine::sys::topology::RINGS;

/// The other processors, in the order in which a thief should look at them. An iterator over their
/// indices.
///
/// Those on nearer CPUs come first: what their threads use may be in a cache that both share. The
/// order begins anywhere among equals, so that thieves do not meet.
#[derive(Clone)]
pub struct Victims<'a> {
    thief: usize,
    start: usize,
    count: usize,
    looked: usize,
    last_pass: bool,
    /// How far others are: in which ring about the thief. `None`: all are in the first.
    distance: Option<&'a dyn Fn(usize) -> usize>,
    ring: usize,
}

impl<'a> Victims<'a> {
    /// `random` picks the first one.
    pub(crate) fn new(thief: usize, count: usize, random: u32, last_pass: bool) -> Self {
        Victims {
            thief,
            start: random as usize % count,
            count,
            looked: 0,
            last_pass,
            distance: None,
            ring: 0,
        }
    }

    /// The same with the nearest first. `distance`: in which of the [`RINGS`] others are.
    pub(crate) fn nearest_first(self, distance: &'a dyn Fn(usize) -> usize) -> Self {
        Victims {
            distance: Some(distance),
            ..self
        }
    }

    /// Whether the thief gives up after this pass, so that nothing should be spared: not even what
    /// its owner is about to run.
    pub fn is_last_pass(&self) -> bool {
        self.last_pass
    }
}

impl Iterator for Victims<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let rings = if self.distance.is_some() { RINGS } else { 1 };
        while self.ring < rings {
            while self.looked < self.count {
                let victim = (self.start + self.looked) % self.count;
                self.looked += 1;
                let distance = self.distance.map_or(0, |distance| distance(victim));
                if victim != self.thief && distance == self.ring {
                    return Some(victim);
                }
            }
            (self.ring, self.looked) = (self.ring + 1, 0);
        }
        None
    }
}

impl fmt::Debug for Victims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Victims")
            .field("thief", &self.thief)
            .field("processors", &self.count)
            .field("last_pass", &self.last_pass)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sys::topology::tests::two_of_each;

    #[test]
    fn all_others_once() {
        for random in 0..10 {
            let mut seen: Vec<_> = Victims::new(2, 5, random, false).collect();
            assert!(random % 5 == 2 || seen[0] == random as usize % 5);
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 3, 4]);
        }
    }

    #[test]
    fn the_nearest_first() {
        let topology = two_of_each();
        // Processors are on CPUs in some order of their own.
        let cpu = |processor: usize| processor * 13 % 32;
        let mut firsts = std::collections::BTreeSet::new();
        for random in 0..64 {
            for thief in 0..32 {
                let distance = |other| topology.ring(cpu(thief), cpu(other));
                let victims = Victims::new(thief, 32, random, true).nearest_first(&distance);
                assert!(victims.is_last_pass());
                let victims: Vec<_> = victims.collect();
                let rings: Vec<_> = victims.iter().map(|&victim| distance(victim)).collect();
                assert!(rings.is_sorted(), "{rings:?}");
                let many = [0, 1, 2, 3].map(|ring| rings.iter().filter(|&&r| r == ring).count());
                assert_eq!(many, [3, 4, 8, 16]);
                if thief == 0 {
                    firsts.insert(victims[0]);
                }
            }
        }
        assert_eq!(firsts.len(), 3, "any of the nearest comes first");
    }
}
