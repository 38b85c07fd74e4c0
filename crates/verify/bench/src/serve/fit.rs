//! Fit of the rate over the number of clients: where it is largest, and how far it falls behind that.

use super::Placement;
use super::case::{Case, Sample};
use super::published::{Published, SCALE};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use sheaf_figures::stat::{mean, parabola, quantile};
use std::fmt;

/// Resamples of an interval.
const RESAMPLES: usize = 2000;

/// Parabola through the rates of one plane over the number of clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Plane, or `published`.
    pub plane: String,
    /// Rate of the cable of each client host in Mbit/s, if it has one.
    pub client_mbit: Option<f64>,
    /// Spread of the clients over their hosts.
    pub placement: Placement,
    /// Coefficients of 1, N and N² for the rate in Gbit/s; of the paper's scale if rows stand for its points.
    pub coefficients: [f64; 3],
    /// Number of clients at which the parabola is largest within the points.
    pub peak_clients: f64,
    /// Interval of 95 % of it, by resampling of the rounds; none of published figures.
    pub peak_clients_ci95: Option<[f64; 2]>,
    /// Fall of the parabola from there to the most clients, in percent.
    pub fall_percent: f64,
    /// Interval of 95 % of it.
    pub fall_percent_ci95: Option<[f64; 2]>,
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.coefficients;
        let interval = |values: Option<[f64; 2]>, digits: usize| match values {
            Some([least, most]) => format!(" [{least:.digits$}, {most:.digits$}]"),
            None => String::new(),
        };
        write!(
            f,
            "fit {:<10} hosts {:<10} {a:.3} {b:+.3e} N {c:+.3e} N²; most at {:.0}{} clients, {:.1}{} % less at the end",
            self.plane,
            self.placement.hosts(self.client_mbit),
            self.peak_clients,
            interval(self.peak_clients_ci95, 0),
            self.fall_percent,
            interval(self.fall_percent_ci95, 1)
        )
    }
}

/// Largest value of a parabola between the first and the last point.
struct Peak {
    coefficients: [f64; 3],
    clients: f64,
    fall_percent: f64,
}

fn peak(points: &[(f64, f64)]) -> Option<Peak> {
    let coefficients = parabola(points)?;
    let [a, b, c] = coefficients;
    let value = |x: f64| a + b * x + c * x * x;
    let first = points.iter().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
    let last = points.iter().map(|(x, _)| *x).fold(0.0, f64::max);
    let vertex = match c < 0.0 {
        true => (-b / (2.0 * c)).clamp(first, last),
        false => last,
    };
    let clients = [first, vertex, last]
        .into_iter()
        .max_by(|a, b| value(*a).total_cmp(&value(*b)))?;
    Some(Peak {
        coefficients,
        clients,
        fall_percent: 100.0 * (1.0 - value(last) / value(clients)),
    })
}

/// Fits all planes that were measured with three numbers of clients and more, objects of the same size; the published
/// figures too if the rows stand for them.
pub(super) fn fits(cases: &[Case], is_paper: bool, seed: u64) -> Vec<Fit> {
    let mut fits = Vec::new();
    let mut rest: Vec<&Case> = cases.iter().collect();
    while let Some(first) = rest.first().copied() {
        let is_same = |case: &&Case| {
            (&case.plane, &case.engine, case.object_bytes)
                == (&first.plane, &first.engine, first.object_bytes)
                && (case.client_mbit, case.placement) == (first.client_mbit, first.placement)
        };
        let (own, others): (Vec<&Case>, Vec<&Case>) = rest.into_iter().partition(is_same);
        rest = others;
        fits.extend(fit(&own, is_paper, seed));
    }
    if is_paper {
        let clients = cases.iter().map(|case| case.clients);
        let mut points: Vec<(f64, f64)> = clients
            .filter_map(|clients| Some((clients.into(), Published::of(clients)?.gbit_per_s)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup();
        fits.extend(peak(&points).map(|peak| Fit {
            plane: "published".to_owned(),
            client_mbit: None,
            placement: Placement::Even,
            coefficients: peak.coefficients,
            peak_clients: peak.clients,
            peak_clients_ci95: None,
            fall_percent: peak.fall_percent,
            fall_percent_ci95: None,
        }));
    }
    fits
}

fn fit(cases: &[&Case], is_paper: bool, seed: u64) -> Option<Fit> {
    let scale = if is_paper { SCALE } else { 1.0 };
    let rates: Vec<(f64, Vec<f64>)> = cases
        .iter()
        .map(|case| {
            let rates = case.samples.iter().map(Sample::gbit_per_s);
            (
                case.clients.into(),
                rates.map(|rate| rate * scale).collect(),
            )
        })
        .collect();
    let first = cases.first()?;
    let (found, intervals) = with_intervals(&rates, seed)?;
    let [peak_clients_ci95, fall_percent_ci95] = intervals;
    Some(Fit {
        plane: first.plane.clone(),
        client_mbit: first.client_mbit,
        placement: first.placement,
        coefficients: found.coefficients,
        peak_clients: found.clients,
        peak_clients_ci95,
        fall_percent: found.fall_percent,
        fall_percent_ci95,
    })
}

/// Returns the peak of the means, and the intervals of its place and of the fall behind it.
fn with_intervals(rates: &[(f64, Vec<f64>)], seed: u64) -> Option<(Peak, [Option<[f64; 2]>; 2])> {
    let points = |of: &mut dyn FnMut(&[f64]) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = rates.iter();
        points
            .filter_map(|(clients, rates)| Some((*clients, of(rates)?)))
            .collect()
    };
    let found = peak(&points(&mut |rates| mean(rates)))?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut resample = |rates: &[f64]| {
        let drawn = (0..rates.len()).map(|_| rates[rng.random_range(0..rates.len())]);
        mean(&drawn.collect::<Vec<f64>>())
    };
    let resampled: Vec<Peak> = (0..RESAMPLES)
        .filter_map(|_| peak(&points(&mut resample)))
        .collect();
    let interval = |of: fn(&Peak) -> f64| {
        let values: Vec<f64> = resampled.iter().map(of).collect();
        Some([quantile(&values, 0.025)?, quantile(&values, 0.975)?])
    };
    Some((
        found,
        [
            interval(|peak| peak.clients),
            interval(|peak| peak.fall_percent),
        ],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_rates_are_largest_near_three_thousand_clients() {
        let clients = [1000, 2000, 3000, 4000, 5000];
        let points = clients.map(|clients: u32| {
            let published = Published::of(clients).expect("a point of the paper");
            (clients.into(), published.gbit_per_s)
        });
        let peak = peak(&points).expect("five points");
        assert!((2900.0..3100.0).contains(&peak.clients), "{}", peak.clients);
        assert!(
            (15.0..19.0).contains(&peak.fall_percent),
            "{}",
            peak.fall_percent
        );
    }

    #[test]
    fn a_rate_that_only_grows_is_largest_at_the_end_and_scatter_widens_the_interval() {
        let growing: Vec<(f64, Vec<f64>)> = [1000.0, 2000.0, 3000.0, 4000.0]
            .map(|x| (x, vec![x / 100.0, x / 100.0]))
            .into();
        let (peak, [clients, fall]) = with_intervals(&growing, 1).expect("four points");
        assert_eq!((peak.clients, peak.fall_percent), (4000.0, 0.0));
        assert_eq!((clients, fall), (Some([4000.0, 4000.0]), Some([0.0, 0.0])));
        let value = |x: f64| 30.0 - ((x - 2500.0) / 1000.0).powi(2);
        let scattered: Vec<(f64, Vec<f64>)> = [1000.0, 2000.0, 3000.0, 4000.0]
            .map(|x| (x, vec![value(x) - 1.0, value(x), value(x) + 1.0]))
            .into();
        let (peak, [clients, fall]) = with_intervals(&scattered, 1).expect("four points");
        assert!((peak.clients - 2500.0).abs() < 1e-6, "{}", peak.clients);
        let [least, most] = clients.expect("an interval");
        assert!(least < 2400.0 && most > 2600.0, "{least} to {most}");
        let [least, most] = fall.expect("an interval");
        assert!(least < peak.fall_percent && peak.fall_percent < most);
    }
}
