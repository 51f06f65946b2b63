//! The scale of histograms: which bucket a time belongs to. Two binary digits follow the leading one, so a
//! bucket is at most a quarter as wide as its upper bound:
//!
//! ```text
//! nanoseconds  1 2 3 4 | 5 6 7 8 | 10 12 14 16 | 20 24 28 32 | …
//! ```
//!
//! The numbers are upper bounds, and belong to their buckets. Every power of two from 4 on is one of them, so
//! that coarser scales can be made by adding buckets.

/// The number of buckets: up to 2^64 nanoseconds.
pub(crate) const BUCKETS: usize = 252;

/// The bucket of a time in nanoseconds.
#[inline]
pub(crate) fn bucket(nanos: u64) -> usize {
    let below = nanos.saturating_sub(1);
    match below {
        0..4 => below as usize,
        _ => {
            let exponent = below.ilog2() as usize;
            (exponent - 1) * 4 + (below >> (exponent - 2) & 3) as usize
        }
    }
}

/// The greatest time in a bucket, in nanoseconds.
pub(crate) fn upper(bucket: usize) -> u64 {
    let (exponent, digits) = (bucket / 4 + 1, bucket as u128 % 4);
    match bucket {
        0..4 => bucket as u64 + 1,
        _ => u64::try_from((5 + digits) << (exponent - 2)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_its_bucket() {
        assert_eq!(
            (bucket(0), bucket(1), bucket(u64::MAX)),
            (0, 0, BUCKETS - 1)
        );
        assert_eq!(upper(BUCKETS - 1), u64::MAX);
        for i in 1..BUCKETS {
            let (below, end) = (upper(i - 1), upper(i));
            assert!(below < end);
            assert_eq!(
                (bucket(below), bucket(below + 1), bucket(end)),
                (i - 1, i, i)
            );
            assert!(end - below <= end / 4 + 1, "bucket {i} is wide");
        }
    }

    #[test]
    fn powers_of_two_are_bounds() {
        for exponent in 2..64 {
            let bound = 1 << exponent;
            assert_eq!(upper(bucket(bound)), bound);
        }
    }
}
