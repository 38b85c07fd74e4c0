//! Seeded random draws: sizes of STFs and times of processing.
//!
//! Each is drawn from the seed and the number of its TF, and of its FLP: equal seeds give every policy the same TFs, in
//! whatever order they are built, so that runs are compared TF by TF (common random numbers).

use crate::scenario::{Distribution, Fault, Processing, Scenario, SizeModel, Sizes};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Exp1, Gamma, Poisson, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::splitmix::mix;
use std::cell::Cell;

/// Largest STF of model `tpc`, in means of its FLP; larger draws are cut.
const TPC_CUT: f64 = 8.0;
/// Largest factor that all FLPs of a TF have in common; larger draws are cut.
const COMMON_CUT: f64 = 8.0;
/// Standard deviations of the bytes of a TF's collisions above which draws are cut.
const COLLISIONS_CUT: f64 = 10.0;
/// Longest time of processing, in means, of a distribution with a heavy tail; longer draws are cut.
const TAIL_CUT: f64 = 1000.0;

/// Part of a run that random numbers are for: the parts do not disturb each other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    Sizes = 1,
    Processing = 2,
    Stalls = 3,
    Lists = 4,
    CommonSizes = 5,
    Faults = 6,
    Collisions = 7,
    Trace = 8,
}

/// Returns the generator of one item of a part of a run.
fn chance_of(seed: u64, stream: Stream, item: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(mix(mix(seed) ^ (stream as u64)) ^ mix(item))
}

/// Returns the generator of one part of a run.
pub(super) fn chance(seed: u64, stream: Stream) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(mix(seed) ^ (stream as u64))
}

/// Returns the faults of `scenario`, each at the moment that `seed` draws within its time: faults at a fixed moment
/// meet every run in the same part of its turn round the EPNs.
#[must_use]
pub fn drawn_faults(scenario: &Scenario, seed: u64) -> Vec<Fault> {
    let mut chance = chance(seed, Stream::Faults);
    let drawn = |fault: &Fault| Fault {
        at_s: fault.at_s + fault.within_s * chance.random_range(0.0..1.0),
        within_s: 0.0,
        ..fault.clone()
    };
    scenario.faults.iter().map(drawn).collect()
}

/// Sizes of STFs.
#[derive(Debug)]
pub(super) struct SizeDraw {
    sizes: Sizes,
    /// Mean of each FLP in bytes, in model `tpc`.
    means: Vec<f64>,
    rate_hz: f64,
    seed: u64,
    /// Factor of the TF that was asked for last, as all its FLPs ask for it.
    common: Cell<(u64, f64)>,
}

impl SizeDraw {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut chance = chance(seed, Stream::Sizes);
        let sizes = scenario.size.clone();
        let mut means: Vec<f64> = (0..scenario.flps)
            .map(|_| lognormal(&mut chance, sizes.flp_sigma))
            .collect();
        // The farm as a whole brings the bytes of the scenario, whatever was drawn.
        let sum: f64 = means.iter().sum();
        let scale = sizes.bytes as f64 * means.len() as f64 / sum;
        means.iter_mut().for_each(|mean| *mean *= scale);
        Self {
            sizes,
            means,
            rate_hz: scenario.rate_hz,
            seed,
            common: Cell::new((u64::MAX, 1.0)),
        }
    }

    /// Returns the bytes of the STF of `flp` in `tf`, at least 1.
    pub(super) fn bytes(&self, flp: u32, tf: u64) -> u64 {
        let bytes = self.own_bytes(flp, tf);
        if self.sizes.common_sigma <= 0.0 && self.sizes.beam.is_default() {
            return bytes;
        }
        if self.common.get().0 != tf {
            self.common.set((tf, self.common_factor(tf)));
        }
        ((bytes as f64 * self.common.get().1) as u64).max(1)
    }

    /// Returns the factor that all STFs of `tf` have in common.
    fn common_factor(&self, tf: u64) -> f64 {
        let sigma = self.sizes.common_sigma;
        let spread = match sigma > 0.0 {
            true => {
                let mut chance = chance_of(self.seed, Stream::CommonSizes, tf);
                lognormal(&mut chance, sigma).min(COMMON_CUT)
            }
            false => 1.0,
        };
        spread * self.beam_factor(tf)
    }

    /// Returns the bytes that the beam gives to `tf`, in those of the mean TF at the begin of a fill.
    fn beam_factor(&self, tf: u64) -> f64 {
        let beam = &self.sizes.beam;
        let luminosity = beam.luminosity(tf as f64 / self.rate_hz);
        let mut collided = luminosity;
        if let Ok(number) = Poisson::new(beam.collisions * luminosity) {
            let mut chance = chance_of(self.seed, Stream::Collisions, tf);
            let number: f64 = number.sample(&mut chance);
            // A sum of numbers of a gamma distribution is of one as well.
            let variance = beam.collision_spread * beam.collision_spread;
            let bytes = Gamma::new(number / variance, variance);
            collided = bytes.map_or(0.0, |bytes| bytes.sample(&mut chance)) / beam.collisions;
        }
        let collided = collided.min(self.beam_max());
        beam.pedestal + (1.0 - beam.pedestal) * collided
    }

    /// Returns the largest factor of a beam.
    fn beam_max(&self) -> f64 {
        let beam = &self.sizes.beam;
        if beam.collisions <= 0.0 {
            return 1.0;
        }
        let spread = (1.0 + beam.collision_spread * beam.collision_spread) / beam.collisions;
        (1.0 + COLLISIONS_CUT * spread.sqrt()).min(COMMON_CUT)
    }

    /// Returns the bytes without what all FLPs have in common.
    fn own_bytes(&self, flp: u32, tf: u64) -> u64 {
        let mean = self.sizes.bytes;
        let chance = || chance_of(self.seed, Stream::Sizes, tf << 16 | u64::from(flp));
        let bytes = match self.sizes.model {
            SizeModel::Fixed => mean,
            SizeModel::Random => {
                let factor: f64 = chance().random();
                (mean as f64 * (0.5 + factor)) as u64
            }
            SizeModel::Sine => {
                let turn = tf as f64 / f64::from(self.sizes.period_tfs) * std::f64::consts::TAU;
                (mean as f64 * (1.0 + turn.sin())) as u64
            }
            SizeModel::Tpc => {
                let factor = lognormal(&mut chance(), self.sizes.sigma).min(TPC_CUT);
                (self.means[flp as usize] * factor) as u64
            }
            SizeModel::Trace => {
                let trace = &self.sizes.trace_bytes;
                trace[((u64::from(flp) + tf) % trace.len() as u64) as usize]
            }
        };
        bytes.max(1)
    }

    /// Returns the largest STF that `flp` can make, in bytes.
    pub(super) fn bytes_max(&self, flp: u32) -> u64 {
        let mean = self.sizes.bytes;
        let most = match self.sizes.model {
            SizeModel::Fixed => mean,
            SizeModel::Random => mean.saturating_mul(3) / 2,
            SizeModel::Sine => mean.saturating_mul(2),
            SizeModel::Tpc => (self.means[flp as usize] * TPC_CUT) as u64,
            SizeModel::Trace => self.sizes.trace_bytes.iter().copied().max().unwrap_or(1),
        };
        let common = if self.sizes.common_sigma > 0.0 {
            COMMON_CUT
        } else {
            1.0
        };
        ((most as f64 * common * self.beam_max()) as u64).max(1)
    }
}

/// Times of processing, the same in a simulation and in a live farm of equal seeds.
#[derive(Debug)]
pub struct TimeDraw {
    processing: Processing,
    /// Bytes of a mean TF.
    tf_bytes: f64,
    seed: u64,
}

impl TimeDraw {
    /// Returns the times of a run of `seed` for TFs whose mean size is `tf_bytes`.
    #[must_use]
    pub fn new(processing: Processing, tf_bytes: f64, seed: u64) -> Self {
        Self {
            processing,
            tf_bytes,
            seed,
        }
    }

    /// Returns the times of `scenario`.
    pub(super) fn of(scenario: &Scenario, seed: u64) -> Self {
        Self::new(scenario.processing.clone(), scenario.tf_bytes(), seed)
    }

    /// Returns how long an EPN of `speed` works on `tf` of `bytes`, in ns.
    #[must_use]
    pub fn ns(&self, tf: u64, speed: f64, bytes: u64) -> u64 {
        let mean = self.processing.ms * 1e6;
        if mean <= 0.0 {
            return 0;
        }
        let chance = || chance_of(self.seed, Stream::Processing, tf);
        let spread = match self.processing.distribution {
            Distribution::Fixed => 1.0,
            Distribution::Exponential => {
                let drawn: f64 = Exp1.sample(&mut chance());
                drawn
            }
            Distribution::Lognormal => lognormal(&mut chance(), self.processing.sigma),
            Distribution::Pareto => pareto(&mut chance(), self.processing.alpha),
            Distribution::Trace => {
                let times = &self.processing.trace_times;
                let lines = times.len().max(1) as u64;
                let begin = mix(mix(self.seed) ^ Stream::Trace as u64) % lines;
                let at = (begin + tf % lines) % lines;
                times.get(at as usize).copied().unwrap_or(1.0)
            }
        };
        let size = if self.processing.by_size {
            bytes as f64 / self.tf_bytes
        } else {
            1.0
        };
        (mean * spread * size / speed) as u64
    }
}

/// Returns a number of the distribution of Pareto with the shape `alpha` above 1, whose mean is 1 but for the cut.
fn pareto(chance: &mut Xoshiro256PlusPlus, alpha: f64) -> f64 {
    // In (0, 1].
    let drawn = 1.0 - chance.random::<f64>();
    let least = (alpha - 1.0) / alpha;
    (least * drawn.powf(-1.0 / alpha)).min(TAIL_CUT)
}

/// Returns a lognormal number whose mean is 1.
fn lognormal(chance: &mut Xoshiro256PlusPlus, sigma: f64) -> f64 {
    let normal: f64 = StandardNormal.sample(chance);
    (sigma * normal - sigma * sigma / 2.0).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(model: SizeModel) -> Scenario {
        let mut scenario = Scenario {
            flps: 40,
            ..Scenario::default()
        };
        scenario.size.model = model;
        scenario.size.trace_bytes = vec![50_000, 150_000, 100_000];
        scenario
    }

    #[test]
    fn every_size_model_keeps_the_mean_and_its_own_bound() {
        let models = [
            (SizeModel::Fixed, 0.0),
            (SizeModel::Random, 0.02),
            (SizeModel::Sine, 0.01),
            (SizeModel::Tpc, 0.05),
            (SizeModel::Trace, 0.01),
        ];
        for (model, tolerance) in models {
            let draw = SizeDraw::new(&scenario(model), 7);
            let mut sum = 0.0;
            for tf in 0..300 {
                for flp in 0..40 {
                    let bytes = draw.bytes(flp, tf);
                    assert!(bytes <= draw.bytes_max(flp), "{model:?}");
                    sum += bytes as f64;
                }
            }
            let mean = sum / 12_000.0 / 100_000.0;
            assert!((mean - 1.0).abs() <= tolerance, "{model:?}: {mean}");
        }
    }

    #[test]
    fn a_tpc_makes_a_few_flps_bring_most_bytes() {
        let draw = SizeDraw::new(&scenario(SizeModel::Tpc), 7);
        let mut means = draw.means.clone();
        means.sort_by(f64::total_cmp);
        let upper: f64 = means[30..].iter().sum();
        assert!(upper > 0.45 * means.iter().sum::<f64>(), "{means:?}");
    }

    #[test]
    fn processing_takes_its_mean_and_less_on_a_faster_node() {
        for distribution in [
            Distribution::Fixed,
            Distribution::Exponential,
            Distribution::Lognormal,
            Distribution::Pareto,
        ] {
            let mut scenario = scenario(SizeModel::Fixed);
            scenario.processing.ms = 10.0;
            scenario.processing.distribution = distribution;
            scenario.processing.alpha = 3.0;
            let draw = TimeDraw::of(&scenario, 3);
            let total: u64 = (0..20_000).map(|tf| draw.ns(tf, 2.0, 1)).sum();
            let mean_ms = total as f64 / 20_000.0 / 1e6;
            assert!((mean_ms - 5.0).abs() < 0.15, "{distribution:?}: {mean_ms}");
        }
    }

    #[test]
    fn times_of_a_trace_follow_on_each_other_from_a_line_of_the_seed_on() {
        let mut scenario = scenario(SizeModel::Fixed);
        scenario.processing.ms = 20.0;
        scenario.processing.distribution = Distribution::Trace;
        let text = "1\n2\n3\n4\n5\n";
        scenario.processing.set_trace(text).expect("a trace");
        let begins: std::collections::BTreeSet<u64> = (0..40)
            .map(|seed| {
                let draw = TimeDraw::of(&scenario, seed);
                let ms: Vec<u64> = (0..10).map(|tf| draw.ns(tf, 1.0, 1) / 1_000_000).collect();
                let next = |ms: u64| if ms >= 33 { 6 } else { ms + 6 };
                for pair in ms.windows(2) {
                    assert!(pair[1].abs_diff(next(pair[0])) <= 1, "{ms:?}");
                }
                ms[0]
            })
            .collect();
        assert_eq!(begins.len(), 5, "{begins:?}");
    }

    /// Returns mean and relative standard deviation of the TFs from `from` to `until`, in mean TFs.
    fn of_beam(beam: crate::scenario::Beam, from: u64, until: u64) -> (f64, f64) {
        let mut scenario = scenario(SizeModel::Fixed);
        scenario.rate_hz = 100.0;
        scenario.size.beam = beam;
        let draw = SizeDraw::new(&scenario, 7);
        let tfs: Vec<f64> = (from..until)
            .map(|tf| {
                assert_eq!(draw.bytes(0, tf), draw.bytes(39, tf));
                assert!(draw.bytes(0, tf) <= draw.bytes_max(0));
                draw.bytes(0, tf) as f64 / 100_000.0
            })
            .collect();
        let mean = tfs.iter().sum::<f64>() / tfs.len() as f64;
        let squares: f64 = tfs.iter().map(|bytes| (bytes - mean).powi(2)).sum();
        (mean, (squares / tfs.len() as f64).sqrt() / mean)
    }

    #[test]
    fn collisions_of_a_tf_are_drawn_and_luminosity_scales_them() {
        let beam = crate::scenario::Beam {
            collisions: 100.0,
            collision_spread: 1.5,
            pedestal: 0.2,
            lifetime_s: 100.0,
            fill_s: 200.0,
            gap_s: 50.0,
            ..crate::scenario::Beam::default()
        };
        // Relative variance of the part that collides: (1 + 1.5²) / 100.
        let (mean, spread) = of_beam(beam, 0, 500);
        assert!((mean - 0.98).abs() < 0.03, "{mean}");
        assert!((spread - 0.8 * 0.18).abs() < 0.02, "{spread}");
        let (mean, spread) = of_beam(beam, 9_900, 10_100);
        assert!((mean - (0.2 + 0.8 * 0.368)).abs() < 0.03, "{mean}");
        assert!(
            (spread - 0.8 * 0.368 * 0.297 / 0.494).abs() < 0.03,
            "{spread}"
        );
        let (mean, spread) = of_beam(beam, 20_000, 25_000);
        assert!(
            (mean - 0.2).abs() < 1e-6 && spread < 1e-6,
            "{mean} {spread}"
        );
        // Without a number of collisions, sizes follow the luminosity alone.
        let smooth = crate::scenario::Beam {
            collisions: 0.0,
            ..beam
        };
        let (mean, spread) = of_beam(smooth, 9_990, 10_010);
        assert!(
            (mean - 0.494).abs() < 0.002 && spread < 0.01,
            "{mean} {spread}"
        );
    }

    #[test]
    fn what_is_drawn_for_a_tf_does_not_depend_on_the_order() {
        let mut scenario = scenario(SizeModel::Tpc);
        scenario.size.common_sigma = 0.5;
        scenario.processing.ms = 10.0;
        scenario.processing.distribution = Distribution::Exponential;
        let (sizes, times) = (SizeDraw::new(&scenario, 7), TimeDraw::of(&scenario, 7));
        let drawn = |tf: u64| (sizes.bytes(3, tf), times.ns(tf, 1.0, 1));
        let forth: Vec<_> = (0..50).map(drawn).collect();
        let mut back: Vec<_> = (0..50).rev().map(drawn).collect();
        back.reverse();
        assert_eq!(forth, back);
        assert_ne!(forth[0], forth[1]);
    }

    #[test]
    fn what_all_flps_have_in_common_does_not_average_out() {
        let spread = |common_sigma| {
            let mut scenario = scenario(SizeModel::Random);
            scenario.size.common_sigma = common_sigma;
            let draw = SizeDraw::new(&scenario, 7);
            let tf_bytes = |tf| (0..40).map(|flp| draw.bytes(flp, tf)).sum::<u64>() as f64;
            let tfs: Vec<f64> = (0..2000).map(tf_bytes).collect();
            let mean = tfs.iter().sum::<f64>() / tfs.len() as f64;
            let squares: f64 = tfs.iter().map(|bytes| (bytes - mean).powi(2)).sum();
            (
                mean / 4_000_000.0,
                (squares / tfs.len() as f64).sqrt() / mean,
            )
        };
        let (mean, own) = spread(0.0);
        assert!((mean - 1.0).abs() < 0.02 && own < 0.06, "{mean} {own}");
        let (mean, common) = spread(0.5);
        // The standard deviation of a lognormal of σ 0.5 is 0.53 of its mean.
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
        assert!((common - 0.53).abs() < 0.06, "{common}");
    }

    #[test]
    fn faults_come_within_their_time_at_a_moment_of_the_seed() {
        let fault = Fault {
            at_s: 10.0,
            within_s: 2.0,
            kind: crate::scenario::FaultKind::Crash,
            flp: None,
            epn: Some(0),
            for_s: None,
            factor: None,
        };
        let exact = Fault {
            within_s: 0.0,
            ..fault.clone()
        };
        let scenario = Scenario {
            faults: vec![fault, exact],
            ..Scenario::default()
        };
        let at = |seed| {
            drawn_faults(&scenario, seed)
                .iter()
                .map(|fault| fault.at_s)
                .collect::<Vec<f64>>()
        };
        let drawn: Vec<f64> = (0..50).map(|seed| at(seed)[0]).collect();
        assert!(
            drawn.iter().all(|at| (10.0..12.0).contains(at)),
            "{drawn:?}"
        );
        let [low, high] = [f64::min, f64::max].map(|of| drawn.iter().copied().reduce(of));
        assert!(low < Some(10.5) && high > Some(11.5), "{low:?} {high:?}");
        assert_eq!((at(3), at(3)[1]), (at(3), 10.0));
    }
}
