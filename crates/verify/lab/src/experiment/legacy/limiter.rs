//! Pacers of heartbeats: absolute deadlines, or FairMQ's rate limiter.

use std::time::{Duration, Instant};

/// Paces a loop.
#[derive(Debug)]
pub(super) enum Pace {
    /// Every beat has its time, whatever became of the last one.
    Absolute {
        begin: Instant,
        period: Duration,
        beats: u64,
    },
    /// A controller that looks at the mean time of a beat once in a while, and does nothing within its dead band.
    Feedback(Feedback),
}

/// The controller of FairMQ 1.3 (`fairmq/tools/RateLimit.h`): it sleeps a while in every beat, and corrects that only
/// if beats take more than 1/64 longer or shorter than they should.
#[derive(Debug)]
pub(super) struct Feedback {
    period_ns: f64,
    sleep_ns: f64,
    /// Beats between two looks: about a second.
    between: u32,
    left: u32,
    since: Instant,
}

/// Within this part of the period nothing is corrected.
const DEAD_BAND: f64 = 1.0 / 64.0;

impl Pace {
    pub(super) fn new(rate_hz: f64, has_dead_band: bool) -> Self {
        let period = Duration::from_secs_f64(1.0 / rate_hz);
        let begin = Instant::now();
        if !has_dead_band {
            return Self::Absolute {
                begin,
                period,
                beats: 0,
            };
        }
        let between = (rate_hz as u32).max(1);
        Self::Feedback(Feedback {
            period_ns: 1e9 / rate_hz,
            sleep_ns: 1e9 / rate_hz,
            between,
            left: between,
            since: begin,
        })
    }

    /// Waits until the next beat is due. The first one is at once.
    pub(super) fn wait(&mut self) {
        match self {
            Self::Absolute {
                begin,
                period,
                beats,
            } => {
                let at = *begin + period.mul_f64(*beats as f64);
                *beats += 1;
                sheaf_testbed::clock::pause(at.saturating_duration_since(Instant::now()));
            }
            Self::Feedback(feedback) => {
                sheaf_testbed::clock::pause(Duration::from_nanos(feedback.sleep_ns as u64));
                feedback.left -= 1;
                if feedback.left == 0 {
                    let beat_ns =
                        feedback.since.elapsed().as_nanos() as f64 / f64::from(feedback.between);
                    feedback.correct(beat_ns);
                    feedback.left = feedback.between;
                    feedback.since = Instant::now();
                }
            }
        }
    }
}

impl Feedback {
    /// Beats took `beat_ns` each.
    fn correct(&mut self, beat_ns: f64) {
        let off = beat_ns / self.period_ns - 1.0;
        if off.abs() > DEAD_BAND {
            self.sleep_ns = (self.sleep_ns * self.period_ns / beat_ns).max(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_its_dead_band_the_limiter_lets_a_wrong_rate_be() {
        let Pace::Feedback(mut feedback) = Pace::new(200.0, true) else {
            panic!("it has a dead band");
        };
        feedback.correct(5_000_000.0 * 1.015);
        assert_eq!(feedback.sleep_ns, 5_000_000.0);
        feedback.correct(5_000_000.0 * 1.02);
        assert!(
            (feedback.sleep_ns - 4_901_960.8).abs() < 1.0,
            "{feedback:?}"
        );
    }
}
