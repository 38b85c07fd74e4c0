//! Best policy of a farm, and how far the others are from it.

use super::{Farm, Row};
use crate::experiment::result::WaitsRun;
use sheaf_figures::stat;
use sheaf_sim::scenario::ORACLE;

/// Time of a run that policies are compared by.
pub(super) type Measure = fn(&WaitsRun) -> f64;

/// Policies that leave this much more of all TFs unfinished than the best are not compared by times, in percent: a
/// policy that loses what is late has short ones.
const UNFINISHED_SLACK_PERCENT: f64 = 0.1;
/// Probability with which all intervals of a farm together hold.
pub(super) const CONFIDENCE: f64 = 0.95;

/// Time of one policy ÷ that of another, with the same TFs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// Geometric mean over the seeds.
    pub(super) mean: f64,
    /// Interval of the mean; `None` of a single seed.
    pub(super) interval: Option<[f64; 2]>,
}

impl Ratio {
    /// Compares runs of equal seeds. `None` if there are none, or if a time is 0.
    pub(super) fn of(
        row: &Row<'_>,
        to: &Row<'_>,
        measure: Measure,
        confidence: f64,
    ) -> Option<Self> {
        let mut logarithms = Vec::new();
        for (run, waits) in &row.runs {
            let same = to.runs.iter().find(|(other, _)| other.seed == run.seed);
            let Some((_, other)) = same else {
                continue;
            };
            let (wait, other) = (measure(waits), measure(other));
            if wait <= 0.0 || other <= 0.0 {
                return None;
            }
            logarithms.push((wait / other).ln());
        }
        let interval = match logarithms.len() {
            0 | 1 => None,
            _ => stat::mean_interval(&logarithms, confidence),
        };
        Some(Self {
            mean: stat::mean(&logarithms)?.exp(),
            interval: interval.map(|ends| ends.map(f64::exp)),
        })
    }

    /// Whether the two may be equal.
    fn may_be_one(&self) -> bool {
        self.interval
            .is_none_or(|[low, high]| low <= 1.0 && 1.0 <= high)
    }
}

/// Order of the policies of one farm.
#[derive(Debug)]
pub(super) struct Rank {
    /// Place of the best row.
    pub(super) best: usize,
    /// Each row ÷ the best one; `None` for the best itself, and where a time is 0.
    pub(super) to_best: Vec<Option<Ratio>>,
    /// Whether the row is among those that the best was chosen of.
    candidates: Vec<bool>,
}

impl Rank {
    /// Returns the order; `None` if no policy without foresight was run.
    pub(super) fn of(farm: &Farm<'_>, measure: Measure) -> Option<Self> {
        let is_real = |row: &Row<'_>| row.point.policy != ORACLE;
        let real = farm.rows.iter().filter(|row| is_real(row));
        let least = real.map(Row::unfinished_percent).min_by(f64::total_cmp)?;
        let is_candidate = |row: &Row<'_>| {
            is_real(row) && row.unfinished_percent() <= least + UNFINISHED_SLACK_PERCENT
        };
        let candidates: Vec<bool> = farm.rows.iter().map(is_candidate).collect();
        let places = candidates.iter().enumerate().filter(|(_, is_in)| **is_in);
        let count = places.clone().count();
        let waits = places.map(|(at, _)| (at, farm.rows[at].mean_ms(measure)));
        let (best, _) = waits.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let comparisons = count.saturating_sub(1).max(1) as f64;
        let confidence = 1.0 - (1.0 - CONFIDENCE) / comparisons;
        let to_best = |(at, row): (usize, &Row<'_>)| match at == best {
            true => None,
            false => Ratio::of(row, &farm.rows[best], measure, confidence),
        };
        Some(Self {
            best,
            to_best: farm.rows.iter().enumerate().map(to_best).collect(),
            candidates,
        })
    }

    /// Whether the row at `at` is among those that the best was chosen of.
    pub(super) fn is_candidate(&self, at: usize) -> bool {
        self.candidates[at]
    }

    /// Policies of which it is not known that they are worse than the best.
    pub(super) fn as_good<'f, 'r>(
        &'f self,
        farm: &'f Farm<'r>,
    ) -> impl Iterator<Item = &'f Row<'r>> + 'f {
        let rows = farm.rows.iter().enumerate();
        let is_as_good = move |(at, row): (usize, &'f Row<'r>)| {
            let may_be = self.to_best[at].as_ref().is_some_and(Ratio::may_be_one);
            (self.candidates[at] && may_be).then_some(row)
        };
        rows.filter_map(is_as_good)
    }
}
