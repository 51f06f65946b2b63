//! The default policy's fairness among threads that yield, on more processors than we have.

use greenthread_simulator::contenders::ALL;
use greenthread_simulator::cost::MEASURED;
use greenthread_simulator::suite::{MANY, turns};

/// Three threads for two processors: if threads stayed where they are, a half of them would have two thirds
/// of the average, and the others four thirds. The least and the most that a thread may have of the average.
/// (On 128 processors 2,000 turns are too few for threads to come round.)
const BOUNDS: [(usize, [f64; 2]); 3] = [(2, [0.9, 1.1]), (16, [0.75, 1.25]), (MANY, [0.65, 1.4])];

#[test]
fn threads_that_yield_have_about_as_many_turns() {
    for (processors, [least, most]) in BOUNDS {
        let shares = turns(&ALL[0], &MEASURED, processors);
        println!("{processors} processors: {shares:.2?} of the average");
        assert!(
            shares[0] >= least && shares[2] <= most,
            "{processors}: {shares:?}"
        );
    }
}
