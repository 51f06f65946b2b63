//! What the tests of `sim` share.

use greenthread::sim::{Builder, Failure};

/// Whether atomic operations have schedule points.
pub const POINTS: bool = cfg!(greenthread_points);

/// The first line of a test that needs points at atomic operations.
macro_rules! needs_points {
    () => {
        if !crate::support::POINTS {
            println!("skipped: built without `--cfg greenthread_points`, so atomic operations have no points");
            return;
        }
    };
}
pub(crate) use needs_points;

/// A number that a variable may set.
pub fn number(variable: &str, usual: u64) -> u64 {
    let asked = std::env::var(variable).ok();
    asked.map_or(usual, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text:?}: a number is accepted"))
    })
}

/// How many seeds tests run that go through many: `GT_SEEDS`, or 200.
pub fn seeds() -> u64 {
    number("GT_SEEDS", 200)
}

/// What the check says, which must fail.
#[track_caller]
pub fn fails(builder: Builder, body: impl Fn() + Send + Sync + 'static) -> Failure {
    match builder.run(body) {
        Ok(summary) => panic!("no seed fails: {summary:?}"),
        Err(failure) => failure,
    }
}

/// The number in `random:17` or `pct2.300:17`.
pub fn seed_of(failure: &Failure) -> u64 {
    let seed = failure.seed().rsplit_once(':');
    let seed = seed.and_then(|(_, seed)| seed.parse().ok());
    seed.unwrap_or_else(|| panic!("{:?} names no seed: {failure}", failure.seed()))
}
