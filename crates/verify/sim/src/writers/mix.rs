//! Mixes of streams: shares of the bytes, and how they change from block to block.

use rand::SeedableRng as _;
use rand_distr::{Distribution as _, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use sheaf_protocol::splitmix;
use sheaf_write::StreamId;
use thiserror::Error;

/// Streams and their shares of the bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mix {
    /// Name in reports.
    pub name: String,
    /// Shares, largest first; they add up to 1.
    pub shares: Vec<f64>,
    /// Spread of the shares from block to block: sigma of a lognormal factor, 0 for steady ones.
    pub drift: f64,
}

/// Mixes that are there by name: the two of the slides with their unnamed minor streams, and a flat one.
pub const MIXES: [(&str, &[f64], usize); 3] = [
    ("sfo-2016", &[0.70, 0.07, 0.05], 20),
    ("sfo-2015", &[0.80, 0.06, 0.03], 20),
    ("flat", &[0.25, 0.22, 0.20], 20),
];

/// Error for a name that no mix has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("mix `{name}`, expected one of {}", MIXES.map(|(name, ..)| name).join(", "))]
pub struct UnknownMix {
    /// Name that was asked for.
    pub name: String,
}

impl Mix {
    /// Finds a mix by name.
    ///
    /// # Errors
    ///
    /// [`UnknownMix`], which lists the names.
    pub fn named(name: &str, drift: f64) -> Result<Self, UnknownMix> {
        let found = MIXES.into_iter().find(|(known, ..)| *known == name);
        let (name, major, minor) = found.ok_or_else(|| UnknownMix {
            name: name.to_owned(),
        })?;
        let left = 1.0 - major.iter().sum::<f64>();
        let minor_share = left / minor as f64;
        let shares = major.iter().copied();
        Ok(Self {
            name: name.to_owned(),
            shares: shares
                .chain(std::iter::repeat_n(minor_share, minor))
                .collect(),
            drift,
        })
    }

    /// Returns the shares of one block after the other, the same for the same seed.
    pub fn blocks(&self, seed: u64) -> impl Iterator<Item = Vec<f64>> + '_ {
        // Numbers of their own, so that the blocks of a seed are the same for all assignments.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(splitmix::hash(seed));
        std::iter::repeat_with(move || self.draw(&mut rng))
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
        let Some(factor) = (self.drift > 0.0)
            .then(|| LogNormal::new(0.0, self.drift).ok())
            .flatten()
        else {
            return self.shares.clone();
        };
        let drawn: Vec<f64> = self
            .shares
            .iter()
            .map(|share| share * factor.sample(rng))
            .collect();
        let sum: f64 = drawn.iter().sum();
        drawn.iter().map(|share| share / sum).collect()
    }
}

/// Draws a stream by its share; `lot` is 0 to 1.
#[must_use]
pub fn stream_of(shares: &[f64], lot: f64) -> StreamId {
    let mut sum = 0.0;
    let last = shares.len().saturating_sub(1);
    let found = shares.iter().position(|share| {
        sum += share;
        lot < sum
    });
    StreamId(u16::try_from(found.unwrap_or(last)).unwrap_or(u16::MAX))
}

/// Returns the bound of every assignment of whole files: the rate of one worker ÷ the share of the fullest stream, or
/// that of all workers together.
#[must_use]
pub fn file_bound(shares: &[f64], worker_mb_s: f64, workers: u32) -> f64 {
    let fullest = shares.iter().copied().fold(0.0, f64::max);
    worker_mb_s / fullest.max(1.0 / f64::from(workers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_mix_has_is_answered_with_the_known_ones() {
        let error = Mix::named("sfo-2017", 0.0).unwrap_err().to_string();
        assert_eq!(
            error,
            "mix `sfo-2017`, expected one of sfo-2016, sfo-2015, flat"
        );
    }

    #[test]
    fn shares_add_up_and_drift_by_the_seed() {
        for (name, ..) in MIXES {
            let mix = Mix::named(name, 0.25).expect(name);
            let blocks = |seed| mix.blocks(seed).take(5).collect::<Vec<_>>();
            for shares in blocks(1) {
                let sum: f64 = shares.iter().sum();
                assert!((sum - 1.0).abs() < 1e-9, "{name}: {sum}");
            }
            assert_eq!(blocks(1), blocks(1));
            assert_ne!(blocks(1), blocks(2));
            assert_ne!(blocks(1)[0], blocks(1)[1]);
        }
    }

    #[test]
    fn the_bound_is_that_of_the_fullest_stream_or_of_all_workers() {
        assert_eq!(file_bound(&[0.5, 0.3, 0.2], 100.0, 4), 200.0);
        assert_eq!(file_bound(&[0.5, 0.3, 0.2], 100.0, 1), 100.0);
    }
}
