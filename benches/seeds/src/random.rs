//! Marsaglia's xorshift: a few instructions a number, each thread its own.

pub struct Random(u64);

impl Random {
    /// A sequence for each seed.
    pub fn new(seed: usize) -> Random {
        Random((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % n
    }
}
