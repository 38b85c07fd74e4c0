//! The clock of a process: nanoseconds since it began, on the monotonic clock.

use sheaf_protocol::{Incarnation, RunId, Timestamp, splitmix};
use std::time::{Duration, Instant, SystemTime};

/// Turns the operating system's monotonic clock into [`Timestamp`]s.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that shows zero now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// A clock that showed zero `ago`.
    #[cfg(test)]
    pub(crate) fn started_before(ago: Duration) -> Self {
        let origin = Instant::now().checked_sub(ago);
        Self {
            origin: origin.expect("the machine runs for longer"),
        }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(0) + self.origin.elapsed()
    }
}

/// Returns an incarnation for a process that begins now, `least` or higher: later processes of a host get higher ones,
/// as long as its wall clock is not set back. Where it was, the ICN refuses the node and names the least that may join.
/// Two processes of one node may be refused so, with the same number: they draw from the second above it, since two
/// with one incarnation would be one life to the farm.
#[must_use]
pub fn new_incarnation(least: u64) -> Incarnation {
    let wall = wall_ns();
    if wall >= least {
        return Incarnation(wall);
    }
    Incarnation(least.saturating_add(random_number() % 1_000_000_000))
}

/// Returns the time since 1970 in ns by the wall clock.
fn wall_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Draws a number that no peer can predict.
pub(crate) fn random_number() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        // A kernel without random bytes: the time in ns still tells runs of one ICN, and its streams, apart.
        _ => splitmix::mix(wall_ns()),
    }
}

/// Draws a run id that no other run has. Its low half is `number`, or drawn as well if that is 0.
#[must_use]
pub fn new_run(number: u32) -> RunId {
    let drawn = random_number();
    RunId(match number {
        0 => drawn.max(1),
        number => drawn & !u64::from(u32::MAX) | u64::from(number),
    })
}

/// How much of the time this process was not given the processor.
///
/// A loop says when it wants to wake; when it wakes much later, everything that it waits for was late for the
/// same reason, and the silence of others proves nothing. The time shown here leaves such gaps out.
#[derive(Clone, Copy, Debug, Default)]
pub struct FairClock {
    stolen: Duration,
    due: Option<Timestamp>,
}

/// Wake-ups that come this late are ordinary scheduling.
const LATE_IS_ORDINARY: Duration = Duration::from_millis(10);

impl FairClock {
    /// The loop goes to sleep and wants to wake at `due`.
    pub fn sleep_until(&mut self, due: Timestamp) {
        self.due = Some(due);
    }

    /// The loop has woken at `now`. Returns by how much it was late, zero if that is ordinary.
    pub fn wake(&mut self, now: Timestamp) -> Duration {
        let late = self.due.take().map_or(Duration::ZERO, |due| now.since(due));
        if late <= LATE_IS_ORDINARY {
            return Duration::ZERO;
        }
        self.stolen += late;
        late
    }

    /// The time that silence is measured with.
    #[must_use]
    pub fn fair(&self, now: Timestamp) -> Timestamp {
        Timestamp(
            now.0
                .saturating_sub(u64::try_from(self.stolen.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    #[test]
    fn a_run_has_the_given_number_and_an_id_of_its_own() {
        let runs = [new_run(540_123), new_run(540_123)];
        assert_ne!(runs[0], runs[1]);
        assert!(
            runs.iter()
                .all(|run| run.0 & u64::from(u32::MAX) == 540_123)
        );
        assert_ne!(new_run(0), new_run(0));
    }

    #[test]
    fn two_processes_that_are_told_the_same_least_incarnation_get_two() {
        let least = wall_ns() + 3_600_000_000_000;
        let lives = [new_incarnation(least), new_incarnation(least)];
        assert!(lives.iter().all(|life| life.0 >= least));
        assert_ne!(lives[0], lives[1]);
        assert!(new_incarnation(0).0 >= wall_ns() - 3_600_000_000_000);
    }

    #[test]
    fn a_late_wake_up_does_not_count_as_silence_of_others() {
        let mut clock = FairClock::default();
        clock.sleep_until(ms(5));
        assert_eq!(clock.wake(ms(6)), Duration::ZERO);
        assert_eq!(clock.fair(ms(6)), ms(6));
        clock.sleep_until(ms(11));
        assert_eq!(clock.wake(ms(311)), Duration::from_millis(300));
        assert_eq!(clock.fair(ms(311)), ms(11));
    }
}
