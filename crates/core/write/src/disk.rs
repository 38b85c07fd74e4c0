//! Health of one disk: whether it gets new files, and if not, why.

use sheaf_protocol::Timestamp;
use std::time::Duration;

/// Time that a disk has to be well before it gets new files again.
const REST_FIRST: Duration = Duration::from_secs(5);
/// The longest such time: it doubles each time that a disk is left out again soon after.
const REST_MAX: Duration = Duration::from_secs(300);

/// Watermarks on the free space of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// A disk with less free gets nothing; 0: it may be filled.
    pub min_bytes: u64,
    /// A disk that had less than `min_bytes` gets files again when it has this much; the lowest class is shed below it.
    pub low_bytes: u64,
}

/// Reason why a disk gets no new files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// Writing to it fails, and is tried again.
    Failing,
    /// The oldest record of it waits for longer than the bound.
    Slow,
    /// Less of it is free than the watermark.
    Low,
}

impl LeftOut {
    /// Name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Slow => "slow",
            Self::Low => "low",
        }
    }
}

/// State of a disk, as its engine sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLoad {
    /// Records that are not acknowledged.
    pub held_records: u64,
    /// Bytes of them.
    pub held_bytes: u64,
    /// When the oldest of them was taken.
    pub oldest: Option<Timestamp>,
    /// Whether writing fails now.
    pub is_failing: bool,
}

/// Time that a disk spends left out for a fault.
#[derive(Clone, Copy, Debug)]
struct Out {
    why: LeftOut,
    /// Since when it has been well.
    well_since: Option<Timestamp>,
}

/// A disk.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) load: DiskLoad,
    pub(crate) free_bytes: Option<u64>,
    is_low: bool,
    out: Option<Out>,
    rest: Duration,
    /// When it got files again.
    back_at: Option<Timestamp>,
    /// Last reason that was reported.
    reported: Option<LeftOut>,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            load: DiskLoad::default(),
            free_bytes: None,
            is_low: false,
            out: None,
            rest: REST_FIRST,
            back_at: None,
            reported: None,
        }
    }
}

impl Disk {
    /// Notes the state of the disk. One whose oldest record is older than `slow` is slow.
    pub(crate) fn handle_load(&mut self, now: Timestamp, load: DiskLoad, slow: Duration) {
        self.load = load;
        let age = load
            .oldest
            .map_or(Duration::ZERO, |oldest| now.since(oldest));
        // One that was slow is well when it is clearly faster.
        let bound = if self.out.is_some() { slow / 2 } else { slow };
        let fault = if load.is_failing {
            Some(LeftOut::Failing)
        } else if age >= bound {
            Some(LeftOut::Slow)
        } else {
            None
        };
        match (&mut self.out, fault) {
            (None, None) => {}
            (None, Some(why)) => {
                let is_soon = |at: Timestamp| now.since(at) < REST_MAX;
                self.rest = match self.back_at.is_some_and(is_soon) {
                    true => (self.rest * 2).min(REST_MAX),
                    false => REST_FIRST,
                };
                self.out = Some(Out {
                    why,
                    well_since: None,
                });
            }
            (Some(out), Some(_)) => out.well_since = None,
            (Some(out), None) => {
                let since = *out.well_since.get_or_insert(now);
                if now.since(since) >= self.rest {
                    self.out = None;
                    self.back_at = Some(now);
                }
            }
        }
    }

    /// Notes the free space; `None`: the disk does not say.
    pub(crate) fn handle_free(&mut self, free_bytes: Option<u64>, space: Space) {
        self.free_bytes = free_bytes;
        if let Some(free) = free_bytes {
            let mark = match self.is_low {
                true => space.low_bytes.max(space.min_bytes),
                false => space.min_bytes,
            };
            self.is_low = free < mark;
        }
    }

    /// Returns why the disk gets no new files; `None` if it does.
    pub(crate) fn left_out(&self) -> Option<LeftOut> {
        let fault = self.out.map(|out| out.why);
        fault.or(self.is_low.then_some(LeftOut::Low))
    }

    pub(crate) fn is_low(&self) -> bool {
        self.is_low
    }

    /// Whether what it gets now would be written.
    pub(crate) fn can_write(&self) -> bool {
        !self.is_low && !self.load.is_failing
    }

    /// Returns what has changed since the last call: that it is left out, or gets files again.
    pub(crate) fn take_news(&mut self) -> Option<Option<LeftOut>> {
        let now = self.left_out();
        // Another reason for the same is no news.
        if now.is_some() == self.reported.is_some() {
            return None;
        }
        self.reported = now;
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_secs(2);

    /// Returns the news after each state, by its time in ms: `f` failing, `.` well, or the age of the oldest record in
    /// ms.
    fn news(states: &[(u64, &str)]) -> Vec<String> {
        let mut disk = Disk::default();
        let mut news = Vec::new();
        for (ms, state) in states {
            let at = |ms: u64| Timestamp(ms * 1_000_000);
            let load = DiskLoad {
                is_failing: *state == "f",
                oldest: state.parse().ok().map(|age: u64| at(ms - age)),
                ..DiskLoad::default()
            };
            disk.handle_load(at(*ms), load, SLOW);
            if let Some(found) = disk.take_news() {
                news.push(format!("{ms} {}", found.map_or("back", LeftOut::name)));
            }
        }
        news
    }

    #[test]
    fn a_disk_that_failed_is_left_out_until_it_was_well_for_a_while() {
        let states = [
            (0, "."),
            (10, "f"),
            (20, "."),
            (4000, "f"),
            (4010, "."),
            (9009, "."),
            (9010, "."),
        ];
        assert_eq!(news(&states), ["10 failing", "9010 back"]);
    }

    #[test]
    fn a_disk_that_is_left_out_again_rests_for_longer() {
        let states = [
            (0, "f"),
            (10, "."),
            (5010, "."),
            (6000, "f"),
            (6010, "."),
            (11_010, "."),
            (16_010, "."),
        ];
        assert_eq!(
            news(&states),
            ["0 failing", "5010 back", "6000 failing", "16010 back"]
        );
    }

    #[test]
    fn a_disk_is_slow_by_the_age_of_its_oldest_record() {
        let states = [
            (9000, "1999"),
            (10_000, "2000"),
            (11_000, "1500"),
            (12_000, "900"),
            (17_000, "."),
        ];
        assert_eq!(news(&states), ["10000 slow", "17000 back"]);
    }

    #[test]
    fn a_full_disk_is_taken_again_at_the_upper_watermark() {
        let space = Space {
            min_bytes: 10,
            low_bytes: 20,
        };
        let mut disk = Disk::default();
        let after = |free| {
            disk.handle_free(free, space);
            disk.is_low()
        };
        let frees = [Some(10), Some(9), Some(19), None, Some(20), Some(10)];
        let found: Vec<bool> = frees.into_iter().map(after).collect();
        assert_eq!(found, [false, true, true, true, false, false]);
    }
}
