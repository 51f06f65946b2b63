//! In which order a processor without work looks at the others.

/// The other processors, in the order in which a thief should look at them. An iterator over their
/// indices.
#[derive(Clone, Debug)]
pub struct Victims<'a> {
    thief: usize,
    start: usize,
    count: usize,
    looked: usize,
    last_pass: bool,
    order: core::marker::PhantomData<&'a ()>,
}

impl Victims<'_> {
    /// `random` picks the first one.
    pub(crate) fn new(thief: usize, count: usize, random: u32, last_pass: bool) -> Self {
        Victims {
            thief,
            start: random as usize % count,
            count,
            looked: 0,
            last_pass,
            order: core::marker::PhantomData,
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
        while self.looked < self.count {
            let victim = (self.start + self.looked) % self.count;
            self.looked += 1;
            if victim != self.thief {
                return Some(victim);
            }
        }
        None
    }
}
