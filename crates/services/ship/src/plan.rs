//! When a copy is tried again, and which files go from the disk.

use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;

/// Pauses before a failed copy is tried again: doubled each time up to the last, and each drawn from the upper half of
/// its length, so that many files do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// First pause.
    pub first: Duration,
    /// Longest pause.
    pub last: Duration,
}

impl Backoff {
    /// Returns the pause after `attempts` failed attempts, at least one.
    #[must_use]
    pub fn pause(&self, attempts: u32, rng: &mut Xoshiro256PlusPlus) -> Duration {
        let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
        let longest = self.first.saturating_mul(doubled).min(self.last);
        longest.mul_f64(rng.random_range(0.5..=1.0))
    }
}

/// When files that are verified everywhere go from the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteRule {
    /// Free bytes of the disk below which files go, the oldest first; `u64::MAX`: always.
    pub free_below: u64,
    /// Time since its closing that a file stays at least.
    pub age_min: Duration,
}

/// A file that all destinations have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) id: i64,
    pub(crate) bytes: u64,
    pub(crate) closed_ns: i64,
}

impl DeleteRule {
    /// Returns the files to delete, of `candidates` from the oldest on, while less than
    /// [`free_below`](Self::free_below) is free.
    pub(crate) fn choose(&self, candidates: &[Candidate], free: u64, now_ns: i64) -> Vec<i64> {
        let age_min_ns = i64::try_from(self.age_min.as_nanos()).unwrap_or(i64::MAX);
        let mut free = free;
        let mut chosen = Vec::new();
        for candidate in candidates {
            if free >= self.free_below {
                break;
            }
            if now_ns.saturating_sub(candidate.closed_ns) < age_min_ns {
                continue;
            }
            free = free.saturating_add(candidate.bytes);
            chosen.push(candidate.id);
        }
        chosen
    }
}

/// Estimate of when a disk is full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filling {
    last: Option<(i64, u64)>,
}

impl Filling {
    /// Takes the free bytes at `now_ns`. Returns the time until there are none, if they got fewer since the last call.
    pub(crate) fn look(&mut self, now_ns: i64, free: u64) -> Option<Duration> {
        let (then_ns, before) = self.last.replace((now_ns, free))?;
        let (gone, passed_ns) = (before.checked_sub(free)?, now_ns - then_ns);
        if gone == 0 || passed_ns <= 0 {
            return None;
        }
        let left_s = free as f64 / gone as f64 * passed_ns as f64 / 1e9;
        Duration::try_from_secs_f64(left_s).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_not_all_the_same() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            last: Duration::from_secs(300),
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        for (attempts, longest) in [
            (1, 1),
            (2, 2),
            (5, 16),
            (9, 256),
            (10, 300),
            (4_000_000, 300),
        ] {
            let pause = backoff.pause(attempts, &mut rng);
            let longest = Duration::from_secs(longest);
            assert!(
                pause <= longest && pause >= longest / 2,
                "{attempts}: {pause:?}"
            );
        }
        let some: Vec<_> = (0..4).map(|_| backoff.pause(3, &mut rng)).collect();
        assert!(some.windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn the_oldest_files_go_until_there_is_room_and_young_ones_stay() {
        let file = |id: i64, closed_s: i64| Candidate {
            id,
            bytes: 100,
            closed_ns: closed_s * 1_000_000_000,
        };
        let files = [file(1, 0), file(2, 50), file(3, 10), file(4, 20)];
        let rule = DeleteRule {
            free_below: 1000,
            age_min: Duration::from_secs(60),
        };
        let now_ns = 100 * 1_000_000_000;
        assert_eq!(rule.choose(&files, 1000, now_ns), Vec::<i64>::new());
        assert_eq!(rule.choose(&files, 901, now_ns), [1]);
        assert_eq!(rule.choose(&files, 850, now_ns), [1, 3]);
        assert_eq!(rule.choose(&files, 0, now_ns), [1, 3, 4]);
        let always = DeleteRule {
            free_below: u64::MAX,
            age_min: Duration::ZERO,
        };
        assert_eq!(always.choose(&files, 1 << 50, now_ns), [1, 2, 3, 4]);
    }

    #[test]
    fn a_disk_that_gets_fuller_has_a_time_left() {
        let mut filling = Filling::default();
        let second = 1_000_000_000;
        assert_eq!(filling.look(0, 1000), None);
        assert_eq!(
            filling.look(10 * second, 900),
            Some(Duration::from_secs(90))
        );
        assert_eq!(filling.look(20 * second, 950), None);
        assert_eq!(filling.look(30 * second, 950), None);
        assert_eq!(filling.look(31 * second, 0), Some(Duration::ZERO));
    }
}
