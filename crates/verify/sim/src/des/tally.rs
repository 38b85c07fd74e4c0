//! Counts of one simulated run.

use super::queue::Nanos;
use super::record::{TfRecord, Waits};
use crate::summary::Latency;
use sheaf_protocol::splitmix::{self, mix};
use std::collections::BTreeMap;

/// Result of one simulated run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Seed of the run.
    pub seed: u64,
    /// TFs announced.
    pub announced: u64,
    /// TFs that a source named and that were never opened: it is no member of their roster.
    pub unopened: u64,
    /// TFs with their consumers, whole.
    pub complete: u64,
    /// TFs with their consumers, with STFs missing.
    pub incomplete: u64,
    /// TFs that reached no consumer whole, by cause; see [`Point::lost_by`](crate::summary::Point::lost_by).
    pub lost_by: BTreeMap<String, u64>,
    /// TFs without a fate when the run ended.
    pub in_flight: u64,
    /// TFs that were thrown away because of the order of their messages, or that reached two consumers.
    pub out_of_order: u64,
    /// Whether the accounting of the scheduler equals the counts of the events here.
    pub accounting_agrees: bool,
    /// Payload bytes of TFs with their consumers.
    pub bytes: u64,
    /// First TF to last commit, in ns.
    pub span_ns: u64,
    /// First announce to commit of every TF, in ns, in the order of commits.
    pub latencies_ns: Vec<u64>,
    /// Announce to the begin of processing of every TF with its consumer, if announced after the warm-up, in ns;
    /// of those that still wait, the time until the end.
    pub waits_ns: Vec<u64>,
    /// Announce to the end of processing of the same TFs, in ns.
    pub turnarounds_ns: Vec<u64>,
    /// TFs with consumers that had not finished when the run ended.
    pub unprocessed: u64,
    /// TFs with consumers that died before they had finished.
    pub died_unprocessed: u64,
    /// Records of all TFs, by id.
    pub records: Vec<TfRecord>,
    /// Most bytes that one FLP held.
    pub flp_peak_bytes: u64,
    /// Most bytes that one EPN held.
    pub epn_peak_bytes: u64,
    /// TFs by EPN, with the speed of each.
    pub tfs_by_epn: Vec<(u64, f64)>,
    /// Assignments after the first of a TF.
    pub reassigned: u64,
    /// Retransmission timeouts in the network.
    pub timeouts: u64,
    /// STFs that came to an EPN.
    pub stfs: u64,
    /// Events that were simulated.
    pub events: u64,
    /// Time that was simulated, in ns.
    pub simulated_ns: u64,
    /// Hash of all events: equal runs have equal ones.
    pub trace_hash: u64,
}

impl Run {
    /// Returns the number of TFs that reached no consumer whole.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost_by.values().sum()
    }

    /// Returns whether every announced TF has exactly one fate, or is in flight, and two counts of them agree.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        let fates = self.complete + self.lost() + self.in_flight;
        self.accounting_agrees && self.announced == fates
    }

    /// Returns the payload with consumers, in Mbit/s from the first TF to the last commit.
    #[must_use]
    pub fn goodput_mbit_s(&self) -> f64 {
        if self.span_ns == 0 {
            return 0.0;
        }
        self.bytes as f64 * 8000.0 / self.span_ns as f64
    }

    /// Returns Jain's index of TFs by EPN, each in proportion to its speed.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let shares = self
            .tfs_by_epn
            .iter()
            .map(|(tfs, speed)| *tfs as f64 / speed);
        let (sum, squares) = shares.fold((0.0, 0.0), |(sum, squares), share| {
            (sum + share, squares + share * share)
        });
        if squares == 0.0 {
            return 0.0;
        }
        sum * sum / (self.tfs_by_epn.len() as f64 * squares)
    }

    /// Takes the records of all TFs. TFs that were announced before `warm_up` count in no wait.
    pub(super) fn set_records(&mut self, records: Vec<TfRecord>, warm_up: Nanos, end: Nanos) {
        let waits = Waits::of(&records, warm_up, end);
        self.waits_ns = waits.waits_ns;
        self.turnarounds_ns = waits.turnarounds_ns;
        self.unprocessed = waits.unprocessed;
        self.died_unprocessed = waits.died_unprocessed;
        self.records = records;
    }

    pub(super) fn lose(&mut self, cause: &str, count: u64) {
        if count > 0 {
            *self.lost_by.entry(cause.to_owned()).or_default() += count;
        }
    }
}

/// Returns quantiles of `samples` in ns, as µs.
#[must_use]
pub(super) fn quantiles(samples: &mut [u64]) -> Latency {
    if samples.is_empty() {
        return Latency::default();
    }
    samples.sort_unstable();
    let at = |part: f64| {
        let rank = (part * samples.len() as f64).ceil() as usize;
        samples[rank.clamp(1, samples.len()) - 1] as f64 / 1000.0
    };
    Latency {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        max: at(1.0),
    }
}

/// Hash of all events.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceHash(u64);

impl TraceHash {
    pub(super) fn new() -> Self {
        Self(0x5eaf)
    }

    pub(super) fn add(&mut self, at: Nanos, kind: u8, what: u64) {
        let word = at ^ what.rotate_left(20) ^ (u64::from(kind) << 56);
        self.0 = mix(self.0 ^ word).wrapping_add(splitmix::GAMMA);
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_by_rank() {
        let mut samples: Vec<u64> = (1..=1000).rev().map(|us| us * 1000).collect();
        let found = quantiles(&mut samples);
        assert_eq!(
            (found.p50, found.p90, found.p99, found.max),
            (500.0, 900.0, 990.0, 1000.0)
        );
        assert_eq!(quantiles(&mut [7_000]).p50, 7.0);
        assert_eq!(quantiles(&mut []), Latency::default());
    }

    #[test]
    fn fairness_is_one_if_all_get_their_share_and_one_of_n_if_one_gets_all() {
        let fairness = |tfs_by_epn: &[(u64, f64)]| {
            let tfs_by_epn = tfs_by_epn.to_vec();
            Run {
                tfs_by_epn,
                ..Run::default()
            }
            .fairness()
        };
        assert_eq!(fairness(&[(10, 1.0), (20, 2.0), (40, 4.0)]), 1.0);
        assert_eq!(fairness(&[(10, 1.0), (0, 1.0), (0, 1.0), (0, 1.0)]), 0.25);
        assert_eq!(fairness(&[(0, 1.0)]), 0.0);
    }

    #[test]
    fn the_trace_depends_on_what_happens_when_and_in_which_order() {
        let hash = |events: &[(u64, u8, u64)]| {
            let mut hash = TraceHash::new();
            for (at, kind, what) in events {
                hash.add(*at, *kind, *what);
            }
            hash.value()
        };
        let one = hash(&[(1, 2, 3), (4, 5, 6)]);
        assert_eq!(one, hash(&[(1, 2, 3), (4, 5, 6)]));
        assert_ne!(one, hash(&[(4, 5, 6), (1, 2, 3)]));
        assert_ne!(one, hash(&[(1, 2, 3), (4, 5, 7)]));
        assert_ne!(one, hash(&[(1, 2, 3), (4, 6, 6)]));
    }
}
