//! The log-linear buckets of a histogram: which values share a count.
//!
//! Every power of two is cut into 64 buckets of equal width, so a bucket is never wider than 1/64 of
//! the values in it; below 128 each value has a bucket of its own. This is the layout of the
//! HdrHistogram library (Gil Tene, "How the index is calculated") with six significant bits.

/// Buckets a power of two is cut into, as a power of two.
const SUB_BITS: u32 = 6;

/// Number of buckets that cover all of `u64`: 58 octaves of 64, and 64 more below the first.
pub(crate) const BUCKETS: usize = ((64 - SUB_BITS as usize) << SUB_BITS) + (1 << SUB_BITS);

/// Returns the bucket that counts `value`. Grows with the value and is below [`BUCKETS`].
#[inline]
pub(crate) fn index_of(value: u64) -> usize {
    // The lowest bit is set so that zero needs no branch; it never moves a value to another octave.
    let shift = (u64::BITS - 1 - (value | 1).leading_zeros()).saturating_sub(SUB_BITS);
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// Returns the lowest and the highest value that the bucket `index` counts.
///
/// `index` is below [`BUCKETS`].
pub(crate) fn range_of(index: usize) -> (u64, u64) {
    let shift = (index >> SUB_BITS).saturating_sub(1);
    let lowest = ((index - (shift << SUB_BITS)) as u64) << shift;
    (lowest, lowest + ((1 << shift) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_without_gap_over_all_of_u64() {
        let mut expected = 0;
        for index in 0..BUCKETS {
            let (lowest, highest) = range_of(index);
            assert_eq!(
                lowest, expected,
                "bucket {index} starts where the last one ends"
            );
            assert_eq!(index_of(lowest), index);
            assert_eq!(index_of(highest), index);
            expected = highest.wrapping_add(1);
        }
        assert_eq!(expected, 0, "the last bucket ends at u64::MAX");
    }

    #[test]
    fn values_below_128_have_a_bucket_of_their_own() {
        for value in 0..128 {
            assert_eq!(range_of(index_of(value)), (value, value));
        }
    }

    #[test]
    fn no_value_below_a_power_of_two_shares_a_bucket_with_one_above() {
        for power in 0..64 {
            assert_eq!(range_of(index_of(1 << power)).0, 1 << power);
        }
    }

    proptest! {
        #[test]
        fn a_bucket_is_never_wider_than_a_64th_of_its_values(value: u64) {
            let (lowest, highest) = range_of(index_of(value));
            prop_assert!(lowest <= value && value <= highest);
            prop_assert!(highest - lowest <= lowest / 64);
        }
    }
}
