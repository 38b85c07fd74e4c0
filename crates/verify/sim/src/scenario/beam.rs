//! Beams: what the collisions of a collider do to the sizes of STFs.

use serde::{Deserialize, Serialize};

/// Collisions that the sizes of STFs follow, the same for all FLPs: fills whose luminosity falls, gaps between fills,
/// and a number of collisions in each TF that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Beam {
    /// Mean number of collisions in a TF at the begin of a fill, of which each TF draws its own (Poisson); 0 for
    /// bytes in proportion to the luminosity alone.
    pub collisions: f64,
    /// Standard deviation of the bytes of one collision, in means; they are of a gamma distribution.
    pub collision_spread: f64,
    /// Share of the bytes at the begin of a fill that comes without any collision: headers, noise, calibration.
    pub pedestal: f64,
    /// Time from the begin of a fill for which its luminosity is levelled, in s.
    pub level_s: f64,
    /// Time after that in which the luminosity falls to 1/e, in s; 0 if it stays.
    pub lifetime_s: f64,
    /// Length of a fill, in s; 0 for one without end.
    pub fill_s: f64,
    /// Time from the end of a fill to the begin of the next one, in s.
    pub gap_s: f64,
}

impl Default for Beam {
    fn default() -> Self {
        Self {
            collisions: 0.0,
            collision_spread: 1.0,
            pedestal: 0.0,
            level_s: 0.0,
            lifetime_s: 0.0,
            fill_s: 0.0,
            gap_s: 0.0,
        }
    }
}

impl Beam {
    /// Whether sizes follow no beam.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the luminosity at `seconds` after the begin of the first fill, in that of the begin of a fill.
    #[must_use]
    pub fn luminosity(&self, seconds: f64) -> f64 {
        let seconds = match self.fill_s > 0.0 {
            true => seconds % (self.fill_s + self.gap_s),
            false => seconds,
        };
        if self.fill_s > 0.0 && seconds >= self.fill_s {
            return 0.0;
        }
        let falling_s = (seconds - self.level_s).max(0.0);
        match self.lifetime_s > 0.0 {
            true => (-falling_s / self.lifetime_s).exp(),
            false => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_is_levelled_then_falls_and_a_gap_follows() {
        let beam = Beam {
            level_s: 10.0,
            lifetime_s: 20.0,
            fill_s: 50.0,
            gap_s: 25.0,
            ..Beam::default()
        };
        for (seconds, expected) in [
            (0.0, 1.0),
            (10.0, 1.0),
            (30.0, (-1.0f64).exp()),
            (49.9, (-1.995f64).exp()),
            (50.0, 0.0),
            (74.9, 0.0),
            (75.0, 1.0),
            (105.0, (-1.0f64).exp()),
        ] {
            let found = beam.luminosity(seconds);
            assert!((found - expected).abs() < 1e-9, "{seconds}: {found}");
        }
        assert!((Beam::default().luminosity(1e6) - 1.0).abs() < 1e-9);
    }
}
