//! Distribution of a time over the TFs of a run, as it is kept and shown.

use serde::{Deserialize, Serialize};
use sheaf_figures::stat;
use sheaf_sim::summary::Latency;

/// Points of the distribution of latencies that a run keeps: every half percent.
pub const LATENCY_POINTS: usize = 201;

/// Distribution of a time over the TFs of a run, in µs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Mean.
    pub mean_us: f64,
    /// Quantiles that are shown.
    pub us: Latency,
    /// [`LATENCY_POINTS`] quantiles, from the shortest to the longest.
    pub quantiles_us: Vec<f64>,
}

impl Times {
    /// Returns the distribution of `values`, in µs.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |q: f64| quantile_of_sorted(&values, q);
        let quantiles = |_| {
            let point = |index: usize| at(index as f64 / (LATENCY_POINTS - 1) as f64);
            (0..LATENCY_POINTS).map(point).collect()
        };
        Self {
            mean_us: stat::mean(&values).unwrap_or(0.0),
            us: latency_of(at),
            quantiles_us: values.first().map(quantiles).unwrap_or_default(),
        }
    }
}

/// The quantile `q` of sorted values; 0 of none.
pub(crate) fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    // The smallest value that at least this share does not exceed.
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.saturating_sub(1).min(last)]
}

/// The four quantiles of a summary.
pub(crate) fn latency_of(at: impl Fn(f64) -> f64) -> Latency {
    Latency {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        max: at(1.0),
    }
}
