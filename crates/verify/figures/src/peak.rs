//! Fit of a quantity over another: where a parabola through it is largest, how far it falls behind that, and how much
//! it changes between two places, each with an interval.

use crate::stat::{mean, parabola, quantile, slope, standard_deviation, t_quantile};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Resamples of an interval.
const RESAMPLES: usize = 2000;

/// Values that were measured at one place.
pub type At = (f64, Vec<f64>);

/// Largest value of a parabola between its first and its last point.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// Coefficients of 1, x and x².
    pub coefficients: [f64; 3],
    /// Place of the largest value.
    pub at: f64,
    /// Fall from there to the last point, in percent.
    pub fall_percent: f64,
}

impl Peak {
    /// Fits the points `(x, y)`. `None` for fewer than three different x.
    #[must_use]
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let coefficients = parabola(points)?;
        let [a, b, c] = coefficients;
        let value = |x: f64| a + b * x + c * x * x;
        let first = points.iter().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let last = points.iter().map(|(x, _)| *x).fold(0.0, f64::max);
        let vertex = match c < 0.0 {
            true => (-b / (2.0 * c)).clamp(first, last),
            false => last,
        };
        let at = [first, vertex, last]
            .into_iter()
            .max_by(|a, b| value(*a).total_cmp(&value(*b)))?;
        Some(Self {
            coefficients,
            at,
            fall_percent: 100.0 * (1.0 - value(last) / value(at)),
        })
    }
}

/// Peak of means, with the intervals of 95 % of its place and of the fall behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Peak of the means.
    pub peak: Peak,
    /// Interval of its place.
    pub at_ci95: [f64; 2],
    /// Interval of the fall.
    pub fall_percent_ci95: [f64; 2],
}

impl Fit {
    /// Fits the means of `values` and resamples the values at each place (bootstrap). `None` for fewer than three
    /// different places with values. The same for the same values and seed.
    #[must_use]
    pub fn of(values: &[At], seed: u64) -> Option<Self> {
        let peak = Peak::of(&means(values))?;
        let resampled: Vec<Peak> = resamples(values, seed)
            .filter_map(|points| Peak::of(&points))
            .collect();
        let interval =
            |of: fn(&Peak) -> f64| interval(&resampled.iter().map(of).collect::<Vec<f64>>());
        Some(Self {
            at_ci95: interval(|peak| peak.at)?,
            fall_percent_ci95: interval(|peak| peak.fall_percent)?,
            peak,
        })
    }
}

/// Returns the change of the mean from the place `from` to the place `to`, in percent, with its interval of 95 % (the
/// error of a quotient of means, Student's t with the degrees of freedom of Welch), not below −100. `None` if there are
/// no values at one of them, or they are 0 at the first.
#[must_use]
pub fn change_percent(values: &[At], from: f64, to: f64) -> Option<(f64, [f64; 2])> {
    let of = |x: f64| {
        let found = values.iter().find(|(at, _)| *at == x);
        found.map(|(_, values)| values.as_slice())
    };
    let (before, after) = (of(from)?, of(to)?);
    let (from, to) = (mean(before)?, mean(after)?);
    let ratio = to / from;
    if !ratio.is_finite() {
        return None;
    }
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    // Part of the variance of the quotient that comes from each mean.
    let part = |values: &[f64], slope: f64| {
        (standard_deviation(values) * slope).powi(2) / values.len() as f64
    };
    let parts = [part(before, ratio / from), part(after, 1.0 / from)];
    let variance: f64 = parts.iter().sum();
    if before.len() < 2 || after.len() < 2 || variance == 0.0 {
        return Some((percent(ratio), [percent(ratio); 2]));
    }
    let counts = [before.len(), after.len()];
    let errors = parts.iter().zip(counts);
    let freedom = variance.powi(2)
        / errors
            .map(|(part, count)| part.powi(2) / (count - 1) as f64)
            .sum::<f64>();
    let half = t_quantile(freedom, 0.95) * variance.sqrt();
    let ends = [ratio - half, ratio + half].map(|end| percent(end.max(0.0)));
    Some((percent(ratio), ends))
}

/// Returns the slope of the straight line through all values (least squares), with its interval of 95 % by Student's t.
/// `None` for fewer than two different places with values.
#[must_use]
pub fn slope_ci95(values: &[At]) -> Option<(f64, [f64; 2])> {
    let points = values.iter();
    let points: Vec<(f64, f64)> = points
        .flat_map(|(x, values)| values.iter().map(|y| (*x, *y)))
        .collect();
    let (first, ..) = points.first()?;
    if points.iter().all(|(x, _)| x == first) {
        return None;
    }
    let slope = slope(&points);
    let freedom = points.len() as f64 - 2.0;
    if freedom < 1.0 {
        return Some((slope, [slope; 2]));
    }
    let average =
        |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x_mean, y_mean) = (average(|(x, _)| *x), average(|(_, y)| *y));
    let off = |(x, y): &(f64, f64)| (y - y_mean - slope * (x - x_mean)).powi(2);
    let squares: f64 = points.iter().map(off).sum();
    let spread: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let half = t_quantile(freedom, 0.95) * (squares / freedom / spread).sqrt();
    Some((slope, [slope - half, slope + half]))
}

fn means(values: &[At]) -> Vec<(f64, f64)> {
    let points = values.iter();
    points
        .filter_map(|(x, values)| Some((*x, mean(values)?)))
        .collect()
}

/// Means of values drawn with replacement, at each place. Means of few values that are drawn from themselves scatter
/// too little, by the factor √((n − 1) ÷ n); what they are off the mean is stretched by as much.
fn resamples(values: &[At], seed: u64) -> impl Iterator<Item = Vec<(f64, f64)>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..RESAMPLES).map(move |_| {
        let points = values.iter().filter(|(_, values)| !values.is_empty());
        let drawn = points.map(|(x, values)| {
            let count = values.len() as f64;
            let drawn = (0..values.len()).map(|_| values[rng.random_range(0..values.len())]);
            let drawn = drawn.sum::<f64>() / count;
            let mean = values.iter().sum::<f64>() / count;
            let stretch = (count / (count - 1.0).max(1.0)).sqrt();
            (*x, mean + (drawn - mean) * stretch)
        });
        drawn.collect()
    })
}

fn interval(values: &[f64]) -> Option<[f64; 2]> {
    Some([quantile(values, 0.025)?, quantile(values, 0.975)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: [f64; 4], values: impl Fn(f64) -> Vec<f64>) -> Vec<At> {
        places.map(|x| (x, values(x))).into()
    }

    const PLACES: [f64; 4] = [1000.0, 2000.0, 3000.0, 4000.0];

    #[test]
    fn a_quantity_that_only_grows_is_largest_at_the_end() {
        let fit = Fit::of(&at(PLACES, |x| vec![x / 100.0; 2]), 1).expect("four points");
        assert_eq!((fit.peak.at, fit.peak.fall_percent), (4000.0, 0.0));
        assert_eq!(fit.at_ci95, [4000.0, 4000.0]);
        assert_eq!(fit.fall_percent_ci95, [0.0, 0.0]);
    }

    #[test]
    fn scatter_widens_the_intervals() {
        let value = |x: f64| 30.0 - ((x - 2500.0) / 1000.0).powi(2);
        let scattered = at(PLACES, |x| vec![value(x) - 1.0, value(x), value(x) + 1.0]);
        let fit = Fit::of(&scattered, 1).expect("four points");
        assert!((fit.peak.at - 2500.0).abs() < 1e-6, "{}", fit.peak.at);
        let [least, most] = fit.at_ci95;
        assert!(least < 2400.0 && most > 2600.0, "{least} to {most}");
        let [least, most] = fit.fall_percent_ci95;
        assert!(least < fit.peak.fall_percent && fit.peak.fall_percent < most);
        assert_eq!(Fit::of(&scattered, 1), Some(fit));
        assert_eq!(Fit::of(&scattered[..2], 1), None);
    }

    #[test]
    fn a_change_is_between_two_places_and_a_place_without_values_has_none() {
        let values = vec![(3000.0, vec![20.0, 20.0]), (5000.0, vec![14.0, 18.0])];
        let (change, [least, most]) = change_percent(&values, 3000.0, 5000.0).expect("both");
        assert!((change + 20.0).abs() < 1e-9, "{change}");
        // One degree of freedom: 12.7 standard errors of 10 %.
        assert!(
            least == -100.0 && (most - 107.06).abs() < 0.01,
            "{least} {most}"
        );
        assert_eq!(change_percent(&values, 1000.0, 5000.0), None);
        let equal = [(3000.0, vec![20.0; 3]), (5000.0, vec![10.0; 3])];
        let (_, ends) = change_percent(&equal, 3000.0, 5000.0).expect("both");
        assert_eq!(ends, [-50.0, -50.0]);
        let none = [(3000.0, vec![0.0]), (5000.0, vec![1.0])];
        assert_eq!(change_percent(&none, 3000.0, 5000.0), None);
    }

    #[test]
    fn a_slope_needs_two_places() {
        let values = at(PLACES, |x| vec![x * 2.0 - 1.0, x * 2.0 + 1.0]);
        let (slope, [least, most]) = slope_ci95(&values).expect("four places");
        assert!((slope - 2.0).abs() < 1e-9, "{slope}");
        // Eight values, each 1 off: √(8 ÷ 6 ÷ 10⁷) times t of six degrees of freedom, 2.447.
        assert!((most - least - 2.0 * 2.447 * (8.0_f64 / 6.0 / 1e7).sqrt()).abs() < 1e-5);
        assert_eq!(slope_ci95(&values[..1]), None);
    }
}
