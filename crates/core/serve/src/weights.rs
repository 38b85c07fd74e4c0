//! Weights that follow the measured load of the servers.

use crate::config::WeightsConfig;
use serde::{Deserialize, Serialize};
use sheaf_protocol::Timestamp;
use std::time::Duration;

/// Load of a server as its agent measures it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct LoadReport {
    /// Bytes per second that the server sends and receives.
    pub bytes_per_s: f64,
    /// Connections to the service.
    pub transfers: u64,
    /// Share of its processors that is busy, 0 to 1.
    pub cpu: f64,
    /// Share of the time in which tasks waited for a disk, 0 to 1.
    pub disk_wait: f64,
    /// Share of its network card that is used, 0 to 1; 0 if its speed is not known.
    pub network: f64,
}

impl LoadReport {
    /// Share of the scarcest resource that is used, 0 to 1.
    #[must_use]
    pub fn used(&self) -> f64 {
        let most = self.cpu.max(self.disk_wait).max(self.network);
        if most.is_finite() {
            most.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// Factor on a server's weight that follows its load.
///
/// Proportional, never "all to the least loaded": a server that is used 1.2 times as much as the mean gets 1 ÷ 1.2 of
/// its weight in the next step, within [`WeightsConfig::step_percent`], above [`WeightsConfig::floor_percent`] of what
/// is configured; differences below [`WeightsConfig::hysteresis_percent`] change nothing. XRootD's choice of the least
/// load makes hot spots, as RAL has reported, since all balancers see one old report at once.
#[derive(Clone, Debug)]
pub struct Weights {
    factor: f64,
    used: Option<f64>,
    reported_at: Option<Timestamp>,
    latest: LoadReport,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            factor: 1.0,
            used: None,
            reported_at: None,
            latest: LoadReport::default(),
        }
    }
}

impl Weights {
    /// Factor on the configured weight.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Latest report, and when it came.
    #[must_use]
    pub fn latest(&self) -> Option<(Timestamp, LoadReport)> {
        self.reported_at.map(|at| (at, self.latest))
    }

    /// Takes a report into the moving average.
    pub fn handle_report(&mut self, now: Timestamp, report: LoadReport, config: &WeightsConfig) {
        let used = report.used();
        let weight = share(config.average_percent).clamp(0.01, 1.0);
        self.used = Some(self.used.map_or(used, |old| old + weight * (used - old)));
        self.reported_at = Some(now);
        self.latest = report;
    }

    /// Averaged use of a server whose report is not older than [`WeightsConfig::stale_ms`].
    fn fresh(&self, now: Timestamp, config: &WeightsConfig) -> Option<f64> {
        let at = self.reported_at?;
        let is_fresh = now.since(at) <= Duration::from_millis(config.stale_ms);
        self.used.filter(|_| is_fresh)
    }

    /// Moves the factors of all servers of a service one step. Servers without a fresh report keep theirs. Returns
    /// whether any has changed.
    pub fn step<'a>(
        all: impl IntoIterator<Item = &'a mut Self>,
        now: Timestamp,
        config: &WeightsConfig,
    ) -> bool {
        let mut all: Vec<&mut Self> = all.into_iter().collect();
        let fresh: Vec<f64> = all
            .iter()
            .filter_map(|one| one.fresh(now, config))
            .collect();
        let mean = fresh.iter().sum::<f64>() / fresh.len().max(1) as f64;
        // Idle servers have nothing to share out; their ratios are noise.
        if fresh.len() < 2 || mean < share(config.idle_percent) {
            return false;
        }
        let step = share(config.step_percent);
        let least_change = share(config.hysteresis_percent);
        let floor = share(config.floor_percent);
        let mut has_changed = false;
        for one in &mut all {
            let Some(used) = one.fresh(now, config) else {
                continue;
            };
            let ratio = mean / used.max(mean / 100.0);
            if (ratio - 1.0).abs() < least_change {
                continue;
            }
            let next = one.factor * ratio.clamp(1.0 - step, 1.0 + step);
            let next = next.clamp(floor, 1.0 / floor);
            if (next - one.factor).abs() > 1e-9 {
                one.factor = next;
                has_changed = true;
            }
        }
        has_changed
    }
}

/// Returns a number in per cent as a share.
fn share(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(s: u64) -> Timestamp {
        Timestamp(0) + Duration::from_secs(s)
    }

    fn report(cpu: f64) -> LoadReport {
        LoadReport {
            cpu,
            ..LoadReport::default()
        }
    }

    /// Runs servers of these powers at one total load; returns the largest ÷ smallest use in the end.
    fn settle(powers: &[f64], steps: u64) -> f64 {
        let config = WeightsConfig::default();
        let mut all = vec![Weights::default(); powers.len()];
        let total = 0.5 * powers.iter().sum::<f64>();
        let mut used = Vec::new();
        for step in 0..steps {
            let sum: f64 = all.iter().map(Weights::factor).sum();
            used = all
                .iter()
                .zip(powers)
                .map(|(one, power)| (total * one.factor() / sum / power).min(1.0))
                .collect();
            for (one, used) in all.iter_mut().zip(&used) {
                one.handle_report(at(step), report(*used), &config);
            }
            Weights::step(&mut all, at(step), &config);
        }
        let most = used.iter().copied().fold(0.0, f64::max);
        most / used.iter().copied().fold(1.0, f64::min)
    }

    #[test]
    fn weights_settle_where_all_servers_are_used_alike() {
        // One server of half the power, as an old machine in a fleet.
        assert!(settle(&[1.0, 1.0, 1.0, 0.5], 1) > 1.8);
        let end = settle(&[1.0, 1.0, 1.0, 0.5], 60);
        assert!(end < 1.25, "most ÷ least use {end}");
    }

    #[test]
    fn old_reports_and_idle_servers_change_nothing() {
        let config = WeightsConfig::default();
        let mut all = vec![Weights::default(); 2];
        all[0].handle_report(at(0), report(0.9), &config);
        all[1].handle_report(at(0), report(0.1), &config);
        assert!(!Weights::step(&mut all, at(100), &config));
        let mut idle = vec![Weights::default(); 2];
        idle[0].handle_report(at(0), report(0.001), &config);
        idle[1].handle_report(at(0), report(0.003), &config);
        assert!(!Weights::step(&mut idle, at(0), &config));
    }

    proptest! {
        #[test]
        fn a_step_stays_within_its_bounds(loads in prop::collection::vec(0.0f64..1.0, 2..9)) {
            let config = WeightsConfig::default();
            let mut all = vec![Weights::default(); loads.len()];
            for (one, load) in all.iter_mut().zip(&loads) {
                one.handle_report(at(0), report(*load), &config);
            }
            for step in 0..50 {
                let before: Vec<f64> = all.iter().map(Weights::factor).collect();
                Weights::step(&mut all, at(0), &config);
                for (one, before) in all.iter().zip(before) {
                    let change = one.factor() / before;
                    prop_assert!((0.7499..=1.2501).contains(&change), "step {step}: {change}");
                    let floor = share(config.floor_percent);
                    prop_assert!((floor..=1.0 / floor).contains(&one.factor()));
                }
            }
        }
    }
}
