//! Seeded randomness for tests.

/// Prints its seed; `GT_SEED` sets it.
pub struct Rng(fastrand::Rng);

impl Rng {
    pub fn new(test: &str) -> Rng {
        let seed = std::env::var("GT_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or(0x5eed);
        println!("{test}: GT_SEED={seed}");
        Rng(fastrand::Rng::with_seed(seed))
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    pub fn fork(&mut self) -> Rng {
        Rng(self.0.fork())
    }
}
