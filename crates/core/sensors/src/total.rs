//! Counters of the kernel as totals that only grow.

/// Meaning of a value that is lower than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLower {
    /// The counter began again at 0: a device came back, or a process is another one.
    Reset,
    /// The counter has 32 bits: it wrapped, if it was near its end and is near its begin; else it began again.
    Wrap32,
    /// A decrease of at most so much is noise, as of times that the kernel estimates; a larger one is a reset.
    Noise(u64),
}

/// Total of a counter of the kernel since it was first seen, that included.
///
/// ```
/// use sheaf_sensors::{Total, WhenLower};
///
/// let mut total = Total::default();
/// let values = [100, 150, 20, 25];
/// let sums = values.map(|value| total.advance(value, WhenLower::Reset));
/// assert_eq!(sums, [100, 150, 170, 175]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    last: Option<u64>,
    sum: u64,
}

impl Total {
    /// Takes the next value, and returns the total.
    pub fn advance(&mut self, value: u64, when_lower: WhenLower) -> u64 {
        const SPAN: u64 = 1 << 32;
        const NEAR: u64 = SPAN / 4;
        let last = self.last.unwrap_or(0);
        let growth = match last.checked_sub(value) {
            None | Some(0) => value - last,
            Some(lower) => match when_lower {
                // The high value stays, so that the way back up is not counted twice.
                WhenLower::Noise(most) if lower <= most => return self.sum,
                WhenLower::Wrap32 if (SPAN - NEAR..SPAN).contains(&last) && value < NEAR => {
                    SPAN - last + value
                }
                _ => value,
            },
        };
        self.last = Some(value);
        self.sum = self.sum.wrapping_add(growth);
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(when_lower: WhenLower, values: &[u64], expected: &[u64]) {
        let mut total = Total::default();
        let found: Vec<u64> = values
            .iter()
            .map(|value| total.advance(*value, when_lower))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_counter_that_begins_again_goes_on() {
        check(WhenLower::Reset, &[7, 9, 0, 4], &[7, 9, 9, 13]);
        check(
            WhenLower::Reset,
            &[5_000_000_000, 3],
            &[5_000_000_000, 5_000_000_003],
        );
    }

    #[test]
    fn a_counter_of_32_bits_wraps_near_its_end_alone() {
        let end = (1 << 32) - 1;
        check(WhenLower::Wrap32, &[end - 9, 5], &[end - 9, end + 6]);
        check(WhenLower::Wrap32, &[1000, 5], &[1000, 1005]);
        check(WhenLower::Wrap32, &[1 << 40, 5], &[1 << 40, (1 << 40) + 5]);
    }

    #[test]
    fn noise_is_passed_over_and_not_counted_twice() {
        check(
            WhenLower::Noise(3),
            &[10, 8, 10, 11, 2, 3],
            &[10, 10, 10, 11, 13, 14],
        );
    }

    proptest! {
        #[test]
        fn a_total_never_goes_back(values in proptest::collection::vec(0_u64..1 << 33, 1..40), way in 0..3) {
            let way = [WhenLower::Reset, WhenLower::Wrap32, WhenLower::Noise(1 << 20)][way as usize];
            let mut total = Total::default();
            let mut last = 0;
            for value in values {
                let sum = total.advance(value, way);
                prop_assert!(sum >= last);
                last = sum;
            }
        }
    }
}
