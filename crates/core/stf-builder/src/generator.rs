//! Payloads of a wanted size without a detector: for load tests and experiments.
//!
//! The payloads are [`Opaque`](PayloadFormat::Opaque): pseudo-random bytes without structure, of which only a digest
//! can be checked. They are slices of one pool that is filled at the start: no byte is copied, and the offset differs
//! from TF to TF so that the bytes are cold in the caches, as detector data are. The pool is digested when it is
//! filled, as a readout digests what it writes, and not once more for each payload.

use crate::source::{HeapSlots, Made, Payload, Slots, StfSource};
use bytes::Bytes;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use sheaf_protocol::{FlpId, PayloadFormat, SliceDigests, TfId};
use std::sync::Arc;
use thiserror::Error;

/// Change of the payload size from TF to TF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeModel {
    /// Always the mean.
    #[default]
    Equal,
    /// Uniform from half the mean to one and a half times the mean.
    Random,
    /// A sine around the mean: load that swells and ebbs, on all FLPs together.
    Sine,
    /// Log-normal with the given mean: mostly small, sometimes far larger, as collisions are.
    Lognormal,
    /// The sizes of a list, over and over.
    Trace,
}

/// Configuration of a generator: the part of an FLP's source table that is about sizes and content.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeneratorConfig {
    /// Change of the sizes.
    pub sizes: SizeModel,
    /// Mean payload bytes of one STF. Not used by `trace`.
    pub bytes_mean: u64,
    /// `sine`: TFs from crest to crest.
    pub sine_period_tfs: u64,
    /// `sine`: height of the crest over the mean, as a part of the mean, 0 to 1.
    pub sine_amplitude: f64,
    /// `lognormal`: standard deviation of the logarithm, 0 to 3. Sizes are capped at 16 times the mean and at the pool.
    pub lognormal_sigma: f64,
    /// `trace`: the sizes, in bytes.
    pub trace_bytes: Vec<u64>,
    /// Seed of sizes and content. Each FLP draws its own sequence from it.
    pub seed: u64,
    /// Bytes of the pool that payloads are slices of; at least the largest payload.
    pub pool_bytes: u64,
}

impl Default for GeneratorConfig {
    fn default() -> Self {
        Self {
            sizes: SizeModel::Equal,
            bytes_mean: 1 << 20,
            sine_period_tfs: 1000,
            sine_amplitude: 0.5,
            lognormal_sigma: 0.5,
            trace_bytes: Vec::new(),
            seed: 0,
            pool_bytes: 64 << 20,
        }
    }
}

/// Error for a configuration of which no generator can be made.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GeneratorError {
    /// The pool must hold the largest payload.
    #[error("payloads reach {needed} bytes, the pool has {pool_bytes} (pool_bytes)")]
    Pool {
        /// Bytes of the largest payload.
        needed: u64,
        /// Bytes of the pool.
        pool_bytes: u64,
    },
    /// There is no memory for the pool in the given slots.
    #[error("no room for a pool of {pool_bytes} bytes (pool_bytes)")]
    Room {
        /// Bytes of the pool.
        pool_bytes: u64,
    },
    /// The pool does not fit the address space.
    #[error("a pool of {pool_bytes} bytes does not fit this machine (pool_bytes)")]
    Address {
        /// Bytes asked for.
        pool_bytes: u64,
    },
    /// `trace` without sizes.
    #[error("sizes = \"trace\" needs at least one size (trace_bytes)")]
    TraceEmpty,
    /// `sine` without a period.
    #[error("sizes = \"sine\" needs a period of at least 1 TF (sine_period_tfs)")]
    Period,
    /// The crest is not a part of the mean.
    #[error("sine_amplitude is {found}, expected 0 to 1")]
    Amplitude {
        /// The value found.
        found: f64,
    },
    /// The spread of the log-normal sizes is out of range.
    #[error("lognormal_sigma is {found}, expected 0 to 3")]
    Sigma {
        /// The value found.
        found: f64,
    },
}

/// Upper bound of log-normal sizes, in means: at the default spread one in a hundred million is cut.
const LOGNORMAL_MEANS_MAX: u64 = 16;

/// Endless payloads of one FLP.
#[derive(Clone, Debug)]
pub struct Generator {
    config: GeneratorConfig,
    flp: FlpId,
    pool: Bytes,
    digests: Arc<SliceDigests>,
    bytes_max: u64,
}

impl Generator {
    /// Returns a generator for `flp`. Fills the pool, which takes about 30 ms for 64 MiB.
    ///
    /// # Errors
    ///
    /// [`GeneratorError`] if a value of `config` is out of its range.
    pub fn new(config: GeneratorConfig, flp: FlpId) -> Result<Self, GeneratorError> {
        Self::new_in(config, flp, &mut HeapSlots)
    }

    /// Returns a generator for `flp` with its pool in `slots`: in memory of huge pages, for instance, which the kernel
    /// reads faster than that of the heap.
    ///
    /// # Errors
    ///
    /// [`GeneratorError`] if a value of `config` is out of its range, or `slots` has no room for the pool.
    pub fn new_in(
        config: GeneratorConfig,
        flp: FlpId,
        slots: &mut dyn Slots,
    ) -> Result<Self, GeneratorError> {
        config.check()?;
        let bytes_max = config.bytes_max();
        let pool_bytes =
            usize::try_from(config.pool_bytes).map_err(|_| GeneratorError::Address {
                pool_bytes: config.pool_bytes,
            })?;
        let mut random = random(config.seed, flp, u64::MAX);
        let pool = slots
            .fill(pool_bytes, &mut |pool| random.fill_bytes(pool))
            .ok_or(GeneratorError::Room {
                pool_bytes: config.pool_bytes,
            })?;
        let digests = Arc::new(SliceDigests::new(&pool));
        Ok(Self {
            config,
            flp,
            pool,
            digests,
            bytes_max,
        })
    }

    /// Returns the payload bytes of `tf`: a pure function of seed, FLP and TF.
    #[must_use]
    pub fn payload_bytes(&self, tf: TfId) -> u64 {
        self.draw_size(tf, &mut random(self.config.seed, self.flp, tf.0))
    }

    fn draw_size(&self, tf: TfId, random: &mut Xoshiro256PlusPlus) -> u64 {
        let mean = self.config.bytes_mean;
        match self.config.sizes {
            SizeModel::Equal => mean,
            SizeModel::Random => random.random_range(mean / 2..=self.bytes_max),
            SizeModel::Sine => {
                let period = self.config.sine_period_tfs;
                let phase = (tf.0 % period) as f64 / period as f64;
                let swing = self.config.sine_amplitude * (phase * std::f64::consts::TAU).sin();
                ((mean as f64 * (1.0 + swing)) as u64).min(self.bytes_max)
            }
            SizeModel::Lognormal => {
                // The mean of a log-normal is exp(mu + sigma²/2), so this mu keeps it.
                let sigma = self.config.lognormal_sigma;
                let mu = (mean as f64).ln() - sigma * sigma / 2.0;
                LogNormal::new(mu, sigma)
                    .map_or(mean, |sizes| sizes.sample(random) as u64)
                    .min(self.bytes_max)
            }
            SizeModel::Trace => {
                let sizes = &self.config.trace_bytes;
                sizes[(tf.0 % sizes.len() as u64) as usize]
            }
        }
    }
}

impl GeneratorConfig {
    /// Checks that every value is in its range.
    ///
    /// # Errors
    ///
    /// [`GeneratorError`] names the first value that is not.
    pub fn check(&self) -> Result<(), GeneratorError> {
        if self.sizes == SizeModel::Trace && self.trace_bytes.is_empty() {
            return Err(GeneratorError::TraceEmpty);
        }
        if self.sine_period_tfs == 0 {
            return Err(GeneratorError::Period);
        }
        if !(0.0..=1.0).contains(&self.sine_amplitude) {
            return Err(GeneratorError::Amplitude {
                found: self.sine_amplitude,
            });
        }
        if !(0.0..=3.0).contains(&self.lognormal_sigma) {
            return Err(GeneratorError::Sigma {
                found: self.lognormal_sigma,
            });
        }
        let needed = self.bytes_max();
        if needed > self.pool_bytes {
            return Err(GeneratorError::Pool {
                needed,
                pool_bytes: self.pool_bytes,
            });
        }
        Ok(())
    }

    /// Returns the bytes of the largest payload.
    fn bytes_max(&self) -> u64 {
        let mean = self.bytes_mean;
        match self.sizes {
            SizeModel::Equal => mean,
            SizeModel::Random => mean.saturating_add(mean / 2),
            SizeModel::Sine => (mean as f64 * (1.0 + self.sine_amplitude)) as u64,
            // The pool caps the rare giants, but a mean that does not fit is a mistake.
            SizeModel::Lognormal => mean
                .saturating_mul(LOGNORMAL_MEANS_MAX)
                .min(self.pool_bytes)
                .max(mean),
            SizeModel::Trace => self.trace_bytes.iter().copied().max().unwrap_or(0),
        }
    }
}

impl StfSource for Generator {
    fn format(&self) -> PayloadFormat {
        PayloadFormat::Opaque
    }

    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn make(&mut self, tf: TfId, _: &mut dyn Slots) -> Made {
        let mut random = random(self.config.seed, self.flp, tf.0);
        let bytes = usize::try_from(self.draw_size(tf, &mut random))
            .expect("at most the pool, which is in memory");
        let slack = (self.pool.len() - bytes) as u64;
        // Whole cache lines, so that every payload is aligned like a received one.
        let offset = (random.random_range(0..=slack) as usize) & !63;
        let place = offset..offset + bytes;
        Made::Payload(Payload {
            bytes: self.pool.slice(place.clone()),
            digest: self.digests.of(&self.pool, place),
        })
    }
}

/// Returns the random numbers of one TF of one FLP.
fn random(seed: u64, flp: FlpId, tf: u64) -> Xoshiro256PlusPlus {
    // Odd constants of SplitMix64 (Steele, Lea, Flood 2014) keep neighbouring FLPs and TFs apart;
    // `seed_from_u64` mixes again.
    let key = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(
            u64::from(flp.0)
                .wrapping_add(1)
                .wrapping_mul(0xbf58_476d_1ce4_e5b9),
        )
        .wrapping_add(tf.wrapping_mul(0x94d0_49bb_1331_11eb));
    Xoshiro256PlusPlus::seed_from_u64(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::HeapSlots;
    use proptest::prelude::*;

    fn config(sizes: SizeModel) -> GeneratorConfig {
        GeneratorConfig {
            sizes,
            bytes_mean: 10_000,
            sine_period_tfs: 100,
            trace_bytes: vec![1, 20, 300],
            pool_bytes: 1 << 18,
            ..GeneratorConfig::default()
        }
    }

    fn payload(generator: &mut Generator, tf: u64) -> Bytes {
        match generator.make(TfId(tf), &mut HeapSlots) {
            Made::Payload(payload) => payload.bytes,
            other => panic!("a generator is endless, got {other:?}"),
        }
    }

    #[test]
    fn sizes_keep_their_mean_and_their_range() {
        for (sizes, low, high, mean) in [
            (SizeModel::Equal, 10_000, 10_000, 10_000.0),
            (SizeModel::Random, 5_000, 15_000, 10_000.0),
            (SizeModel::Sine, 4_999, 15_000, 10_000.0),
            (SizeModel::Lognormal, 500, 160_000, 10_000.0),
            (SizeModel::Trace, 1, 300, 107.0),
        ] {
            let generator = Generator::new(config(sizes), FlpId(1)).unwrap();
            let drawn: Vec<u64> = (0..30_000)
                .map(|tf| generator.payload_bytes(TfId(tf)))
                .collect();
            let average = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
            assert!(
                (average / mean - 1.0).abs() < 0.01,
                "{sizes:?} has mean {average}"
            );
            assert!(
                drawn.iter().all(|size| (low..=high).contains(size)),
                "{sizes:?}"
            );
            assert!(
                drawn.iter().all(|size| *size <= generator.bytes_max()),
                "{sizes:?}"
            );
        }
    }

    #[test]
    fn tfs_and_flps_and_seeds_differ() {
        let mut first = Generator::new(config(SizeModel::Equal), FlpId(0)).unwrap();
        let mut second = Generator::new(config(SizeModel::Equal), FlpId(1)).unwrap();
        let seeded = GeneratorConfig {
            seed: 1,
            ..config(SizeModel::Equal)
        };
        let mut third = Generator::new(seeded, FlpId(0)).unwrap();
        let base = payload(&mut first, 5);
        for other in [
            payload(&mut first, 6),
            payload(&mut second, 5),
            payload(&mut third, 5),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn it_keeps_the_contract_of_sources() {
        for sizes in [SizeModel::Random, SizeModel::Trace] {
            let mut generator = Generator::new(config(sizes), FlpId(3)).unwrap();
            crate::source::contract::check(&mut generator, 50);
        }
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        let check = |change: fn(&mut GeneratorConfig), expected: &str| {
            let mut config = GeneratorConfig::default();
            change(&mut config);
            assert_eq!(
                Generator::new(config, FlpId(0)).unwrap_err().to_string(),
                expected
            );
        };
        check(
            |c| c.pool_bytes = 1000,
            "payloads reach 1048576 bytes, the pool has 1000 (pool_bytes)",
        );
        check(
            |c| c.sizes = SizeModel::Trace,
            "sizes = \"trace\" needs at least one size (trace_bytes)",
        );
        check(
            |c| c.sine_period_tfs = 0,
            "sizes = \"sine\" needs a period of at least 1 TF (sine_period_tfs)",
        );
        check(
            |c| c.sine_amplitude = 1.5,
            "sine_amplitude is 1.5, expected 0 to 1",
        );
        check(
            |c| c.lognormal_sigma = f64::NAN,
            "lognormal_sigma is NaN, expected 0 to 3",
        );
    }

    proptest! {
        #[test]
        fn the_same_tf_has_the_same_bytes_whatever_came_before(
            tfs in prop::collection::vec(any::<u64>(), 1..20), seed in any::<u64>(), flp in any::<u16>()
        ) {
            let config = GeneratorConfig { seed, ..config(SizeModel::Lognormal) };
            let mut one = Generator::new(config.clone(), FlpId(flp)).unwrap();
            let mut other = Generator::new(config, FlpId(flp)).unwrap();
            let forward: Vec<Bytes> = tfs.iter().map(|tf| payload(&mut one, *tf)).collect();
            let mut backward: Vec<Bytes> = tfs.iter().rev().map(|tf| payload(&mut other, *tf)).collect();
            backward.reverse();
            for (tf, bytes) in tfs.iter().zip(&forward) {
                prop_assert_eq!(bytes.len() as u64, one.payload_bytes(TfId(*tf)));
            }
            prop_assert_eq!(forward, backward);
        }
    }
}
