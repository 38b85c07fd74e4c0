//! Quantiles of a stream of values in bounded memory, mergeable.
//!
//! Every power of two is cut into 64 buckets of equal width, as the histograms of `sheaf-metrics` do with whole
//! numbers, here over the bits of an `f64` and for both signs. A bucket is at most 1/64 of its lower end wide, so its
//! middle is within 1/128 of every value in it. A sketch that needs more buckets than its bound joins pairs of
//! neighbours, which doubles that error.

/// Buckets of a power of two, as a power of two.
const SUB_BITS: u32 = 6;
/// Bits of an `f64` below those that choose a bucket.
const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - SUB_BITS;

/// Counts of values by bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// Values below zero by magnitude, sorted.
    negative: Vec<(u32, u64)>,
    zero: u64,
    /// Values above zero, sorted.
    positive: Vec<(u32, u64)>,
    /// How often neighbours were joined.
    joined: u32,
}

impl Sketch {
    /// Largest relative error of a quantile while no neighbours are joined.
    pub const ERROR: f64 = 1.0 / 128.0;

    /// Counts `value`; NaN is left out. Keeps at most `bins_max` buckets.
    pub fn add(&mut self, value: f64, bins_max: usize) {
        if value.is_nan() {
            return;
        }
        if value == 0.0 {
            self.zero += 1;
            return;
        }
        let bin = u32::try_from(value.abs().to_bits() >> SHIFT).expect("18 bits");
        let joined = self.joined;
        add(self.side(value < 0.0), bin >> joined, 1);
        self.bound(bins_max);
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Self, bins_max: usize) {
        while self.joined < other.joined {
            self.join();
        }
        let finer = self.joined - other.joined;
        self.zero += other.zero;
        for (is_negative, bins) in [(true, &other.negative), (false, &other.positive)] {
            for (bin, count) in bins {
                add(self.side(is_negative), bin >> finer, *count);
            }
        }
        self.bound(bins_max);
    }

    /// Number of counted values.
    #[must_use]
    pub fn count(&self) -> u64 {
        let sum = |bins: &[(u32, u64)]| bins.iter().map(|bin| bin.1).sum::<u64>();
        sum(&self.negative) + self.zero + sum(&self.positive)
    }

    /// Relative error of [`quantile`](Self::quantile), at most.
    #[must_use]
    pub fn error(&self) -> f64 {
        Self::ERROR * f64::from(1_u32 << self.joined)
    }

    /// Value below which the part `q` (0 to 1) of the values lies: the value of rank ⌈q · count⌉ counted from 1, within
    /// [`error`](Self::error); NaN of none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        let count = self.count();
        if count == 0 {
            return f64::NAN;
        }
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut below = 0;
        let mut reaches = |count: u64| {
            below += count;
            below >= rank
        };
        for (bin, count) in self.negative.iter().rev() {
            if reaches(*count) {
                return -self.middle(*bin);
            }
        }
        if reaches(self.zero) {
            return 0.0;
        }
        let found = self.positive.iter().find(|bin| reaches(bin.1));
        found.map_or(f64::NAN, |bin| self.middle(bin.0))
    }

    fn side(&mut self, is_negative: bool) -> &mut Vec<(u32, u64)> {
        if is_negative {
            &mut self.negative
        } else {
            &mut self.positive
        }
    }

    fn bound(&mut self, bins_max: usize) {
        // Fewer than 16 buckets for all of `f64` would say nothing.
        while self.negative.len() + self.positive.len() > bins_max.max(16) {
            self.join();
        }
    }

    fn join(&mut self) {
        self.joined += 1;
        for bins in [&mut self.negative, &mut self.positive] {
            for bin in bins.iter_mut() {
                bin.0 >>= 1;
            }
            bins.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                if same {
                    kept.1 += next.1;
                }
                same
            });
        }
    }

    fn middle(&self, bin: u32) -> f64 {
        let edge = |bin: u64| f64::from_bits((bin << self.joined) << SHIFT);
        let (low, high) = (edge(u64::from(bin)), edge(u64::from(bin) + 1));
        // The last bucket holds infinity: its upper end is no number, or wraps to the sign.
        if high.is_finite() && high > low {
            low + (high - low) / 2.0
        } else {
            low
        }
    }
}

fn add(bins: &mut Vec<(u32, u64)>, bin: u32, count: u64) {
    match bins.binary_search_by_key(&bin, |one| one.0) {
        Ok(at) => bins[at].1 += count,
        Err(at) => bins.insert(at, (bin, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[f64], bins_max: usize) -> Sketch {
        let mut sketch = Sketch::default();
        for value in values {
            sketch.add(*value, bins_max);
        }
        sketch
    }

    #[test]
    fn special_values_have_their_place() {
        let sketch = of(
            &[
                f64::NEG_INFINITY,
                -1.0,
                0.0,
                -0.0,
                1.0,
                f64::INFINITY,
                f64::NAN,
            ],
            64,
        );
        assert_eq!(sketch.count(), 6);
        assert_eq!(sketch.quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(sketch.quantile(0.5), 0.0);
        assert_eq!(sketch.quantile(1.0), f64::INFINITY);
        assert!(Sketch::default().quantile(0.5).is_nan());
    }

    #[test]
    fn the_bound_holds_and_the_error_says_so() {
        let values: Vec<f64> = (0..4000).map(|n| f64::from(n) * 1.01 - 500.0).collect();
        let sketch = of(&values, 50);
        assert!(sketch.negative.len() + sketch.positive.len() <= 50);
        assert!(sketch.error() > Sketch::ERROR);
        assert_eq!(sketch.count(), 4000);
        let found = sketch.quantile(0.9);
        let exact = values[3599];
        assert!(
            (found - exact).abs() <= sketch.error() * exact,
            "{found} of {exact}"
        );
    }

    proptest! {
        #[test]
        fn a_quantile_is_within_its_error(
            values in proptest::collection::vec(-1e6_f64..1e6, 1..300), q in 0.0_f64..=1.0, bins_max in 20_usize..2000,
        ) {
            let sketch = of(&values, bins_max);
            let mut sorted = values;
            sorted.sort_by(f64::total_cmp);
            let rank = ((q * sorted.len() as f64).ceil() as usize).max(1);
            let (exact, found) = (sorted[rank - 1], sketch.quantile(q));
            prop_assert!((found - exact).abs() <= sketch.error() * exact.abs() + f64::MIN_POSITIVE, "{found} of {exact}");
        }

        #[test]
        fn parts_merge_to_the_whole(
            left in proptest::collection::vec(any::<f64>(), 0..100),
            right in proptest::collection::vec(any::<f64>(), 0..100),
            bins_max in 4_usize..200,
        ) {
            let mut merged = of(&left, bins_max);
            merged.merge(&of(&right, bins_max), bins_max);
            let whole = of(&[left, right].concat(), bins_max);
            prop_assert_eq!(merged, whole);
        }
    }
}
