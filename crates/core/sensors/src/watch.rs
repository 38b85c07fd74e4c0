//! The lives of a watched process.

/// One life of a process: a pid may be used again, but not with the same start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Id of the process.
    pub pid: u32,
    /// Ticks between the start of the machine and that of the process.
    pub start_ticks: u64,
}

/// Change in the life of a watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The process runs, after it did not.
    Began(Life),
    /// The process has ended.
    Ended(Life),
    /// The process has ended, and another one runs in its place.
    Restarted(Life, Life),
}

/// Follows a process from one life to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    life: Option<Life>,
    has_looked: bool,
    has_run: bool,
    restarts: u64,
}

impl Watch {
    /// Notes the life that was found, or that there is none. What the first look finds is no change.
    pub fn note(&mut self, found: Option<Life>) -> Option<Change> {
        let before = std::mem::replace(&mut self.life, found);
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let had_run = self.has_run;
        self.has_run |= found.is_some();
        if is_first {
            return None;
        }
        let change = match (before, found) {
            (Some(before), Some(now)) if before != now => Change::Restarted(before, now),
            (Some(before), None) => Change::Ended(before),
            (None, Some(now)) => Change::Began(now),
            _ => return None,
        };
        let is_again = had_run && found.is_some();
        self.restarts += u64::from(is_again);
        Some(change)
    }

    /// The life that was found last.
    #[must_use]
    pub fn life(&self) -> Option<Life> {
        self.life
    }

    /// Times that the process was found again, in another life.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(pid: u32, start_ticks: u64) -> Life {
        Life { pid, start_ticks }
    }

    #[test]
    fn every_end_and_begin_is_a_change_but_for_what_is_found_first() {
        let (one, two) = (life(7, 100), life(9, 200));
        let mut watch = Watch::default();
        for (found, change, restarts) in [
            (Some(one), None, 0),
            (Some(one), None, 0),
            (None, Some(Change::Ended(one)), 0),
            (None, None, 0),
            (Some(two), Some(Change::Began(two)), 1),
            (Some(one), Some(Change::Restarted(two, one)), 2),
        ] {
            assert_eq!(watch.note(found), change);
            assert_eq!((watch.life(), watch.restarts()), (found, restarts));
        }
    }

    #[test]
    fn a_pid_that_is_used_again_is_another_life() {
        let mut watch = Watch::default();
        watch.note(Some(life(7, 100)));
        let change = watch.note(Some(life(7, 101)));
        assert_eq!(change, Some(Change::Restarted(life(7, 100), life(7, 101))));
    }

    #[test]
    fn a_first_begin_is_a_change_and_no_restart() {
        let mut watch = Watch::default();
        assert_eq!(watch.note(None), None);
        assert_eq!(
            watch.note(Some(life(1, 1))),
            Some(Change::Began(life(1, 1)))
        );
        assert_eq!(watch.restarts(), 0);
    }
}
