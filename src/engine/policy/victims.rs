//! [`Victims`]: the order in which a processor without work looks at the others.

use core::fmt;

use crate::engine::sys::topology::RINGS;

/// An iterator over the indices of the other processors, in the order in which a thief should look
/// at them.
///
/// Processors on nearer CPUs come first, since both CPUs may share a cache that holds the data of
/// their threads. Among equally near ones the order begins at a random processor, so that thieves
/// do not meet.
///
/// The scheduler passes it to [`Policy::steal`](super::Policy::steal).
///
/// # Examples
///
/// ```
/// use greenthread::policy::{Lock, Queue, Ready, Victims};
///
/// /// Takes the first thread of the nearest processor that has one.
/// fn steal_from(queues: &[Lock<Queue>], mut victims: Victims<'_>) -> Option<Ready> {
///     victims.find_map(|victim| queues.get(victim)?.lock().pop())
/// }
/// ```
#[derive(Clone)]
pub struct Victims<'a> {
    thief: usize,
    start: usize,
    count: usize,
    looked: usize,
    last_pass: bool,
    /// Tells in which ring around the thief another processor is. `None`: all are in the first
    /// ring.
    distance: Option<&'a dyn Fn(usize) -> usize>,
    ring: usize,
}

impl<'a> Victims<'a> {
    /// Makes the order that begins at a processor chosen by `random`.
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

    /// Changes the order to the nearest first; `distance` says in which of the [`RINGS`] another
    /// processor is.
    pub(crate) fn nearest_first(self, distance: &'a dyn Fn(usize) -> usize) -> Self {
        Victims {
            distance: Some(distance),
            ..self
        }
    }

    /// Returns whether the thief sleeps if it finds nothing in this pass.
    ///
    /// In earlier passes a policy may spare threads that their processors are about to run; in the
    /// last pass it should take them too.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue, Ready, Victims};
    ///
    /// /// Takes a thread that is alone in its queue in the last pass only.
    /// fn steal_from(queues: &[Lock<Queue>], mut victims: Victims<'_>) -> Option<Ready> {
    ///     let spared = if victims.is_last_pass() { 0 } else { 1 };
    ///     victims.find_map(|victim| {
    ///         let mut queue = queues.get(victim)?.lock();
    ///         if queue.len() > spared { queue.pop() } else { None }
    ///     })
    /// }
    /// ```
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

    #[test]
    fn all_others_once() {
        for random in 0..10 {
            let mut seen: Vec<_> = Victims::new(2, 5, random, false).collect();
            assert!(random % 5 == 2 || seen[0] == random as usize % 5);
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 3, 4]);
        }
    }

    #[cfg(green)]
    #[test]
    fn the_nearest_first() {
        let topology = crate::engine::sys::topology::tests::two_of_each();
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
