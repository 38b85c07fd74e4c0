//! Pauses before a stream is opened again.

use sheaf_protocol::splitmix::SplitMix64;
use std::time::Duration;

/// Span of the first pause after a refusal, and of the longest: how long a node takes at most to notice that it is
/// not refused any more.
const REFUSED_FIRST: Duration = Duration::from_millis(250);
const REFUSED_MAX: Duration = Duration::from_secs(8);

/// Pauses that double up to a bound, each drawn from all of its span (*full jitter*): many nodes that lost one peer at
/// the same moment do not all come back at the same moment. Equal seeds give equal pauses.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    span: Duration,
    lots: SplitMix64,
}

impl Backoff {
    /// Returns pauses from within `first`, then twice that, up to `max`.
    #[must_use]
    pub fn new(first: Duration, max: Duration, seed: u64) -> Self {
        Self {
            first,
            max,
            span: first,
            lots: SplitMix64::new(seed),
        }
    }

    /// Returns the pauses of a node that its peer refuses for a reason that only people mend: a certificate, a version.
    #[must_use]
    pub fn after_refusals(seed: u64) -> Self {
        Self::new(REFUSED_FIRST, REFUSED_MAX, !seed)
    }

    /// Returns the next pause: longer than zero, and at most the present span, which then doubles.
    pub fn pause(&mut self) -> Duration {
        let lot = self.lots.draw();
        let span_ns = u64::try_from(self.span.as_nanos()).unwrap_or(u64::MAX);
        self.span = (self.span * 2).min(self.max);
        Duration::from_nanos(1 + lot % span_ns.max(1))
    }

    /// Starts again from the first span, after the stream was open.
    pub fn reset(&mut self) {
        self.span = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(10);
    const MAX: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_fill_a_span_that_doubles_up_to_its_bound() {
        let mut longest = [Duration::ZERO; 10];
        let mut shortest = [MAX; 10];
        for seed in 0..2000 {
            let mut backoff = Backoff::new(FIRST, MAX, seed);
            for (most, least) in longest.iter_mut().zip(&mut shortest) {
                let pause = backoff.pause();
                (*most, *least) = ((*most).max(pause), (*least).min(pause));
            }
            backoff.reset();
            assert!(backoff.pause() <= FIRST);
        }
        for (at, (most, least)) in longest.into_iter().zip(shortest).enumerate() {
            let span = (FIRST * (1 << at)).min(MAX);
            assert!(
                most <= span && most > span * 9 / 10,
                "{at}: {most:?} of {span:?}"
            );
            assert!(
                least > Duration::ZERO && least < span / 10,
                "{at}: {least:?} of {span:?}"
            );
        }
    }

    #[test]
    fn a_peer_that_refuses_is_tried_every_few_seconds_and_soon_after_a_reset() {
        for seed in 0..100 {
            let mut backoff = Backoff::after_refusals(seed);
            let first = backoff.pause();
            assert!(first <= REFUSED_FIRST, "{first:?}");
            let later: Duration = (0..100).map(|_| backoff.pause()).sum();
            assert!(later > REFUSED_MAX * 35, "{later:?}");
            assert!(later < REFUSED_MAX * 65, "{later:?}");
            backoff.reset();
            assert!(backoff.pause() <= REFUSED_FIRST);
        }
    }

    #[test]
    fn equal_seeds_give_equal_pauses_and_others_do_not() {
        let pauses = |seed| {
            let mut backoff = Backoff::new(FIRST, MAX, seed);
            (0..8).map(|_| backoff.pause()).collect::<Vec<_>>()
        };
        assert_eq!(pauses(7), pauses(7));
        assert_ne!(pauses(7), pauses(8));
    }
}
