//! Rate of a client: a token bucket. Pure.

use std::time::{Duration, Instant};

/// Time of the rate that may come at once.
const BURST: Duration = Duration::from_millis(20);
/// Fewer bytes than these are not asked for: they would cost a system call each.
const LEAST: u64 = 4096;

/// Bytes that a client may move.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    bytes_per_s: f64,
    most: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket of `bytes_per_s` at `now`.
    pub(crate) fn new(bytes_per_s: u64, now: Instant) -> Self {
        let rate = bytes_per_s.max(1) as f64;
        let most = (rate * BURST.as_secs_f64()).max(LEAST as f64);
        Self {
            bytes_per_s: rate,
            most,
            tokens: most,
            at: now,
        }
    }

    /// Returns how many bytes may be moved at `now`; 0: wait until [`ready_at`](Self::ready_at).
    pub(crate) fn allowed(&mut self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed * self.bytes_per_s).min(self.most);
        // Rounding does not keep a full bucket of the least size waiting.
        let whole = (self.tokens + 0.5) as u64;
        if whole < LEAST { 0 } else { whole }
    }

    /// Takes the `bytes` that were moved.
    pub(crate) fn take(&mut self, bytes: u64) {
        self.tokens -= bytes as f64;
    }

    /// Time from which on the least number of bytes is allowed.
    pub(crate) fn ready_at(&self) -> Instant {
        let missing = (LEAST as f64 - self.tokens).max(0.0);
        // One more ns than exact, so that rounding does not wake a client too early.
        self.at + Duration::from_secs_f64(missing / self.bytes_per_s) + Duration::from_nanos(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_a_second_no_more_than_the_rate_and_one_burst_passes() {
        for rate in [10_000, 1_000_000, 2_500_000_000] {
            let begin = Instant::now();
            let mut now = begin;
            let mut bucket = Bucket::new(rate, now);
            let mut moved = 0;
            while now < begin + Duration::from_secs(1) {
                let allowed = bucket.allowed(now);
                if allowed == 0 {
                    assert!(bucket.ready_at() > now, "a client that waits is not awake");
                    now = bucket.ready_at();
                    continue;
                }
                bucket.take(allowed);
                moved += allowed;
            }
            let burst = (rate / 50).max(LEAST);
            assert!(
                moved >= rate - burst && moved <= rate + 2 * burst,
                "{moved} of {rate}"
            );
        }
    }

    #[test]
    fn a_pause_is_not_caught_up_beyond_a_burst() {
        let begin = Instant::now();
        let mut bucket = Bucket::new(1_000_000, begin);
        bucket.take(20_000);
        assert_eq!(bucket.allowed(begin), 0);
        assert_eq!(bucket.allowed(begin + Duration::from_secs(60)), 20_000);
    }
}
