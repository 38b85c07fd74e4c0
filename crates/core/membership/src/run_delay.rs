//! How long a node has lately had to wait for a processor: the reason why it may be silent, and is not gone.

use sheaf_protocol::Timestamp;
use std::time::Duration;

/// Longest run delay that counts. A machine on which nodes wait for longer cannot run a farm.
pub const RUN_DELAY_MAX: Duration = Duration::from_secs(1);
/// Time for which a run delay is remembered: several periods of a quota, or of a burst of other work.
const REMEMBERED: Duration = Duration::from_secs(4);
/// Parts of that time. The oldest part is forgotten as a whole.
const PARTS: usize = 8;

/// Run delays of one event loop: times for which it was ready to run and had no processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunDelays {
    /// Longest run delay in each part of the time that is remembered, with the number of that part.
    parts: [(u64, Duration); PARTS],
    /// Run delay since the last pulse.
    since_pulse: Duration,
}

impl RunDelays {
    /// Adds a run delay that ended just before `now`.
    pub fn add(&mut self, now: Timestamp, delay: Duration) {
        self.since_pulse += delay;
        let number = part_of(now);
        let index = usize::try_from(number).unwrap_or(0) % PARTS;
        let (known, longest) = &mut self.parts[index];
        if *known != number {
            (*known, *longest) = (number, Duration::ZERO);
        }
        *longest = self.since_pulse.min(RUN_DELAY_MAX).max(*longest);
    }

    /// Notes that a pulse is sent. Run delays between two pulses add up to one silence.
    pub fn handle_pulse(&mut self) {
        self.since_pulse = Duration::ZERO;
    }

    /// Returns the longest run delay between two pulses that is remembered at `now`, at most [`RUN_DELAY_MAX`].
    #[must_use]
    pub fn longest(&self, now: Timestamp) -> Duration {
        let oldest = part_of(now).saturating_sub(PARTS as u64 - 1);
        let is_remembered = |(number, _): &&(u64, Duration)| *number >= oldest;
        let remembered = self.parts.iter().filter(is_remembered);
        remembered
            .map(|(_, longest)| *longest)
            .max()
            .unwrap_or_default()
    }
}

fn part_of(now: Timestamp) -> u64 {
    let part_ns = u64::try_from(REMEMBERED.as_nanos()).unwrap_or(u64::MAX) / PARTS as u64;
    now.0 / part_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    #[test]
    fn run_delays_between_two_pulses_add_up_and_are_forgotten_after_some_seconds() {
        let ms = Duration::from_millis;
        let mut delays = RunDelays::default();
        assert_eq!(delays.longest(at(0)), Duration::ZERO);
        delays.add(at(1000), ms(90));
        delays.add(at(1100), ms(60));
        delays.handle_pulse();
        delays.add(at(1200), ms(40));
        delays.handle_pulse();
        assert_eq!(delays.longest(at(1200)), ms(150));
        delays.add(at(3000), ms(70));
        assert_eq!(delays.longest(at(4999)), ms(150));
        assert_eq!(delays.longest(at(5000)), ms(70));
        assert_eq!(delays.longest(at(60_000)), Duration::ZERO);
    }

    #[test]
    fn a_run_delay_counts_as_a_second_at_most() {
        let mut delays = RunDelays::default();
        delays.add(at(9000), Duration::from_secs(30));
        assert_eq!(delays.longest(at(9000)), RUN_DELAY_MAX);
    }
}
