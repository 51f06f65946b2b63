//! Measurements for `benches/compare`, a line each, as they are made: row, unit, which is better,
//! contender, round and value. `benches/peers`, `benches/seeds` and `benches/servers` use this file.

use std::fmt::Display;

/// A measurement; of one that has failed, a word takes the value's place. (Standard output is
/// flushed at each end of a line.)
pub fn line(
    row: &str,
    (unit, better): (&str, &str),
    contender: &str,
    round: usize,
    value: impl Display,
) {
    println!("{row}\t{unit}\t{better}\t{contender}\t{round}\t{value}");
}
